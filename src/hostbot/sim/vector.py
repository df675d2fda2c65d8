"""Many environments at once, one process each, as a gymnasium vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import gymnasium

from hostbot.sim.catalogue import task
from hostbot.sim.env import EnvConfig, SimEnv


def make_env(name: str, config: EnvConfig | None = None) -> SimEnv:
    """The environment of a task by name."""
    return SimEnv(task(name), config)


def make_vector(names: Sequence[str], config: EnvConfig | None = None) -> gymnasium.vector.AsyncVectorEnv:
    """One environment a name, each in a process of its own; ``reset(seed=s)`` seeds them s, s + 1 ..."""
    return gymnasium.vector.AsyncVectorEnv(
        [partial(make_env, name, config) for name in names], context="spawn"
    )

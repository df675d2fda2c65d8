"""Small rollouts during training: does the video drive the robot, on training tasks in scenes never recorded."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hostbot.policy.policy import Policy

FIRST_SEED = 8000
"""Scenes of these rollouts: clear of recorded ones and of evaluations."""


def rollout_check(run: Path, num_tasks: int, size: int) -> Callable[[Policy, int], dict[str, float]]:
    """Success and first touch with the task's own video, and with another task's of the same scene.

    Tasks are spread over the training split: novel ones must not help to choose a checkpoint.
    """
    from hostbot.sim.catalogue import split

    known = split().names("train")
    tasks = tuple(known[i * len(known) // num_tasks] for i in range(min(num_tasks, len(known))))

    def check(policy: Policy, step: int) -> dict[str, float]:
        own, swapped = (
            _rate(policy, run / "rollouts" / f"step-{step:08d}", tasks, how, size) for how in _SHOWN
        )
        return {
            "success": own[0],
            "first_touch": own[1],
            "success_swapped": swapped[0],
            "first_touch_swapped": swapped[1],
        }

    return check


_SHOWN: tuple[Literal["own", "swapped"], ...] = ("own", "swapped")


def _rate(
    policy: Policy, folder: Path, tasks: tuple[str, ...], shown: Literal["own", "swapped"], size: int
) -> tuple[float, float]:
    """Share of trials in which the scene's own task got done, and its own first thing was touched first."""
    from hostbot.bench.model import Model
    from hostbot.bench.results import RolloutConfig
    from hostbot.bench.rollout import Rollout
    from hostbot.bench.suites import SuiteConfig

    config = RolloutConfig(
        suite=SuiteConfig(tasks=tasks, trials=1, videos=1, first_seed=FIRST_SEED, shown=shown),
        wave=min(16, len(tasks)),
        size=size,
        rate_hz=policy.embodiment.rate_hz,
        workers=min(len(tasks), os.cpu_count() or 1),
    )
    rollout = Rollout(Model(policy, None), config, policy.spec.image_size)
    results = [finished.result for finished in rollout.run(folder / shown)]
    return (
        sum(r.success for r in results) / len(results),
        sum(r.touched == r.meant and r.touched != "" for r in results) / len(results),
    )

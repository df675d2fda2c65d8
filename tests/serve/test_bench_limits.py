"""The bench's limits let the expert work and nothing else through."""

from pathlib import Path

import numpy as np
import pytest

from hostbot.sim.agents import random_agent
from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot_client import Guard, load_limits

LIMITS = load_limits(Path(__file__).parents[2] / "examples/bench_limits.json")
NAMES = [*split().names("novel")[::10], *split().train[::40]]


@pytest.mark.parametrize("name", NAMES)
def test_the_experts_chunks_pass(name):
    """Chunks of a second, each checked from where the robot really was and against what it was last told."""
    env, guard, told = SimEnv(task(name), EnvConfig(views=())), Guard(LIMITS), None
    env.reset(seed=3)
    LIMITS.check_parts([{"name": p.name, "kind": p.kind} for p in env.embodiment.parts])
    actor, done = env.expert(), False
    while not done and env.frame < 224:
        here, chunk = env.state(), []
        while len(chunk) < 16 and not done:
            chunk.append(actor.act())
            done = env.advance(chunk[-1])
        verdict = guard(np.stack(chunk), here, told)
        assert verdict.refusal is None, str(verdict.refusal)
        np.testing.assert_allclose(verdict.actions, chunk, atol=1e-6)
        told = verdict.actions[-1]
    env.close()


def test_chance_does_not():
    env = SimEnv(task(NAMES[0]), EnvConfig(views=()))
    env.reset(seed=3)
    act = random_agent(env, 0)
    verdict = Guard(LIMITS)(np.stack([act() for _ in range(16)]), env.state())
    assert verdict.num_safe < 2
    env.close()

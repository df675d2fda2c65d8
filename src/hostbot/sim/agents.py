"""What can act in the robot's environment without learning: the expert, nothing, and chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from hostbot.sim.arms import LIMBS, MAX_OPENING
from hostbot.sim.env import SimEnv, seeded
from hostbot.sim.keys import tool_rotation
from hostbot.sim.pose import Pose
from hostbot.sim.robot import pack

AgentName = Literal["expert", "zero", "random"]
Act = Callable[[], Float[np.ndarray, " 20"]]


def zero_agent(env: SimEnv) -> Act:
    """Twenty zeros, whatever happens."""
    return lambda: np.zeros(20)


def random_agent(env: SimEnv, seed: int) -> Act:
    """A uniform draw from the action space at every step."""
    rng = seeded(env.task, seed, "random agent")
    space = env.action_space
    assert isinstance(space, spaces.Box)
    return lambda: rng.uniform(space.low, space.high)


def wandering_agent(env: SimEnv, seed: int) -> Act:
    """Chance that gets somewhere: both tools to random places over the table, a new one every half second."""
    rng = seeded(env.task, seed, "wandering agent")
    held: dict[str, Float[np.ndarray, " 20"]] = {}
    count = 0

    def act() -> Float[np.ndarray, " 20"]:
        nonlocal count
        if count % 8 == 0:
            places = {limb: rng.uniform((0.15, -0.28, 0.01), (0.44, 0.28, 0.25)) for limb in LIMBS}
            poses = {limb: Pose(places[limb], tool_rotation(rng.uniform(0, np.pi))) for limb in LIMBS}
            held["vector"] = pack(poses, {limb: float(rng.uniform(0, MAX_OPENING)) for limb in LIMBS})
        count += 1
        return held["vector"]

    return act

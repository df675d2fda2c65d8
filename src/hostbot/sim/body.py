"""What acts in a scene: a robot or a person, both led by bimanual vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import mujoco
import numpy as np
from jaxtyping import Float

from hostbot.sim.pose import Pose

TIMESTEP = 1 / 256
"""Seconds of one physics step."""


class Body(Protocol):
    """What acts in a scene: a robot or a person, both told what to do by bimanual vectors."""

    @property
    def limbs(self) -> tuple[str, ...]:
        """The limbs that are there."""

    @property
    def hand_geoms(self) -> Mapping[str, frozenset[int]]:
        """The geoms with which each limb touches things."""

    def home_vector(self) -> Float[np.ndarray, " 20"]:
        """The vector of the waiting pose."""

    def reset(self, data: mujoco.MjData) -> None:
        """Go to the waiting pose at once."""

    def command(self, data: mujoco.MjData, vector: Float[np.ndarray, " 20"]) -> None:
        """Take the next control period's target."""

    def ramp(self, data: mujoco.MjData, fraction: float) -> None:
        """Move the low-level targets part of the way through the period."""

    def pose(self, data: mujoco.MjData, limb: str) -> Pose:
        """Where a tool is."""

    def opening(self, data: mujoco.MjData, limb: str) -> float:
        """How far its jaws or fingers are apart."""

    def vector(self, data: mujoco.MjData) -> Float[np.ndarray, " 20"]:
        """The state, as a bimanual vector."""

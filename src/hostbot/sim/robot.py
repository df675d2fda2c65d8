"""The robot at work: bimanual vectors in, joint targets out, state back as a bimanual vector.

Numbers of the vector: per arm the tool's position in metres in the world (the midpoint between the arm
bases, on the table), its 6-D rotation, and the jaw opening in metres.
"""

from __future__ import annotations

import mujoco
import numpy as np
from jaxtyping import Float

from hostbot.sim.arms import LIMBS, MAX_OPENING, RobotConfig, home_pose
from hostbot.sim.inverse import Inverse
from hostbot.sim.pose import Pose, rot6d, rot_of_6d

_SQUEEZE = 0.003
"""Metres by which jaws that hold something are further open than they are told to be."""


def pack(poses: dict[str, Pose], openings: dict[str, float]) -> Float[np.ndarray, " 20"]:
    """The bimanual vector of two tool poses and jaw openings."""
    parts = [np.concatenate([poses[limb].pos, rot6d(poses[limb].rot), [openings[limb]]]) for limb in LIMBS]
    return np.concatenate(parts)


def unpack(vector: Float[np.ndarray, " 20"]) -> tuple[dict[str, Pose], dict[str, float]]:
    """Tool poses and jaw openings of a bimanual vector."""
    poses, openings = {}, {}
    for k, limb in enumerate(LIMBS):
        part = np.asarray(vector[10 * k : 10 * k + 10], float)
        poses[limb] = Pose(part[:3], rot_of_6d(part[3:9]))
        openings[limb] = float(np.clip(part[9], 0.0, MAX_OPENING))
    return poses, openings


class Robot:
    """The arms inside a compiled world: takes bimanual vectors, gives them back as state."""

    limbs = LIMBS

    def __init__(self, model: mujoco.MjModel, config: RobotConfig, control_dt: float) -> None:
        self.config, self._dt = config, control_dt
        self._inverse = Inverse(config)
        self._site = {limb: model.site(f"{limb}_tool").id for limb in LIMBS}
        names = [f"{limb}_j{i + 1}" for limb in LIMBS for i in range(6)]
        self._q = np.array([model.joint(name).qposadr[0] for name in names])
        self._ctrl = np.array([model.actuator(name).id for name in names])
        jaws = [[f"{limb}_jaw_{f}" for f in "ab"] for limb in LIMBS]
        self._jaw_q = np.array([[model.joint(name).qposadr[0] for name in pair] for pair in jaws])
        self._jaw_ctrl = np.array([[model.actuator(name).id for name in pair] for pair in jaws])
        self.hand_geoms = {
            limb: frozenset(int(model.geom(f"{limb}_pad_{f}").id) for f in "ab") for limb in LIMBS
        }

    def home_vector(self) -> Float[np.ndarray, " 20"]:
        """The vector that asks for the waiting pose with open jaws."""
        return pack({limb: home_pose(self.config, limb) for limb in LIMBS}, dict.fromkeys(LIMBS, 0.07))

    def reset(self, data: mujoco.MjData) -> None:
        """Arms at home, jaws open."""
        home = self._inverse.home
        self._inverse.reset(home)
        data.qpos[self._q] = home
        data.ctrl[self._ctrl] = home
        data.qpos[self._jaw_q] = 0.035
        data.ctrl[self._jaw_ctrl] = 0.035
        self._target = home

    def put(self, data: mujoco.MjData, vector: Float[np.ndarray, " 20"]) -> None:
        """The arms as a vector asks, at once: nothing is moved on the way."""
        poses, openings = unpack(vector)
        self._target = self._inverse.reach(poses)
        data.qpos[self._q] = data.ctrl[self._ctrl] = self._target
        for k, limb in enumerate(LIMBS):
            data.qpos[self._jaw_q[k]] = data.ctrl[self._jaw_ctrl[k]] = openings[limb] / 2

    def command(self, data: mujoco.MjData, vector: Float[np.ndarray, " 20"]) -> None:
        """Joint targets for the next control period; the arms ramp to them within it."""
        poses, openings = unpack(vector)
        self._from, self._target = self._target, self._inverse.solve(poses, self._dt)
        for k, limb in enumerate(LIMBS):
            data.ctrl[self._jaw_ctrl[k]] = openings[limb] / 2

    def ramp(self, data: mujoco.MjData, fraction: float) -> None:
        """Joint targets part of the way through the period."""
        data.ctrl[self._ctrl] = self._from + fraction * (self._target - self._from)

    def pose(self, data: mujoco.MjData, limb: str) -> Pose:
        """Where a tool is."""
        i = self._site[limb]
        return Pose(data.site_xpos[i].copy(), data.site_xmat[i].reshape(3, 3).copy())

    def opening(self, data: mujoco.MjData, limb: str) -> float:
        """How far a pair of jaws is open, in metres."""
        return float(data.qpos[self._jaw_q[LIMBS.index(limb)]].sum())

    def squeezes(self, data: mujoco.MjData, limb: str) -> bool:
        """Whether something keeps a pair of jaws from closing."""
        asked = data.ctrl[self._jaw_ctrl[LIMBS.index(limb)]].sum()
        return bool(self.opening(data, limb) > asked + _SQUEEZE)

    def vector(self, data: mujoco.MjData) -> Float[np.ndarray, " 20"]:
        """The state, as a bimanual vector."""
        return pack(
            {limb: self.pose(data, limb) for limb in LIMBS},
            {limb: self.opening(data, limb) for limb in LIMBS},
        )

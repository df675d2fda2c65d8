"""Tool poses to joint targets with mink, within joint ranges and velocity limits."""

from __future__ import annotations

from functools import cache

import mink
import mujoco
import numpy as np
from jaxtyping import Float

from hostbot.sim.arms import LIMBS, RobotConfig, add_robot, home_pose
from hostbot.sim.pose import Pose


@cache
def _kinematics(config: RobotConfig) -> mujoco.MjModel:
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    add_robot(spec, config)
    return spec.compile()


_ITERATIONS = 40
_HOMES: dict[RobotConfig, Float[np.ndarray, " q"]] = {}


class Inverse:
    """Poses to joint targets with mink, within joint ranges and velocity limits."""

    def __init__(self, config: RobotConfig) -> None:
        model = _kinematics(config)
        self._config = config
        self._configuration = mink.Configuration(model)
        self._tasks = {
            limb: mink.FrameTask(
                f"{limb}_tool", "site", position_cost=1.0, orientation_cost=0.3, lm_damping=1e-3, gain=0.9
            )
            for limb in LIMBS
        }
        self._posture = mink.PostureTask(model, cost=1e-4)
        names = [(limb, i) for limb in LIMBS for i in range(6)]
        self._limits = [
            mink.ConfigurationLimit(model),
            mink.VelocityLimit(model, {f"{limb}_j{i + 1}": config.velocity_limits[i] for limb, i in names}),
        ]
        self.joints = np.array([model.joint(f"{limb}_j{i + 1}").qposadr[0] for limb, i in names])
        if config not in _HOMES:
            _HOMES[config] = self._solve_home(model)
        self._home = _HOMES[config]

    def _solve_home(self, model: mujoco.MjModel) -> Float[np.ndarray, " q"]:
        q = np.zeros(model.nq)
        for k, limb in enumerate(LIMBS):
            q[self.joints[6 * k : 6 * k + 6]] = [0.0, -0.25, 0.15, 1.6, 0.0, 0.0]
            self._tasks[limb].set_target(_se3(home_pose(self._config, limb)))
        self._configuration.update(q)
        self._posture.set_target(q)
        for _ in range(60):
            self._iterate(1.0, limits=False)
        return self._configuration.q.copy()

    @property
    def home(self) -> Float[np.ndarray, " 12"]:
        """Joint values of the waiting pose, left arm first."""
        return self._home[self.joints].copy()

    def reset(self, q: Float[np.ndarray, " 12"]) -> None:
        """Start from these joint values."""
        full = self._home.copy()
        full[self.joints] = q
        self._configuration.update(full)
        self._posture.set_target(self._home)

    def _iterate(self, dt: float, limits: bool = True) -> None:
        velocity = mink.solve_ik(
            self._configuration,
            [*self._tasks.values(), self._posture],
            dt,
            "daqp",
            damping=1e-6,
            limits=self._limits if limits else self._limits[:1],
        )
        self._configuration.integrate_inplace(velocity, dt)

    def solve(self, poses: dict[str, Pose], dt: float, iterations: int = 2) -> Float[np.ndarray, " 12"]:
        """Joint targets one control period on, as near to the poses as the limits let them come."""
        for limb, pose in poses.items():
            self._tasks[limb].set_target(_se3(pose))
        for _ in range(iterations):
            self._iterate(dt / iterations)
        q: Float[np.ndarray, " 12"] = self._configuration.q[self.joints].copy()
        return q

    def reach(self, poses: dict[str, Pose]) -> Float[np.ndarray, " 12"]:
        """Joint values with the tools at the poses, however long the way there."""
        for limb, pose in poses.items():
            self._tasks[limb].set_target(_se3(pose))
        for _ in range(_ITERATIONS):
            self._iterate(1.0, limits=False)
            if max(np.linalg.norm(t.compute_error(self._configuration)) for t in self._tasks.values()) < 1e-3:
                break
        q: Float[np.ndarray, " 12"] = self._configuration.q[self.joints].copy()
        return q


def _se3(pose: Pose) -> mink.SE3:
    return mink.SE3.from_rotation_and_translation(mink.SO3.from_matrix(pose.rot), pose.pos)

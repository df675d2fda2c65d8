"""The robot: two six-axis arms with parallel jaws, driven by the 20-d bimanual vector.

ARX-R5 proportions: yaw, three pitches, then yaw and roll at the wrist. Numbers of the vector:
per arm the tool's position in metres in the world (the midpoint between the arm bases, on the
table), its 6-D rotation, and the jaw opening in metres.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mink
import mujoco
import numpy as np
from jaxtyping import Float

from hostbot.sim.pose import DOWN, Pose, rot6d, rot_of_6d

LIMBS = ("left", "right")
MAX_OPENING = 0.09


@dataclass(frozen=True, kw_only=True)
class RobotConfig:
    """Sizes and limits of the arms."""

    base_y: float = 0.19
    shoulder_height: float = 0.10
    upper_arm: float = 0.28
    forearm: float = 0.28
    wrist: tuple[float, float] = (0.055, 0.035)
    tool_length: float = 0.13
    velocity_limits: tuple[float, ...] = (3.1, 3.1, 3.1, 4.5, 4.5, 6.0)
    joint_ranges: tuple[tuple[float, float], ...] = (
        (-2.6, 2.6),
        (-1.6, 2.0),
        (-1.6, 2.4),
        (-2.2, 2.2),
        (-1.5, 1.5),
        (-3.0, 3.0),
    )
    jaw_force: float = 14.0
    home: tuple[float, float, float] = (0.20, 0.22, 0.24)
    """Where the left tool waits; the right one mirrors it."""


def home_pose(config: RobotConfig, limb: str) -> Pose:
    """Where a tool waits between tasks."""
    x, y, z = config.home
    return Pose(np.array([x, y if limb == "left" else -y, z]), DOWN)


Rgba = tuple[float, float, float, float]
WHITE = (0.92, 0.92, 0.93, 1.0)
DARK = (0.16, 0.17, 0.19, 1.0)
ACCENT = {"left": (0.95, 0.55, 0.12, 1.0), "right": (0.15, 0.55, 0.85, 1.0)}


def add_robot(spec: mujoco.MjSpec, config: RobotConfig) -> None:
    """Both arms, with their actuators and wrist cameras."""
    for limb in LIMBS:
        _add_arm(spec, config, limb)


def _visual(body: mujoco.MjsBody, kind: mujoco.mjtGeom, rgba: tuple[float, ...], **kw: object) -> None:
    body.add_geom(type=kind, rgba=rgba, contype=0, conaffinity=0, group=1, mass=0.0, **kw)


def _add_arm(spec: mujoco.MjSpec, config: RobotConfig, limb: str) -> None:
    capsule, cylinder = mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_CYLINDER
    side = 1.0 if limb == "left" else -1.0
    base = spec.worldbody.add_body(name=f"{limb}_base", pos=[0, side * config.base_y, 0])
    _visual(base, cylinder, DARK, size=[0.055, 0.03, 0], pos=[0, 0, 0.03])
    w1, w2 = config.wrist
    # (offset from the parent's joint, axis, capsule drawn along the link, its colour)
    links: tuple[
        tuple[list[float], list[float], tuple[list[float], list[float], float] | None, Rgba], ...
    ] = (
        ([0, 0, 0.0], [0, 0, 1], ([0, 0, 0.03], [0, 0, config.shoulder_height], 0.042), WHITE),
        ([0, 0, config.shoulder_height], [0, 1, 0], ([0, 0, 0], [0, 0, config.upper_arm], 0.032), WHITE),
        ([0, 0, config.upper_arm], [0, 1, 0], ([0, 0, 0], [config.forearm, 0, 0], 0.028), WHITE),
        ([config.forearm, 0, 0], [0, 1, 0], ([0, 0, 0], [w1, 0, 0], 0.026), DARK),
        ([w1, 0, 0], [0, 0, 1], ([0, 0, 0], [w2, 0, 0], 0.024), ACCENT[limb]),
        ([w2, 0, 0], [1, 0, 0], None, DARK),
    )
    body = base
    for i, (offset, axis, drawn, rgba) in enumerate(links):
        body = body.add_body(name=f"{limb}_link{i + 1}", pos=offset, gravcomp=1.0)
        body.explicitinertial = True
        body.mass = (1.0, 1.0, 0.8, 0.3, 0.2, 0.3)[i]
        body.ipos = [0, 0, 0.05] if i < 2 else [0.05, 0, 0]
        body.inertia = [0.004, 0.004, 0.004]
        low, high = config.joint_ranges[i]
        body.add_joint(
            name=f"{limb}_j{i + 1}", axis=axis, range=[low, high], limited=True, armature=0.15, damping=2.0
        )
        actuator = spec.add_actuator(name=f"{limb}_j{i + 1}", target=f"{limb}_j{i + 1}")
        actuator.trntype = mujoco.mjtTrn.mjTRN_JOINT
        actuator.set_to_position(kp=(900, 900, 900, 500, 400, 300)[i], kv=(50, 50, 50, 30, 25, 20)[i])
        if drawn:
            _visual(body, capsule, rgba, fromto=[*drawn[0], *drawn[1]], size=[drawn[2], 0, 0])
    _add_gripper(spec, config, limb, body)


def _add_gripper(spec: mujoco.MjSpec, config: RobotConfig, limb: str, hand: mujoco.MjsBody) -> None:
    box = mujoco.mjtGeom.mjGEOM_BOX
    length = config.tool_length
    _visual(hand, box, DARK, size=[0.022, 0.05, 0.018], pos=[0.04, 0, 0])
    # Tool frame: z forward along the hand, y across the jaws.
    hand.add_site(
        name=f"{limb}_tool",
        pos=[length, 0, 0],
        quat=[0.70710678, 0, 0.70710678, 0],
        size=[0.004],
        rgba=[0, 0, 0, 0],
    )
    hand.add_camera(name=f"{limb}_wrist", pos=[0.03, 0, -0.08], fovy=72, xyaxes=[0, -1, 0, -0.42, 0, 0.907])
    for name, sign in (("a", 1.0), ("b", -1.0)):
        finger = hand.add_body(name=f"{limb}_finger_{name}", pos=[0, 0, 0], gravcomp=1.0)
        finger.add_joint(
            name=f"{limb}_jaw_{name}",
            type=mujoco.mjtJoint.mjJNT_SLIDE,
            axis=[0, sign, 0],
            range=[0, MAX_OPENING / 2],
            limited=True,
            armature=0.1,
            damping=4.0,
        )
        # The inner face touches the middle plane when the jaw is closed.
        finger.add_geom(
            name=f"{limb}_pad_{name}",
            type=box,
            size=[0.027, 0.005, 0.010],
            pos=[length - 0.022, sign * 0.005, 0],
            mass=0.06,
            rgba=ACCENT[limb],
            friction=[1.6, 0.02, 0.0005],
            condim=4,
            priority=1,
            solref=[0.012, 1.0],
            solimp=[0.95, 0.99, 0.001, 0.5, 2],
        )
        _visual(finger, box, DARK, size=[0.02, 0.006, 0.010], pos=[length - 0.065, sign * 0.007, 0])
        actuator = spec.add_actuator(name=f"{limb}_jaw_{name}", target=f"{limb}_jaw_{name}")
        actuator.trntype = mujoco.mjtTrn.mjTRN_JOINT
        actuator.set_to_position(kp=1500, kv=40)
        actuator.forcelimited = True
        actuator.forcerange = [-config.jaw_force, config.jaw_force]


@cache
def _kinematics(config: RobotConfig) -> mujoco.MjModel:
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    add_robot(spec, config)
    return spec.compile()


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


def _se3(pose: Pose) -> mink.SE3:
    return mink.SE3.from_rotation_and_translation(mink.SO3.from_matrix(pose.rot), pose.pos)


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

    def vector(self, data: mujoco.MjData) -> Float[np.ndarray, " 20"]:
        """The state, as a bimanual vector."""
        return pack(
            {limb: self.pose(data, limb) for limb in LIMBS},
            {limb: self.opening(data, limb) for limb in LIMBS},
        )

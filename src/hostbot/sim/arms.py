"""The arms' model: six axes each, parallel jaws, wrist cameras, built through ``MjSpec``.

ARX-R5 proportions: yaw, three pitches, then yaw and roll at the wrist. A tool's z axis is its approach,
its y axis the direction in which it closes.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from hostbot.sim.pose import DOWN, Pose

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

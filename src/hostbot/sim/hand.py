"""The human body: articulated hands on forearms, led by bimanual vectors like the robot.

The tool frame lies between the pads of the thumb and of the first two fingers. Every finger is two
hinges whose far link stays parallel to the approach, so that the pads meet flat; a thing is held by
their friction alone. The palm is led by a soft weld to a mocap body; the forearm is only drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from hostbot.sim.arms import LIMBS, MAX_OPENING
from hostbot.sim.pose import DOWN, Pose, axis_angle, quat_of, rotate
from hostbot.sim.robot import pack, unpack

PROXIMAL, DISTAL = 0.046, 0.044
KNUCKLE = 0.024
PAD = 0.006
TIP = 0.005
"""How far the pads reach beyond the tool point."""
FINGERS = (("thumb", 0.0, True), ("index", -0.011, True), ("middle", 0.011, True))
FOLLOWERS = (("ring", 0.029, 0.10), ("little", 0.045, 0.22))
"""Fingers that only move along: (name, place along the row, extra spread)."""


@dataclass(frozen=True, kw_only=True)
class HandConfig:
    """How a person's hands look, and which of them are there."""

    skin: tuple[float, float, float] = (0.80, 0.60, 0.48)
    sleeve: tuple[float, float, float] = (0.20, 0.30, 0.55)
    size: float = 1.0
    limbs: tuple[str, ...] = LIMBS
    grip_torque: float = 0.50
    """Newton metres at the thumb's first joint; the two fingers share the same."""


def add_hands(spec: mujoco.MjSpec, config: HandConfig) -> None:
    """The palms, fingers, forearms and their actuators."""
    for limb in config.limbs:
        _add_hand(spec, config, limb)


def _home(limb: str) -> Pose:
    return Pose(np.array([0.06, 0.22 if limb == "left" else -0.22, 0.17]), DOWN)


def _ghost(body: mujoco.MjsBody, kind: mujoco.mjtGeom, rgb: tuple[float, ...], **kw: object) -> None:
    body.add_geom(type=kind, rgba=[*rgb, 1.0], contype=0, conaffinity=0, mass=0.0, group=1, **kw)


def _add_hand(spec: mujoco.MjSpec, config: HandConfig, limb: str) -> None:
    capsule, ellipsoid = mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_ELLIPSOID
    start = _home(limb)
    quat = quat_of(start.rot)
    mocap = spec.worldbody.add_body(name=f"{limb}_lead", mocap=True, pos=start.pos, quat=quat)
    palm = spec.worldbody.add_body(name=f"{limb}_palm", pos=start.pos, quat=quat, gravcomp=1.0)
    palm.add_freejoint(name=f"{limb}_palm")
    palm.explicitinertial = True
    palm.mass, palm.inertia, palm.ipos = 0.8, [0.004, 0.004, 0.004], [0, 0, -0.05]
    weld = spec.add_equality(
        name=f"{limb}_lead", type=mujoco.mjtEq.mjEQ_WELD, objtype=mujoco.mjtObj.mjOBJ_BODY
    )
    weld.name1, weld.name2 = mocap.name, palm.name
    weld.data[:11] = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    weld.solref[:] = [0.012, 1.0]
    skin, s = config.skin, config.size
    side = 1.0 if limb == "right" else -1.0  # the thumb lies on the inner side
    top = -(PROXIMAL + DISTAL) + TIP
    _ghost(
        palm, ellipsoid, skin, size=[0.045 * s, 0.032 * s, 0.020 * s], pos=[0.018, -side * 0.006, top - 0.008]
    )
    _ghost(palm, ellipsoid, skin, size=[0.030 * s, 0.026 * s, 0.020 * s], pos=[0.052, 0, top - 0.022])
    base = palm.add_site(name=f"{limb}_wrist_point", pos=[0.072, 0, top - 0.034], size=[0.002] * 3)
    base.rgba = [0, 0, 0, 0]
    for name, x, _ in FINGERS:
        torque = config.grip_torque * (1.0 if name == "thumb" else 0.5)
        _add_finger(spec, config, limb, palm, name, x, side if name == "thumb" else -side, torque, True)
    # The first two fingers close as one: apart, they squeeze round things out sideways.
    twin = {"name1": f"{limb}_middle_1", "name2": f"{limb}_index_1"}
    both = spec.add_equality(type=mujoco.mjtEq.mjEQ_JOINT, objtype=mujoco.mjtObj.mjOBJ_JOINT, **twin)
    both.data[:5] = [0, 1, 0, 0, 0]
    for name, x, _ in FOLLOWERS:
        _add_finger(spec, config, limb, palm, name, x, -side, 0.05, False)
    fore = spec.worldbody.add_body(name=f"{limb}_forearm", mocap=True)
    _ghost(fore, capsule, skin, fromto=[0, 0, 0, 0, 0, 0.07], size=[0.024 * s, 0, 0])
    _ghost(fore, capsule, config.sleeve, fromto=[0, 0, 0.075, 0, 0, 0.34], size=[0.036 * s, 0, 0])


def _add_finger(
    spec: mujoco.MjSpec,
    config: HandConfig,
    limb: str,
    palm: mujoco.MjsBody,
    name: str,
    x: float,
    side: float,
    torque: float,
    touches: bool,
) -> None:
    capsule, box = mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_BOX
    thick = (0.0098 if name == "thumb" else 0.0084) * config.size
    full = f"{limb}_{name}"
    top = -(PROXIMAL + DISTAL) + TIP
    knuckle = palm.add_body(name=full, pos=[x, side * KNUCKLE, top], gravcomp=1.0)
    # A positive angle spreads the finger away from the middle.
    hinge = {"type": mujoco.mjtJoint.mjJNT_HINGE, "armature": 0.0006, "damping": 0.01}
    knuckle.add_joint(name=f"{full}_1", axis=[-side, 0, 0], range=[-0.8, 1.1], limited=True, **hinge)
    knuckle.add_geom(
        type=capsule, fromto=[0, 0, 0, 0, 0, PROXIMAL], size=[thick, 0, 0], rgba=[*config.skin, 1], mass=0.012,
        contype=0, conaffinity=0,
    )  # fmt: skip
    tip = knuckle.add_body(name=f"{full}_tip", pos=[0, 0, PROXIMAL], gravcomp=1.0)
    tip.add_joint(name=f"{full}_2", axis=[-side, 0, 0], range=[-1.2, 1.2], limited=True, **hinge)
    tip.add_geom(
        type=capsule, fromto=[0, 0, 0, 0, 0, DISTAL - thick], size=[thick * 0.92, 0, 0], mass=0.010,
        rgba=[*config.skin, 1], contype=0, conaffinity=0,
    )  # fmt: skip
    if touches:
        tip.add_geom(
            name=f"{full}_pad",
            type=box,
            size=[0.014 if name == "thumb" else 0.011, PAD, 0.020],
            pos=[0, 0, DISTAL - 0.020],
            rgba=[0, 0, 0, 0],
            mass=0.004,
            friction=[1.8, 0.03, 0.0005],
            condim=4,
            priority=1,
            solref=[0.012, 1.0],
            solimp=[0.95, 0.99, 0.001, 0.5, 2],
        )
    pair = spec.add_equality(
        name=full,
        type=mujoco.mjtEq.mjEQ_JOINT,
        objtype=mujoco.mjtObj.mjOBJ_JOINT,
        name1=f"{full}_2",
        name2=f"{full}_1",
    )
    pair.data[:5] = [0, -1, 0, 0, 0]
    actuator = spec.add_actuator(name=full, target=f"{full}_1", trntype=mujoco.mjtTrn.mjTRN_JOINT)
    actuator.set_to_position(kp=9.0, kv=0.15)
    actuator.forcelimited, actuator.forcerange = True, [-torque, torque]


def spread(opening: float) -> float:
    """Angle of the near links at which the pads are an opening apart."""
    return float(np.arcsin(np.clip((opening / 2 + PAD - KNUCKLE) / PROXIMAL, -0.7, 0.85)))


class Person:
    """The hands inside a compiled world."""

    def __init__(self, model: mujoco.MjModel, config: HandConfig) -> None:
        self.config, self.limbs = config, config.limbs
        self._palm = {limb: model.body(f"{limb}_palm").id for limb in self.limbs}
        self._free = {limb: model.joint(f"{limb}_palm").qposadr[0] for limb in self.limbs}
        self._lead = {limb: int(model.body_mocapid[model.body(f"{limb}_lead").id]) for limb in self.limbs}
        self._fore = {limb: int(model.body_mocapid[model.body(f"{limb}_forearm").id]) for limb in self.limbs}
        self._wrist = {limb: model.site(f"{limb}_wrist_point").id for limb in self.limbs}
        held = [name for name, _, touches in FINGERS if touches]
        self._joint = {limb: [model.joint(f"{limb}_{f}_1").qposadr[0] for f in held] for limb in self.limbs}
        self._motor = {limb: [model.actuator(f"{limb}_{f}").id for f in held] for limb in self.limbs}
        self._follow = {
            limb: [(model.actuator(f"{limb}_{f}").id, extra) for f, _, extra in FOLLOWERS]
            for limb in self.limbs
        }
        self._bend = {
            limb: [
                (*(int(model.joint(f"{limb}_{finger}_{link}").qposadr[0]) for link in (1, 2)), extra)
                for finger, extra in [(f, 0.0) for f in held] + [(f, extra) for f, _, extra in FOLLOWERS]
            ]
            for limb in self.limbs
        }
        self.hand_geoms = {
            limb: frozenset(int(model.geom(f"{limb}_{f}_pad").id) for f in held) for limb in self.limbs
        }
        self._target = {limb: _home(limb) for limb in self.limbs}
        self._from = dict(self._target)
        self._turn = {limb: axis_angle(np.eye(3)) for limb in self.limbs}

    def home_vector(self) -> Float[np.ndarray, " 20"]:
        """Hands at the near edge of the table, half open."""
        return pack({limb: _home(limb) for limb in LIMBS}, dict.fromkeys(LIMBS, 0.05))

    def reset(self, data: mujoco.MjData) -> None:
        """Hands at the near edge of the table."""
        self._target = {limb: _home(limb) for limb in self.limbs}
        self._from = dict(self._target)
        self._turn = {limb: axis_angle(np.eye(3)) for limb in self.limbs}
        for limb in self.limbs:
            self._set_fingers(data, limb, 0.05)
            data.qpos[self._joint[limb]] = spread(0.05)
        self.ramp(data, 1.0)

    def _set_fingers(self, data: mujoco.MjData, limb: str, opening: float) -> None:
        # A shut hand squeezes a little past closed, so that thin things are held firmly too.
        angle = spread(opening if opening > 0.004 else -0.016)
        data.ctrl[self._motor[limb]] = angle
        for motor, extra in self._follow[limb]:
            data.ctrl[motor] = angle + extra

    def _depth(self, data: mujoco.MjData, limb: str) -> float:
        """How much the pads draw back as the fingers spread."""
        return float(PROXIMAL * (1 - np.cos(data.qpos[self._joint[limb]]).mean()))

    def command(self, data: mujoco.MjData, vector: Float[np.ndarray, " 20"]) -> None:
        """Palm poses and finger angles for the next control period."""
        poses, openings = unpack(vector)
        for limb in self.limbs:
            lift = poses[limb] @ Pose(np.array([0.0, 0.0, self._depth(data, limb)]), np.eye(3))
            self._from[limb], self._target[limb] = self._target[limb], lift
            self._turn[limb] = axis_angle(lift.rot @ self._from[limb].rot.T)
            self._set_fingers(data, limb, openings[limb])

    def put(self, data: mujoco.MjData, vector: Float[np.ndarray, " 20"]) -> None:
        """Be there at once, moving nothing on the way; forearms are drawn once positions are worked out."""
        _, openings = unpack(vector)
        for limb in self.limbs:
            angle = spread(openings[limb])
            for near, far, extra in self._bend[limb]:
                data.qpos[near], data.qpos[far] = angle + extra, -angle - extra
        self.command(data, vector)  # how deep the palm is depends on the fingers
        self._from = dict(self._target)
        self.ramp(data, 0.0)
        for limb in self.limbs:
            first, lead = self._free[limb], self._lead[limb]
            data.qpos[first : first + 3] = data.mocap_pos[lead]
            data.qpos[first + 3 : first + 7] = data.mocap_quat[lead]

    def ramp(self, data: mujoco.MjData, fraction: float) -> None:
        """Lead the palms and draw the forearms part of the way through the period."""
        for limb in self.limbs:
            a, b = self._from[limb], self._target[limb]
            axis, angle = self._turn[limb]
            data.mocap_pos[self._lead[limb]] = a.pos + fraction * (b.pos - a.pos)
            data.mocap_quat[self._lead[limb]] = quat_of(rotate(axis, fraction * angle) @ a.rot)
        if fraction >= 1.0:
            self.draw_forearms(data)

    def draw_forearms(self, data: mujoco.MjData) -> None:
        """Forearms from where the wrists are towards the elbows."""
        for limb in self.limbs:
            wrist = data.site_xpos[self._wrist[limb]]
            elbow = np.array([-0.28, 0.26 if limb == "left" else -0.26, 0.30])
            z = (elbow - wrist) / max(1e-6, float(np.linalg.norm(elbow - wrist)))
            x = np.cross([0.0, 1.0, 0.0], z)
            x /= np.linalg.norm(x)
            data.mocap_pos[self._fore[limb]] = wrist
            data.mocap_quat[self._fore[limb]] = quat_of(np.stack([x, np.cross(z, x), z], axis=1))

    def pose(self, data: mujoco.MjData, limb: str) -> Pose:
        """Where the point between the pads is; an absent hand waits at home."""
        if limb not in self.limbs:
            return _home(limb)
        i = self._palm[limb]
        palm = Pose(data.xpos[i].copy(), data.xmat[i].reshape(3, 3).copy())
        return palm @ Pose(np.array([0.0, 0.0, -self._depth(data, limb)]), np.eye(3))

    def opening(self, data: mujoco.MjData, limb: str) -> float:
        """How far the pads are apart."""
        if limb not in self.limbs:
            return 0.05
        lateral = KNUCKLE + PROXIMAL * np.sin(data.qpos[self._joint[limb]])
        return float(np.clip(lateral[0] + lateral[1:].mean() - 2 * PAD, 0.0, MAX_OPENING))

    def vector(self, data: mujoco.MjData) -> Float[np.ndarray, " 20"]:
        """The state, as a bimanual vector."""
        return pack(
            {limb: self.pose(data, limb) for limb in LIMBS},
            {limb: self.opening(data, limb) for limb in LIMBS},
        )

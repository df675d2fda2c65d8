"""A running world: physics, what a script and a predicate may ask of it, and its mechanisms.

Mechanisms are the few states that are not positions: buttons remember that they were pressed
(and light up), stains remember that they were wiped (and fade).
"""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np
from jaxtyping import Float

from hostbot.sim.body import TIMESTEP, Body
from hostbot.sim.pose import Pose
from hostbot.sim.things import Shape

PRESS_DEPTH = 0.008
FALLEN = 0.05
"""Metres below the table's top."""


class World:
    """One compiled scene with a body in it."""

    def __init__(
        self,
        model: mujoco.MjModel,
        body: Body,
        shapes: Mapping[str, Shape],
        rate_hz: float,
        joints: Mapping[str, float],
    ) -> None:
        self.model, self.body, self.shapes = model, body, dict(shapes)
        self.data = mujoco.MjData(model)
        self.substeps = round(1 / (rate_hz * TIMESTEP))
        self.rate_hz = rate_hz
        self.pressed: list[str] = []
        self.wiped: dict[str, set[str]] = {}
        self._down: set[str] = set()
        self._bodies = {name: model.body(name).id for name in shapes}
        self._owner = self._owners()
        self._sites = {model.site(i).name: i for i in range(model.nsite)}
        self._parts = {model.body(i).name: i for i in range(model.nbody)}
        self._buttons = [n for n in shapes if f"{n}/cap" in self._parts]
        self._stains = {
            surface: [n for n in self._sites if n.startswith(f"{surface}/stain")]
            for surface in shapes
            if any(n.startswith(f"{surface}/stain") for n in self._sites)
        }
        self.ceiling = max([shape.height for shape in shapes.values()], default=0.0)
        self._reset(joints)

    def _owners(self) -> dict[int, str]:
        """Which thing each geom belongs to."""
        names = {index: name for name, index in self._bodies.items()}
        owner = {}
        for geom in range(self.model.ngeom):
            body = int(self.model.geom_bodyid[geom])
            while body and body not in names:
                body = int(self.model.body_parentid[body])
            if body:
                owner[geom] = names[body]
        return owner

    def _reset(self, joints: Mapping[str, float]) -> None:
        mujoco.mj_resetData(self.model, self.data)
        for name, value in joints.items():
            self.data.qpos[self.model.joint(name).qposadr[0]] = value
        self.body.reset(self.data)
        mujoco.mj_forward(self.model, self.data)
        home = self.body.home_vector()
        for _ in range(4):
            self.step(home)
        self.start = {name: self.pose(name) for name in self.shapes}
        joints_there = [self.model.joint(i).name for i in range(self.model.njnt)]
        self.start_joints = {name: self.joint(name) for name in joints_there if "/" in name}

    def step(self, vector: Float[np.ndarray, " 20"]) -> None:
        """One control period of physics towards a bimanual vector."""
        self.body.command(self.data, vector)
        for k in range(self.substeps):
            self.body.ramp(self.data, (k + 1) / self.substeps)
            mujoco.mj_step(self.model, self.data)
        self._contacts: set[tuple[str, str]] | None = None
        self._mechanisms()

    def refresh(self) -> None:
        """Work out where everything is after something was put elsewhere."""
        mujoco.mj_forward(self.model, self.data)
        self._contacts = None

    def pose(self, frame: str) -> Pose:
        """Where a thing, a part of it or one of its marked points is; ``thing/start`` is where a thing was at first."""
        data = self.data
        name, _, part = frame.rpartition("/")
        if part == "start":
            return self.start[name]
        if frame in self._sites:
            i = self._sites[frame]
            return Pose(data.site_xpos[i].copy(), data.site_xmat[i].reshape(3, 3).copy())
        if frame == "table":
            return Pose(np.zeros(3), np.eye(3))
        i = self._parts[frame]
        return Pose(data.xpos[i].copy(), data.xmat[i].reshape(3, 3).copy())

    def base(self, frame: str) -> Pose:
        """The levelled frame at a thing's underside, however a round thing has rolled; other frames levelled."""
        pose = self.pose(frame)
        if frame not in self.shapes or not self.shapes[frame].round:
            return pose.level()
        half = np.array([0.0, 0.0, self.shapes[frame].height / 2])
        return Pose(pose.pos + pose.rot @ half - half, pose.level().rot)

    def joint(self, name: str) -> float:
        """Position of a part's joint."""
        return float(self.data.qpos[self.model.joint(name).qposadr[0]])

    def joint_range(self, name: str) -> tuple[float, float]:
        """Limits of a part's joint."""
        low, high = self.model.joint(name).range
        return float(low), float(high)

    def speed(self, name: str) -> float:
        """How fast a thing moves, in metres a second."""
        return float(np.linalg.norm(self.data.cvel[self._bodies[name]][3:]))

    @property
    def contacts(self) -> set[tuple[str, str]]:
        """Pairs that touch now, of thing names and ``hand:limb``."""
        if self._contacts is None:
            self._contacts = set()
            for c in range(self.data.ncon):
                pair = [self._name_of(int(g)) for g in self.data.contact.geom[c]]
                self._contacts |= {(pair[0], pair[1]), (pair[1], pair[0])}
        return self._contacts

    def _name_of(self, geom: int) -> str:
        if geom in self._owner:
            return self._owner[geom]
        for limb, geoms in self.body.hand_geoms.items():
            if geom in geoms:
                return f"hand:{limb}"
        return "table"

    def touching(self, a: str, b: str) -> bool:
        """Whether two things are in contact."""
        return (a, b) in self.contacts

    def fallen(self, name: str) -> bool:
        """Whether a thing is no longer on the table, but below it."""
        return bool(self.pose(name).pos[2] < -FALLEN)

    def in_hand(self, name: str) -> bool:
        """Whether any hand touches a thing."""
        return any((name, f"hand:{limb}") in self.contacts for limb in self.body.limbs)

    def _mechanisms(self) -> None:
        for name in self._buttons:
            depth = self.joint(f"{name}/cap")
            if depth > PRESS_DEPTH and name not in self._down:
                self._down.add(name)
                self.pressed.append(name)
                cap = self._parts[f"{name}/cap"]
                geom = self.model.body_geomadr[cap]
                self.model.geom_rgba[geom, :3] = 0.35 + 0.65 * self.model.geom_rgba[geom, :3]
                self.model.geom_rgba[geom, :3] = np.minimum(1.0, self.model.geom_rgba[geom, :3] * 1.3)
            elif depth < 0.4 * PRESS_DEPTH:
                self._down.discard(name)
        for surface, stains in self._stains.items():
            self._wipe(surface, stains)

    def _wipe(self, surface: str, stains: list[str]) -> None:
        done = self.wiped.setdefault(surface, set())
        for name, shape in self.shapes.items():
            if "sponge" not in name or not (self.touching(name, surface) or self._low(name)):
                continue
            sponge = self.pose(name)
            for stain in stains:
                local = sponge.inverse() @ self.pose(stain)
                over = abs(local.pos[0]) < shape.sides[0] and abs(local.pos[1]) < shape.sides[1]
                if stain not in done and over and abs(local.pos[2]) < 0.012:
                    done.add(stain)
                    self.model.site_rgba[self._sites[stain], 3] = 0.0

    def _low(self, name: str) -> bool:
        return self.touching(name, "table")

    def stains(self, surface: str) -> int:
        """How many stains a surface has."""
        return len(self._stains[surface])

"""A visible hand that pushes a thing aside while the robot works: the disturbance of the robustness tests.

It is a mocap body with a fist that touches things like any other; where it goes is decided when it starts.
"""

from __future__ import annotations

import mujoco
import numpy as np

from hostbot.sim.pose import quat_of, rot_z
from hostbot.sim.task import Task
from hostbot.sim.world import World

AWAY = np.array([0.30, 0.0, -0.6])
HEIGHT = 0.026


def add_meddler(spec: mujoco.MjSpec) -> None:
    """The fist and its sleeve, under the table until they are called."""
    body = spec.worldbody.add_body(name="meddler", mocap=True, pos=AWAY)
    box, capsule = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CAPSULE
    skin, sleeve = [0.80, 0.60, 0.48, 1], [0.35, 0.15, 0.40, 1]
    body.add_geom(
        name="meddler", type=box, size=[0.026, 0.030, 0.022], rgba=skin, friction=[0.4, 0.01, 0.001]
    )
    ghost = {"contype": 0, "conaffinity": 0}
    for k in range(4):
        y = -0.021 + 0.014 * k
        body.add_geom(
            type=capsule, fromto=[-0.024, y, -0.012, -0.024, y, 0.014], size=[0.008, 0, 0], rgba=skin, **ghost
        )
    body.add_geom(type=capsule, fromto=[0.03, 0, 0.0, 0.09, 0, 0.04], size=[0.020, 0, 0], rgba=skin, **ghost)
    body.add_geom(
        type=capsule, fromto=[0.10, 0, 0.05, 0.36, 0, 0.16], size=[0.032, 0, 0], rgba=sleeve, **ghost
    )


class Meddler:
    """Pushes the first thing of a task a few centimetres along the table, once."""

    def __init__(self, task: Task, world: World, rng: np.random.Generator) -> None:
        self._world, self._rng = world, rng
        movable = [
            t.name
            for t in task.things
            if world.model.body(t.name).jntnum[0] == 1 and not world.shapes[t.name].flat
        ]
        self.target = movable[0] if movable else ""
        self._id = int(world.model.body_mocapid[world.model.body("meddler").id])
        self._start = int(rng.integers(4, 9))
        self._path: list[np.ndarray] = []

    def update(self, frame: int) -> None:
        """Move one control period on; called before physics."""
        if frame == self._start and self.target and not self._world.in_hand(self.target):
            self._path = self._plan()
        data = self._world.data
        if self._path:
            data.mocap_pos[self._id] = self._path.pop(0)
        else:
            data.mocap_pos[self._id] = AWAY

    def _plan(self) -> list[np.ndarray]:
        """From the far side of the table, down beyond the thing, pull it sideways, and away."""
        world = self._world
        thing, shape = world.pose(self.target).pos, world.shapes[self.target]
        side = -1.0 if thing[1] > 0 else 1.0
        push = np.array([0.0, side * self._rng.uniform(0.07, 0.10), 0.0])
        begin = thing - np.array([0.0, side * (shape.radius + 0.045), 0.0])
        begin[2] = HEIGHT
        data = world.data
        data.mocap_quat[self._id] = quat_of(rot_z(0.0))
        far, up = np.array([0.35, 0.0, 0.25]), np.array([0.0, 0.0, 0.10])
        stops = [begin + far, begin + up, begin, begin + push, begin + push + far]
        path: list[np.ndarray] = []
        for a, b, steps in zip(stops, stops[1:], (5, 3, 8, 5), strict=False):
            path += [a + (b - a) * (k + 1) / steps for k in range(steps)]
        return path

"""A scene before it is compiled: table, light, camera, and a task's things put down at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from hostbot.sim.body import TIMESTEP
from hostbot.sim.layout import Layout, place
from hostbot.sim.task import Task
from hostbot.sim.things import COLOURS, Builder, Look, Shape, Thing


@dataclass(frozen=True, kw_only=True)
class SceneConfig:
    """Looks of a scene that no task depends on."""

    table_rgb: tuple[float, float, float] = (0.72, 0.62, 0.50)
    floor_rgb: tuple[float, float, float] = (0.35, 0.37, 0.40)
    light: float = 1.0
    light_pos: tuple[float, float, float] = (0.35, 0.3, 1.4)
    light_rgb: tuple[float, float, float] = (1.0, 1.0, 1.0)
    camera_pos: tuple[float, float, float] = (0.80, 0.0, 0.66)
    camera_target: tuple[float, float, float] = (0.25, 0.0, 0.03)
    camera_fovy: float = 42.0
    hue: float = 0.04
    """How far a thing's colour wanders from its name's."""
    size: float = 0.06
    """How far a thing's size wanders from its kind's."""
    unseen: bool = False


def look_at(pos: Sequence[float], target: Sequence[float]) -> list[float]:
    """Camera axes (x then y) that look from one point at another, upright."""
    back = np.asarray(pos, float) - np.asarray(target, float)
    back /= np.linalg.norm(back)
    x = np.cross([0.0, 0.0, 1.0], back)
    x /= np.linalg.norm(x)
    return [*x, *np.cross(back, x)]


def base_spec(config: SceneConfig) -> mujoco.MjSpec:
    """Table, floor, light and the third-person camera, with the bench's physics settings."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    option = spec.option
    option.timestep = TIMESTEP
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    option.impratio = 2
    option.iterations = 30
    option.ls_iterations = 50
    visual = spec.visual
    visual.quality.offsamples = 0
    visual.quality.numslices, visual.quality.numstacks = 14, 7
    visual.global_.offwidth = visual.global_.offheight = 1024
    # Without a fixed extent the room's size would push the near plane past the jaws.
    spec.stat.extent = 1.0
    visual.map.znear, visual.map.zfar = 0.02, 6.0
    visual.headlight.ambient = [0.30 * config.light] * 3
    visual.headlight.diffuse = [0.25 * config.light] * 3
    visual.headlight.specular = [0, 0, 0]
    world = spec.worldbody
    plane = mujoco.mjtGeom.mjGEOM_BOX
    ghost = {"contype": 0, "conaffinity": 0}
    world.add_geom(type=plane, size=[3, 3, 0.01], pos=[0.3, 0, -0.7], rgba=[*config.floor_rgb, 1], **ghost)
    wall = [min(1.0, c * 1.25) for c in config.floor_rgb]
    world.add_geom(type=plane, size=[0.01, 3, 2], pos=[-1.3, 0, 1], rgba=[*wall, 1], **ghost)
    world.add_geom(type=plane, size=[0.01, 3, 2], pos=[2.2, 0, 1], rgba=[*wall, 1], **ghost)
    world.add_geom(
        name="table",
        type=plane,
        size=[0.36, 0.50, 0.02],
        pos=[0.24, 0, -0.02],
        rgba=[*config.table_rgb, 1],
        condim=3,
    )
    world.add_light(
        pos=list(config.light_pos),
        dir=list(np.array([0.28, 0, 0]) - np.array(config.light_pos)),
        diffuse=[0.65 * config.light * c for c in config.light_rgb],
        specular=[0.05] * 3,
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        castshadow=False,
    )
    world.add_camera(
        name="third_person",
        pos=list(config.camera_pos),
        fovy=config.camera_fovy,
        xyaxes=look_at(config.camera_pos, config.camera_target),
    )
    return spec


def look_of(thing: Thing, config: SceneConfig, rng: np.random.Generator) -> Look:
    """A random instance of a thing."""
    base = np.array(COLOURS[thing.colour])
    rgb = np.clip(base + rng.uniform(-config.hue, config.hue, 3), 0, 1)
    size = 1 + rng.uniform(-config.size, config.size)
    if config.unseen:
        size = float(rng.choice([0.90, 1.10])) + rng.uniform(-0.02, 0.02)
    return Look(
        rgb=(float(rgb[0]), float(rgb[1]), float(rgb[2])), size=float(size), unseen=config.unseen, rng=rng
    )


def add_things(
    spec: mujoco.MjSpec,
    task: Task,
    config: SceneConfig,
    layout: Layout,
    rng: np.random.Generator,
) -> dict[str, Shape]:
    """Build every thing of a task's scene and put it down at random."""
    shapes: dict[str, Shape] = {}
    bodies: dict[str, mujoco.MjsBody] = {}
    for thing in task.scene:
        bodies[thing.name] = spec.worldbody.add_body(name=thing.name)
        shapes[thing.name] = thing.kind(
            Builder(spec, bodies[thing.name], thing.name, look_of(thing, config, rng))
        )
    nested = {item: (host, height) for item, host, height in task.nested}
    near = [t.name for t in task.things if t.name not in task.across]
    loose = {name: shape for name, shape in shapes.items() if name not in nested}
    spots = place(loose, near, task.across, task.free, task.lane, layout, rng)
    for name, (x, y, yaw) in spots.items():
        bodies[name].pos = [x, y, 0.0005]
        bodies[name].quat = [np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
    for name, (host, height) in nested.items():
        yaw = rng.uniform(*shapes[name].yaws)
        x, y, _ = spots[host]
        bodies[name].pos = [x, y, 0.001 + height]
        bodies[name].quat = [np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
    return shapes

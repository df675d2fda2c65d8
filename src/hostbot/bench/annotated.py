"""Episodes with what the renderer knows of hands: postures and where they are in every picture, for training alone.

A person's motion costs physics, a picture of it hardly any: so each can be seen by several cameras at once, every one
in another room, with another skin and another light. Those are videos of people like any other; the first is the one
that ``hostbot sim record`` would make.

Legend: T steps, V views, H hands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from hostbot.align.posture import Annotations, posture
from hostbot.sim.arms import LIMBS
from hostbot.sim.demonstrator import VIEW, DemonstratorConfig, Recording, person_of, scene_of
from hostbot.sim.env import EnvConfig, SimEnv, seeded
from hostbot.sim.hand import HandConfig, Person
from hostbot.sim.render import Painter
from hostbot.sim.scene import SceneConfig, look_at
from hostbot.sim.task import Task
from hostbot.sim.world import World
from hostbot.types import Event, Frames


@dataclass(frozen=True, kw_only=True)
class Annotated:
    """One video."""

    views: dict[str, Frames]
    annotations: Annotations
    events: tuple[Event, ...]
    """Never learned from: they say how good an alignment is."""


class _Known:
    """What is noted of every step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hands: list[np.ndarray] = []
        self._touching: list[bool] = []
        self._things: list[np.ndarray] = []

    def note(self) -> None:
        world = self._world
        self._hands.append(world.body.vector(world.data))
        self._touching.append(any(world.in_hand(name) for name in world.shapes))
        self._things.append(np.stack([world.pose(name).pos for name in world.shapes]))

    def annotations(self, spots: Sequence[Float[np.ndarray, "V H 2"]]) -> Annotations:
        known = posture(
            np.stack(self._hands), np.array(self._touching), np.stack(self._things), self._world.rate_hz
        )
        return Annotations(posture=known, spots=np.stack(spots).astype(np.float32))


def spots_in(world: World, camera: str) -> Float[np.ndarray, "H 2"]:
    """Where hands are in a camera's picture: right and down, from -1 to 1 inside it.

    One that is not there is told to be where the other is, and so is the other in the picture of a camera on a wrist.
    """
    data, index = world.data, world.model.camera(camera).id
    rides = camera.removesuffix("_wrist")
    hands = [limb for limb in LIMBS if limb in world.body.limbs and rides in (limb, camera)]
    turn = data.cam_xmat[index].reshape(3, 3)
    found = []
    for limb in hands:
        x, y, z = turn.T @ (world.body.pose(data, limb).pos - data.cam_xpos[index])
        far = max(-z, 1e-3) * np.tan(np.radians(world.model.cam_fovy[index]) / 2)
        found.append((x / far, -y / far))
    return np.clip(np.array(found * (len(LIMBS) // len(found))), -1, 1)


def annotated_robot(task: Task, seed: int, config: EnvConfig, anyhow: bool = False) -> Annotated | None:
    """The expert's execution; None where it failed, unless it is wanted anyhow."""
    env = SimEnv(task, config)
    env.begin(seed)
    actor, world, done = env.expert(), env.world, False
    assert world is not None
    known, spots = _Known(world), []
    while not done and env.frame < config.seconds * config.rate_hz:
        env.expose()
        known.note()
        spots.append(np.stack([spots_in(world, view) for view in config.views]))
        done = env.advance(actor.act().astype(np.float32))
    frames = env.develop()
    env.close()
    views = {view: np.stack([frame[view] for frame in frames]) for view in config.views}
    events = tuple(event for event in actor.events if event.frame < len(frames))
    made = Annotated(views=views, annotations=known.annotations(spots), events=events)
    return made if env.success or anyhow else None


def annotated_human(
    task: Task, seed: int, config: DemonstratorConfig, cameras: int = 1, anyhow: bool = False
) -> list[Annotated]:
    """A person doing the task, seen by some cameras in a room each; none where they failed, unless wanted anyhow."""
    take = Recording(task, seed, config)
    painter = Painter(take.world.model, config.size, config.shadows)
    rng = seeded(task, seed, "other rooms")
    rooms = [_OtherRoom(take.world, rng) for _ in range(cameras - 1)]
    known, going = _Known(take.world), True
    spots: list[list[np.ndarray]] = [[] for _ in range(cameras)]
    while going:
        known.note()
        for seen, room in zip(spots, [None, *rooms], strict=True):
            with nullcontext() if room is None else room.entered():
                painter.expose(take.world.data, [VIEW])
                seen.append(spots_in(take.world, VIEW)[None])
        going = take.advance()
    pictures = [views[VIEW] for views in painter.develop()]
    painter.close()
    if not (take.judge.success or anyhow):
        return []
    events = tuple(event for event in take.actor.events if event.frame < len(spots[0]))
    return [
        Annotated(
            views={VIEW: np.stack(pictures[k::cameras])},
            annotations=known.annotations(spots[k]),
            events=events,
        )
        for k in range(cameras)
    ]


class _OtherRoom:
    """Another table, floor, light, camera, skin and sleeve, for single pictures; things stay what they are."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        person = world.body
        assert isinstance(person, Person)
        model, data = world.model, world.data
        room, looks = scene_of(rng), person_of(rng, person.limbs)
        camera, head = model.camera(VIEW).id, model.vis.headlight
        position, lamp = np.array(room.camera_pos), np.array(room.light_pos)
        x, y = np.array(look_at(room.camera_pos, room.camera_target)).reshape(2, 3)
        beam = np.array([0.28, 0, 0]) - lamp
        self._changes = [
            (data.cam_xpos[camera], position),
            (data.cam_xmat[camera], np.stack([x, y, np.cross(x, y)], 1).ravel()),
            (model.cam_fovy[camera : camera + 1], room.camera_fovy),
            (data.light_xpos[0], lamp),
            (data.light_xdir[0], beam / np.linalg.norm(beam)),
            (model.light_diffuse[0], 0.65 * room.light * np.array(room.light_rgb)),
            (head.ambient, 0.30 * room.light),
            (head.diffuse, 0.25 * room.light),
            *(
                (model.geom_rgba[index, :3], rgb)
                for index, rgb in _colours(model, person.config, room, looks)
            ),
        ]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """While this lasts the scene is drawn as that room's."""
        before = [part.copy() for part, _ in self._changes]
        for part, value in self._changes:
            part[:] = value
        try:
            yield
        finally:
            for (part, _), was in zip(self._changes, before, strict=True):
                part[:] = was


def _colours(
    model: mujoco.MjModel, was: HandConfig, room: SceneConfig, looks: HandConfig
) -> list[tuple[int, tuple[float, ...]]]:
    """Of geoms: skin and sleeves by the colours they had; floor, walls and table by where a scene has them."""
    table = model.geom("table").id
    wall = tuple(min(1.0, 1.25 * c) for c in room.floor_rgb)
    found: list[tuple[int, tuple[float, ...]]] = [(0, room.floor_rgb), (table, room.table_rgb)]
    found += [(index, wall) for index in range(1, table)]
    for index in range(table + 1, model.ngeom):
        if model.body(model.geom_bodyid[index]).name.startswith(LIMBS):
            for old, new in ((was.skin, looks.skin), (was.sleeve, looks.sleeve)):
                if np.allclose(model.geom_rgba[index, :3], old, atol=1e-4):
                    found.append((index, new))
    return found

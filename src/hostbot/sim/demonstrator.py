"""The human demonstrator: another person, table, light and camera for every video, and another pace."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import mujoco
import numpy as np

from hostbot.sim.actor import Actor, Pace
from hostbot.sim.env import Judge, seeded
from hostbot.sim.hand import HandConfig, Person, add_hands
from hostbot.sim.layout import Layout
from hostbot.sim.render import Painter
from hostbot.sim.scene import SceneConfig, add_things, base_spec
from hostbot.sim.task import Task
from hostbot.sim.world import World
from hostbot.types import BadInput, Demonstration, Event, Frames

VIEW = "third_person"
SKINS = (
    (0.96, 0.80, 0.69),
    (0.87, 0.67, 0.53),
    (0.76, 0.55, 0.40),
    (0.60, 0.41, 0.28),
    (0.43, 0.28, 0.19),
    (0.30, 0.20, 0.14),
)
TABLES = ((0.86, 0.86, 0.84), (0.55, 0.40, 0.27), (0.40, 0.44, 0.46), (0.70, 0.76, 0.72), (0.78, 0.68, 0.56))


@dataclass(frozen=True, kw_only=True)
class DemonstratorConfig:
    """Rate and picture size of human videos."""

    rate_hz: float = 16.0
    size: int = 96
    seconds: float = 40.0
    layout: Layout = field(default_factory=lambda: Layout(x=(0.18, 0.44), y=(-0.26, 0.26), cross=0.12))
    shadows: bool = False
    unseen: bool = False


def person_of(rng: np.random.Generator, limbs: tuple[str, ...]) -> HandConfig:
    """A random person: skin, sleeve and size."""
    skin = np.clip(np.array(SKINS[rng.integers(len(SKINS))]) + rng.uniform(-0.03, 0.03, 3), 0, 1)
    sleeve = rng.uniform(0.08, 0.85, 3)
    return HandConfig(
        skin=(float(skin[0]), float(skin[1]), float(skin[2])),
        sleeve=(float(sleeve[0]), float(sleeve[1]), float(sleeve[2])),
        size=float(rng.uniform(0.92, 1.10)),
        limbs=limbs,
    )


def scene_of(rng: np.random.Generator, unseen: bool = False) -> SceneConfig:
    """A random room: table, floor, light and where the phone stands."""
    table = np.clip(np.array(TABLES[rng.integers(len(TABLES))]) + rng.uniform(-0.05, 0.05, 3), 0, 1)
    floor = rng.uniform(0.15, 0.7, 3)
    azimuth, elevation = rng.uniform(-0.95, 0.95), rng.uniform(0.65, 1.05)
    distance = rng.uniform(0.80, 0.98)
    target = np.array([0.29, 0.0, 0.03]) + rng.uniform(-0.02, 0.02, 3)
    out = np.array(
        [np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), np.sin(elevation)]
    )
    camera = target + distance * out
    light = (float(rng.uniform(-0.3, 0.9)), float(rng.uniform(-0.8, 0.8)), float(rng.uniform(0.9, 1.6)))
    warm = float(rng.uniform(-0.12, 0.12))
    return SceneConfig(
        table_rgb=(float(table[0]), float(table[1]), float(table[2])),
        floor_rgb=(float(floor[0]), float(floor[1]), float(floor[2])),
        light=float(rng.uniform(0.8, 1.15)),
        light_pos=light,
        light_rgb=(1.0, 1.0 - abs(warm) / 2, 1.0 - max(0.0, warm)),
        camera_pos=(float(camera[0]), float(camera[1]), float(camera[2])),
        camera_target=(float(target[0]), float(target[1]), float(target[2])),
        camera_fovy=float(rng.uniform(40, 46)),
        hue=0.06,
        size=0.08,
        unseen=unseen,
    )


def add_clutter(spec: mujoco.MjSpec, rng: np.random.Generator) -> None:
    """A few things at the table's edges that nobody touches."""
    for _ in range(int(rng.integers(1, 5))):
        side = rng.choice([-1.0, 1.0])
        x, y = rng.uniform(0.10, 0.55), side * rng.uniform(0.36, 0.47)
        if rng.random() < 0.4:
            x, y = rng.uniform(0.54, 0.58), rng.uniform(-0.4, 0.4)
        height = float(rng.uniform(0.01, 0.06))
        kind = mujoco.mjtGeom.mjGEOM_BOX if rng.random() < 0.5 else mujoco.mjtGeom.mjGEOM_CYLINDER
        wide = float(rng.uniform(0.015, 0.035))
        size = (
            [wide, wide * rng.uniform(0.6, 1.4), height]
            if kind == mujoco.mjtGeom.mjGEOM_BOX
            else [wide, height, 0]
        )
        turn = rng.uniform(0, np.pi)
        spec.worldbody.add_geom(
            type=kind,
            size=size,
            pos=[x, y, height],
            quat=[np.cos(turn), 0, 0, np.sin(turn)],
            rgba=[*rng.uniform(0.1, 0.95, 3), 1],
            contype=0,
            conaffinity=0,
        )


def pace_of(rng: np.random.Generator) -> Pace:
    """A random temper: fast or slow, steady or not."""
    return Pace(
        speed=float(0.45 * np.exp(rng.normal(0, 0.28))),
        acceleration=float(rng.uniform(1.2, 2.6)),
        turn=3.0,
        dwell=float(rng.uniform(0.8, 2.0)),
        pause=float(rng.uniform(0.05, 0.35)),
        pause_seconds=(0.25, 1.3),
        detour=float(rng.uniform(0.0, 0.035)),
        feint=float(rng.choice([0.0, 0.0, 0.35])),
        wander=0.35,
    )


def human_world(task: Task, rng: np.random.Generator, config: DemonstratorConfig) -> tuple[World, str]:
    """Somebody's own table with the task's things on it, not yet done, and the hand that will act."""
    main = str(rng.choice(["left", "right"], p=[0.25, 0.75]))
    person = person_of(rng, ("left", "right") if task.hands == 2 else (main,))
    scene = scene_of(rng, config.unseen)
    for _ in range(20):
        spec = base_spec(scene)
        add_clutter(spec, rng)
        add_hands(spec, person)
        shapes = add_things(spec, task, scene, replace(config.layout, main=main), rng)
        model = spec.compile()
        world = World(model, Person(model, person), shapes, config.rate_hz, dict(task.joints))
        if not task.success.holds(world):
            return world, main
    raise BadInput(f"task {task.name!r} is already done in every scene that was tried")


class Recording:
    """A human doing a task in a world of their own, frame by frame."""

    def __init__(self, task: Task, seed: int, config: DemonstratorConfig | None = None) -> None:
        self.task, self.config = task, config or DemonstratorConfig()
        rng = seeded(task, seed, "human scene")
        self.world, main = human_world(task, rng, self.config)
        self.actor = Actor(task, self.world, main, pace_of(rng), rng)
        self.judge = Judge(task, self.config.rate_hz)
        self.instruction = str(rng.choice(task.instructions))
        self._tail = int(rng.integers(0, 8))
        self._painter: Painter | None = None

    def picture(self) -> np.ndarray:
        """What the phone sees now."""
        return self._paints().draw(self.world.data, [VIEW])[VIEW]

    def expose(self) -> None:
        """Draw what the phone sees now, to be fetched by :meth:`develop`."""
        self._paints().expose(self.world.data, [VIEW])

    def develop(self) -> Frames:
        """All that was exposed."""
        return np.stack([views[VIEW] for views in self._paints().develop()])

    def _paints(self) -> Painter:
        if self._painter is None:
            self._painter = Painter(self.world.model, self.config.size, self.config.shadows)
        return self._painter

    def advance(self) -> bool:
        """One control period; whether the recording goes on."""
        self.world.step(self.actor.act())
        done = self.judge.update(self.world)
        self._tail -= int(done and self._resting())
        limit = self.config.seconds * self.config.rate_hz
        return self._tail >= 0 and self.actor.frame < limit and not (self.actor.finished and self._idle())

    def _resting(self) -> bool:
        return self.actor.finished or any(
            event.name in ("hold", "retreat") for event in self.actor.events[-1:]
        )

    def _idle(self) -> bool:
        self._waited = getattr(self, "_waited", 0) + 1
        return self._waited > 16

    def close(self) -> None:
        """Give the pictures' memory back."""
        if self._painter is not None:
            self._painter.close()


def demonstrate(
    task: Task, seed: int, config: DemonstratorConfig | None = None, pictures: bool = True
) -> tuple[Demonstration | None, tuple[Event, ...], bool]:
    """One human video of a task, its events, and whether the predicate was fulfilled."""
    take = Recording(task, seed, config)
    going = True
    while going:
        if pictures:
            take.expose()
        going = take.advance()
    video = take.develop() if pictures else None
    take.close()
    events = tuple(take.actor.events)
    if video is None:
        return None, events, take.judge.success
    demo = Demonstration(
        views={VIEW: video}, fps=take.config.rate_hz, instruction=take.instruction, events=events
    )
    return demo, events, take.judge.success

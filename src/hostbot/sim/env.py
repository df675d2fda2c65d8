"""The robot's environment: gymnasium outside, ``hostbot.types.Observation`` for policies.

An action is the 20-d bimanual vector (``hostbot.types.bimanual``): absolute tool poses in the robot's
base frame and jaw openings in metres, sixteen times a second.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from hostbot.sim.actor import Actor, Pace
from hostbot.sim.arms import LIMBS, MAX_OPENING, RobotConfig, add_robot
from hostbot.sim.layout import Layout, reaches
from hostbot.sim.meddler import Meddler, add_meddler
from hostbot.sim.pose import Pose, Vec3, rotate
from hostbot.sim.predicates import Undisturbed
from hostbot.sim.render import Painter
from hostbot.sim.robot import Robot, pack, unpack
from hostbot.sim.scene import SceneConfig, add_things, base_spec
from hostbot.sim.task import Task
from hostbot.sim.world import World
from hostbot.types import BadInput, Embodiment, Image, Observation, bimanual

VIEWS = ("left_wrist", "right_wrist", "third_person")
HOLD_SECONDS = 0.5
CALM_SPEED = 0.8
"""Metres a second: faster hands are flailing. The expert's stay below, random actions are hardly ever so slow."""

_ASTRAY = 0.025
"""Metres by which a straying expert is led off its way, along each axis."""
_VAIN = 0.3
"""How often it closes its jaws beside a thing before it takes it."""
_ELSEWHERE = ((0.16, -0.06, 0.15), (0.38, 0.26, 0.28))
"""Where a displaced hand may be: two corners, on the left arm's side."""
_TURN = 0.5
"""Radians by which it may be turned."""
_ASIDE, _ABOVE = 0.04, (0.03, 0.15)
"""Metres from a thing at which a hand that came for it in vain may be, across the table and above all that is near."""
_OFF = 0.005
"""Metres by which a hand may be beside where it was put."""
_CLOSE = 0.10
"""Metres across the table within which something is near."""


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """Rate, picture size and looks of the robot's environment."""

    rate_hz: float = 16.0
    size: int = 96
    seconds: float = 14.0
    """An episode is cut off here."""
    views: tuple[str, ...] = VIEWS
    shadows: bool = False
    disturb: bool = False
    """A hand reaches in and pushes a thing aside while the robot works."""
    robot: RobotConfig = field(default_factory=RobotConfig)
    scene: SceneConfig = field(default_factory=SceneConfig)
    layout: Layout = field(default_factory=Layout)


def seeded(task: Task, seed: int, what: str) -> np.random.Generator:
    """A generator that depends on the task, the seed and what it is for."""
    return np.random.default_rng([seed, zlib.crc32(task.name.encode()), zlib.crc32(what.encode())])


def robot_world(task: Task, seed: int, config: EnvConfig) -> tuple[World, str]:
    """A fresh world for a task, not yet done, and the limb that is to act in it."""
    rng = seeded(task, seed, "robot scene")
    for _ in range(20):
        main = str(rng.choice(["left", "right"]))
        spec = base_spec(config.scene)
        add_robot(spec, config.robot)
        if config.disturb:
            add_meddler(spec)
        shapes = add_things(spec, task, config.scene, replace(config.layout, main=main), rng)
        model = spec.compile()
        body = Robot(model, config.robot, 1 / config.rate_hz)
        world = World(model, body, shapes, config.rate_hz, dict(task.joints))
        if not task.success.holds(world):
            return world, _handier(task, world, config.layout, main)
    raise BadInput(f"task {task.name!r} is already done in every scene that was tried")


def _handier(task: Task, world: World, layout: Layout, drawn: str) -> str:
    """The hand on whose side the first thing stands, if it can do the whole task, else the one the scene was made for.

    Where both can, whoever watches must be able to tell which one will act: nothing could be learned from a coin.
    """
    if task.hands != 1 or task.across:
        return drawn
    spots = {
        thing.name: (*world.pose(thing.name).pos[:2], world.pose(thing.name).yaw) for thing in task.scene
    }
    side = "left" if spots[task.things[0].name][1] > 0 else "right"
    near = [thing.name for thing in task.things]
    return side if reaches(side, spots, world.shapes, near, task.free, layout) else drawn


def _elsewhere(home: Pose, stray: float, rng: np.random.Generator) -> Pose:
    """Somewhere above a hand's side of the table; the same places whether it will act or not."""
    place = rng.uniform(*_ELSEWHERE) * [1.0, np.copysign(1.0, home.pos[1]), 1.0]
    turn = rotate(np.array([0.0, 0.0, 1.0]), stray * rng.uniform(-_TURN, _TURN))
    return Pose(home.pos + min(stray, 1.0) * (place - home.pos), turn @ home.rot)


class Judge:
    """Asks that a task's predicate hold for half a second without a break.

    Meanwhile the rest of the scene must be undisturbed and no hand may be flailing.
    """

    def __init__(self, task: Task, rate_hz: float) -> None:
        self._success, self._rate_hz = task.success, rate_hz
        self._need = round(HOLD_SECONDS * rate_hz)
        self._tidy = Undisturbed(tuple(thing.name for thing in task.foils))
        self._hands: dict[str, Vec3] = {}
        self._count = 0
        self.success = False

    def update(self, world: World) -> bool:
        """Look at the world after a step; whether the task is done."""
        holds = self._calm(world) and self._success.holds(world) and self._tidy.holds(world)
        self._count = self._count + 1 if holds else 0
        self.success = self.success or self._count >= self._need
        return self.success

    def _calm(self, world: World) -> bool:
        before, self._hands = self._hands, {n: world.body.pose(world.data, n).pos for n in world.body.limbs}
        moved = [np.linalg.norm(self._hands[name] - before[name]) for name in before]
        return bool(max(moved, default=0.0) * self._rate_hz < CALM_SPEED)


class SimEnv(gymnasium.Env[dict[str, Any], Float[np.ndarray, " 20"]]):
    """One task as a gymnasium environment: reward 1 and the end when it is done."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 16}  # noqa: RUF012 (gymnasium's own convention)
    render_mode = "rgb_array"

    def __init__(self, task: Task, config: EnvConfig | None = None) -> None:
        self.task, self.config = task, config or EnvConfig()
        size, c = self.config.size, self.config
        if 256 % c.rate_hz:
            raise BadInput(f"rate {c.rate_hz} Hz does not divide the physics rate of 256 Hz")
        pictures = {view: spaces.Box(0, 255, (size, size, 3), np.uint8) for view in c.views}
        state = spaces.Box(-np.inf, np.inf, (20,), np.float32)
        self.observation_space = spaces.Dict({**pictures, "state": state})
        arm = [[0.0, -0.35, 0.0, *[-1.0] * 6, 0.0], [0.5, 0.35, 0.35, *[1.0] * 6, MAX_OPENING]]
        low, high = (np.tile(np.array(bound, np.float32), 2) for bound in arm)
        self.action_space = spaces.Box(low, high, dtype=np.float32)
        self.world: World | None = None
        self._painter: Painter | None = None
        self._meddler: Meddler | None = None
        self._seed = 0

    @property
    def embodiment(self) -> Embodiment:
        """What the action vector means."""
        return bimanual(self.config.rate_hz, self.config.views)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A new scene; the same seed gives the same scene, frame for frame."""
        super().reset(seed=seed)
        self.begin(seed)
        return self._observe(), {"instruction": self.instruction, "task": self.task.name}

    def begin(self, seed: int | None) -> None:
        """A new scene that nobody looks at yet."""
        self._seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self.close()
        self.world, self.main = robot_world(self.task, self._seed, self.config)
        self._judge = Judge(self.task, self.config.rate_hz)
        self.frame = 0
        self._meddler = None
        if self.config.disturb:
            self._meddler = Meddler(self.task, self.world, seeded(self.task, self._seed, "meddler"))
        wording = seeded(self.task, self._seed, "wording")
        self.instruction = str(wording.choice(self.task.instructions))

    def step(
        self, action: Float[np.ndarray, " 20"]
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One control period."""
        self.advance(action)
        done = self._judge.success
        cut = self.frame >= self.config.seconds * self.config.rate_hz
        return self._observe(), float(done), done, bool(cut and not done), {"success": done}

    def advance(self, action: Float[np.ndarray, " 20"]) -> bool:
        """Physics and judgement without pictures; whether the task is done."""
        world = self._world()
        vector = np.asarray(action, float)
        if vector.shape != (20,) or not np.isfinite(vector).all():
            raise BadInput(f"an action is 20 finite numbers, got shape {vector.shape}")
        if self._meddler is not None:
            self._meddler.update(self.frame)
        world.step(vector)
        self.frame += 1
        return self._judge.update(world)

    def _world(self) -> World:
        if self.world is None:
            raise BadInput("call reset before step")
        return self.world

    def pictures(self) -> dict[str, Image]:
        """All views now."""
        return self._paints().draw(self._world().data, self.config.views)

    def expose(self) -> None:
        """Draw all views now, to be fetched by :meth:`develop`: faster for who need not look before the end."""
        self._paints().expose(self._world().data, self.config.views)

    def develop(self) -> list[dict[str, Image]]:
        """All views of every moment that was exposed."""
        return self._paints().develop()

    def _paints(self) -> Painter:
        if self._painter is None:
            self._painter = Painter(self._world().model, self.config.size, self.config.shadows)
        return self._painter

    def state(self) -> Float[np.ndarray, " 20"]:
        """The 20-d state now."""
        world = self._world()
        return world.body.vector(world.data).astype(np.float32)

    @property
    def success(self) -> bool:
        """Whether the task has been done."""
        return self._judge.success

    def observe(self) -> Observation:
        """What a policy gets."""
        return Observation(views=self.pictures(), state=self.state(), instruction=self.instruction)

    def _observe(self) -> dict[str, Any]:
        return {**(self.pictures() if self.config.views else {}), "state": self.state()}

    def render(self) -> Image:
        """All views side by side."""
        return np.concatenate(list(self.pictures().values()), axis=1)

    def expert(self, task: Task | None = None, stray: float = 0.0, steady: bool = False) -> Actor:
        """The scripted expert of this task, or of another one that the scene affords.

        One that strays is led off its way now and then, by centimetres where ``stray`` is 1. A steady one always has
        the same pace: which one it has does not show in any picture, so nobody could learn it.
        """
        rng = seeded(self.task, self._seed, "expert")
        hurry = float(np.exp(rng.normal(0, 0.12)))
        pace = Pace(
            speed=0.50 if steady else 0.50 * hurry,
            wander=0.0 if steady else 0.08,
            astray=_ASTRAY * stray,
            vain=_VAIN * min(stray, 1.0),
        )
        return Actor(task or self.task, self._world(), self.main, pace, rng)

    def lead(self, actions: Float[np.ndarray, "N 20"]) -> Actor | None:
        """Let somebody else act first, then the expert takes over; None where there is nothing left to do."""
        for action in actions:
            self.advance(action)
        return self.take_over(actions[-1] if len(actions) else self.state())

    def take_over(self, told: Float[np.ndarray, " 20"]) -> Actor | None:
        """The expert from here on, where hands were last told to be somewhere; None where nothing is left to do.

        It goes on with the hand that holds something of the task, if one does, and time begins anew.
        """
        if self.success or self.task.success.holds(self._world()):
            return None
        self.frame = 0
        held = self.held()
        if len(held) == 1 and self.task.hands == 1:
            (self.main,) = held
        actor = self.expert(steady=True)
        actor.take_over(pack(unpack(self.state())[0], unpack(told)[1]), held)
        return actor

    def held(self) -> dict[str, str]:
        """What each limb holds of the task's things."""
        world = self._world()
        body = world.body
        assert isinstance(body, Robot)
        return {
            limb: thing.name
            for limb in LIMBS
            for thing in self.task.things
            if (thing.name, f"hand:{limb}") in world.contacts and body.squeezes(world.data, limb)
        }

    def displace(self, stray: float) -> Float[np.ndarray, " 20"]:
        """Put hands somewhere else above the table before anything is done; what asks for them to stay there.

        Each hand is moved in half of the scenes, whether it will act or not: where a hand is must not tell who acts.
        Half of those that are moved hang above one of the things, and half are closed: as after a grasp that failed,
        which an expert never shows.
        """
        rng = seeded(self.task, self._seed, "displace")
        world = self._world()
        home, openings = unpack(world.body.home_vector())
        there: dict[str, Pose] = {}
        for limb in LIMBS:
            if rng.random() < 0.5:
                in_vain, closed = rng.random(2) < 0.5
                there[limb] = _elsewhere(home[limb], stray, rng)
                above = self._above_something(there[limb], stray, rng)
                if in_vain and self._reaches(home | {limb: above}, limb):
                    there[limb] = above
                if closed:
                    openings[limb] = 0.0
        vector = pack(home | there, openings)
        self.put(vector)
        return vector

    def _reaches(self, poses: dict[str, Pose], limb: str) -> bool:
        """Whether a hand gets where it is put; afterwards both wait at home."""
        world = self._world()
        self.put(pack(poses, dict.fromkeys(LIMBS, 0.0)))
        there = bool(np.linalg.norm(world.body.pose(world.data, limb).pos - poses[limb].pos) < _OFF)
        world.body.reset(world.data)
        return there

    def _above_something(self, hand: Pose, stray: float, rng: np.random.Generator) -> Pose:
        """A hand above one of the things on its side; where it was if there is none."""
        world, side = self._world(), np.copysign(1.0, hand.pos[1])
        places = {name: world.pose(name).pos for name in world.shapes}
        near = [name for name, place in places.items() if side * place[1] > -_CLOSE / 2]
        if not near:
            return hand
        across = places[str(rng.choice(near))][:2] + stray * rng.normal(0, _ASIDE, 2)
        tops = [
            place[2] + world.shapes[name].height
            for name, place in places.items()
            if np.linalg.norm(place[:2] - across) < _CLOSE + _ASIDE
        ]
        return Pose(np.array([*across, max(tops, default=0.0) + rng.uniform(*_ABOVE)]), hand.rot)

    def put(self, vector: Float[np.ndarray, " 20"]) -> None:
        """Hands where a vector says, at once: they move nothing on the way."""
        world = self._world()
        assert isinstance(world.body, Robot)
        world.body.put(world.data, vector)
        world.refresh()

    def close(self) -> None:
        """Give the pictures' memory back."""
        if self._painter is not None:
            self._painter.close()
            self._painter = None

"""One interpreter of scripts for both bodies: the robot's expert and the human demonstrator.

It reads the simulator's state, follows each keyframe with bounded speed and acceleration, repeats a
move that failed, and notes when every event happened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from hostbot.sim.keys import Goal, Key, closing_yaw, resolve, tool_rotation
from hostbot.sim.moves.base import Move
from hostbot.sim.moves.hold import Pick
from hostbot.sim.pose import Pose, axis_angle, rotate, towards
from hostbot.sim.robot import pack, unpack
from hostbot.sim.task import Task
from hostbot.sim.world import World
from hostbot.types import AGAIN, ASTRAY, BACK, PASSING, Event

_LED = ("approach", "contact", "carry", "lower")
"""Ways on which hands may be led astray."""
_LED_FRAMES, _LED_APART = (4, 7), (16, 40)
"""For how many frames that is, and how long they then find their way undisturbed."""
_LED_TURN = 10.0
"""Radians by which they are turned, at most, for every metre."""
_VAIN_ASIDE, _VAIN_ABOVE = 0.025, (0.0, 0.05)
"""Metres by which a grasp is in vain, along each side, and how far up."""
_VAIN_AWAY, _VAIN_UP = 0.06, (0.03, 0.12)
"""Metres that a hand then goes on without what it came for."""
_VAIN_SECONDS = 0.3
_BESIDE, _BESIDE_SHARE = (0.06, 0.12), 0.4
"""Metres by which something is put down beside its place, and how often that is beside grasps in vain."""
_LED_FROM = 0.03
"""Metres that must be left to go: jaws that are around something already would push it."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How a body moves: speeds, and for a person the wavering between them."""

    speed: float = 0.50
    """Metres a second between keyframes."""
    acceleration: float = 2.2
    turn: float = 3.2
    """Radians a second."""
    dwell: float = 1.0
    """Factor on the time spent at keyframes."""
    pause: float = 0.0
    """Chance of a stop at a keyframe."""
    pause_seconds: tuple[float, float] = (0.2, 0.8)
    detour: float = 0.0
    """Sideways swing of free motion, in metres."""
    astray: float = 0.0
    """How far hands are led off their way now and then, in metres; from there they come back by themselves."""
    vain: float = 0.0
    """Chance of a grasp that closes beside the thing before the one that takes it."""
    feint: float = 0.0
    """Chance to reach for a thing, draw back and reach again."""
    wander: float = 0.0
    """How much the speed of each keyframe varies, as a factor of exp(normal)."""
    tries: int = 3


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Something that a script brings about."""

    event: str
    vector: Float[np.ndarray, " 20"]
    """Where the hands are then."""
    carried: Mapping[str, str]
    """What each limb that carries something carries."""


class Dropped(Exception):
    """What was to be carried has slipped from the hand, or what hands go for has fallen off the table."""


class Misplaced(Exception):
    """What was carried lies beside where it was to be put."""


class Actor:
    """Carries out a task's script in a world, one bimanual vector at a time."""

    def __init__(
        self, task: Task, world: World, main: str, pace: Pace, rng: np.random.Generator, rounds: int = 3
    ) -> None:
        self.task, self.world, self.pace, self.rng = task, world, pace, rng
        self._roles = {"main": main, "other": "right" if main == "left" else "left"}
        self._home, self._home_open = unpack(world.body.home_vector())
        self._command = dict(self._home)
        self._openings = dict(self._home_open)
        self._speed = 0.0
        self._rounds = rounds
        self._idle = ""
        self._led: list[tuple[np.ndarray, np.ndarray]] = []
        """Steps and turns by which hands are still to be led astray."""
        self._misplaced = False
        self._held: Mapping[str, str] | None = None
        """What each limb holds of somebody else's work, until it is gone on with."""
        self._led_next = int(rng.integers(_LED_APART[1] - _LED_APART[0])) if pace.astray else 0
        self.frame = 0
        self.events: list[Event] = []
        self.finished = False
        self._steps = self._run()

    def limb(self, role: str) -> str:
        """The limb that plays a role."""
        return self._roles[role]

    def act(self) -> Float[np.ndarray, " 20"]:
        """The next vector; the waiting pose once the script is over."""
        self._tidy()
        vector = next(self._steps)
        self.frame += 1
        return vector

    def stand(self, vector: Float[np.ndarray, " 20"]) -> None:
        """Begin where the hands are now, instead of in the waiting pose; one with nothing to do goes back there."""
        self._command, self._openings = unpack(vector)
        self._idle = self.limb("other") if self.task.hands == 1 else ""

    def take_over(self, vector: Float[np.ndarray, " 20"], held: Mapping[str, str]) -> None:
        """Go on with what somebody else has begun, from where the hands are and with what they hold.

        Moves that have been made already are noted as of now.
        """
        self.stand(vector)
        self._held = held

    def swerve(self, away: Float[np.ndarray, " 3"]) -> Iterator[Float[np.ndarray, " 20"]]:
        """Go somewhere else than the script wants, with all hands that have left their waiting pose."""
        yield from self._approach(_moved(self._command, away, self._busy()), 1.0, 0.01)

    def grip(self, opening: float, seconds: float) -> Iterator[Float[np.ndarray, " 20"]]:
        """Open or close the jaws of those hands, whatever the script wants."""
        self._openings |= dict.fromkeys(self._busy(), opening)
        yield from self._stay(seconds)

    def _busy(self) -> list[str]:
        return [self.limb(role) for role in ("main", "other") if self._moved(role)]

    def _tidy(self) -> None:
        """A step of the idle hand to its waiting pose."""
        if self._idle:
            begin, end = self._command[self._idle], self._home[self._idle]
            _, angle = axis_angle(end.rot @ begin.rot.T)
            steps = max(
                float(np.linalg.norm(end.pos - begin.pos)) / self.pace.speed, abs(angle) / self.pace.turn
            )
            share = 1 / max(1.0, steps * self.world.rate_hz)
            self._command[self._idle] = towards(begin, end, share)
            self._openings[self._idle] = self._home_open[self._idle]

    def moments(self) -> Iterator[Moment]:
        """Where the script wants the hands when something happens, as the world is now.

        Whoever asks puts the hands there, and what they carry, before asking for the next.
        """
        for move in self.task.script:
            unless = getattr(move, "unless", None)
            if unless is not None and unless.holds(self.world):
                continue
            carried: dict[str, str] = {}
            for key in move.keys(self):
                for role, goal in key.goals.items():
                    limb = self.limb(role)
                    self._command[limb] = self._target(goal, limb, self._command[limb])
                    carried |= {limb: goal.carry} if goal.carry else {}
                for role, opening in key.grips.items():
                    self._openings[self.limb(role)] = opening
                if key.event and key.event not in PASSING:
                    yield Moment(event=key.event, vector=self._vector(), carried=carried)
                    carried = {}

    def _run(self) -> Iterator[Float[np.ndarray, " 20"]]:
        for attempt in range(self._rounds):
            if attempt:
                self._note(AGAIN)
            try:
                yield from self._script()
            except Misplaced:
                continue
            except Dropped:
                pass
            yield from self._go_home()
            for _ in range(10):
                if self.task.success.holds(self.world):
                    break
                yield self._vector()
            if self.task.success.holds(self.world):
                break
        self.finished = True
        while True:
            yield self._vector()

    def _script(self) -> Iterator[Float[np.ndarray, " 20"]]:
        held, self._held = self._held, None
        taken = self._last_taken(held or {})
        for number, move in enumerate(self.task.script):
            unless = getattr(move, "unless", None)
            needless = unless is not None and unless.holds(self.world)
            if held is not None and (needless or number <= taken or self._is_made(move)):
                for key in move.keys(self):
                    self._note(key.event)
                continue
            if needless:
                continue
            held = None
            for attempt in range(self.pace.tries):
                keys = move.keys(self)
                takes = any(key.event == "grasp" for key in keys)
                if takes and attempt == 0 and self.pace.vain and self.rng.random() < self.pace.vain:
                    yield from self._grasp_in_vain(keys, getattr(move, "item", ""))
                    keys = move.keys(self)
                if self._misplaces(keys):
                    yield from self._put_beside(keys)
                    raise Misplaced
                for key in keys:
                    yield from self._follow(key)
                if move.achieved(self):
                    break

    def _last_taken(self, held: Mapping[str, str]) -> int:
        """Number of the last move that takes what is held; those before it must have been made."""
        script = self.task.script
        takes = {
            n: (self.limb(move.role), move.item) for n, move in enumerate(script) if isinstance(move, Pick)
        }
        return max((n for n, taken in takes.items() if taken in held.items()), default=-1)

    def _is_made(self, move: Move) -> bool:
        """Whether somebody else has made a move already, as far as that shows."""
        return getattr(move, "lasts", False) and move.achieved(self)

    def _grasp_in_vain(self, keys: Sequence[Key], item: str) -> Iterator[Float[np.ndarray, " 20"]]:
        """Come for something, close the jaws beside it, perhaps go on without it: what follows is how to try again."""
        upto = next((n for n, key in enumerate(keys) if key.event == "contact"), None)
        if upto is None:
            return
        for key in keys[:upto]:
            yield from self._follow(key)
        goals = {self.limb(role): goal for role, goal in keys[upto].goals.items()}
        ends = {limb: self._target(goal, limb, self._command[limb]) for limb, goal in goals.items()}
        self._note(ASTRAY)
        beside = self.rng.normal(0, _VAIN_ASIDE, 3)
        beside[2] = self.rng.uniform(*_VAIN_ABOVE)
        yield from self._approach(_moved(ends, beside), keys[upto].speed, 0.01)
        opened = dict(self._openings)
        self._openings |= dict.fromkeys(ends, 0.0)
        yield from self._stay(_VAIN_SECONDS)
        # Something that is touched may be held, and nobody is to learn to let go of it.
        if any((item, f"hand:{limb}") in self.world.contacts for limb in ends):
            self._openings = opened
            yield from self._stay(_VAIN_SECONDS)
        elif self.rng.random() < 0.5:
            away = self.rng.normal(0, _VAIN_AWAY, 3)
            away[2] = self.rng.uniform(*_VAIN_UP)
            yield from self._approach(_moved(self._command, away, ends), 1.0, 0.02)
        self._note(BACK)
        self._led_next = self.frame + int(self.rng.integers(*_LED_APART))

    def _misplaces(self, keys: Sequence[Key]) -> bool:
        """Once in a while, and once only: something is carried, and let go where it stands."""
        names = [key.event for key in keys]
        carries = any(goal.carry for key in keys for goal in key.goals.values())
        if (
            self._misplaced
            or not self.pace.vain
            or not carries
            or "lower" not in names
            or "release" not in names
        ):
            return False
        self._misplaced = self.rng.random() < _BESIDE_SHARE * self.pace.vain
        return self._misplaced

    def _put_beside(self, keys: Sequence[Key]) -> Iterator[Float[np.ndarray, " 20"]]:
        """Put something down beside its place; what follows is how to take it again."""
        angle, far = self.rng.uniform(0, 2 * np.pi), self.rng.uniform(*_BESIDE)
        beside = far * np.array([np.cos(angle), np.sin(angle), 0.0])
        self._note(ASTRAY)
        for key in keys:
            if key.event in ("carry", "lower"):
                goals = {self.limb(role): goal for role, goal in key.goals.items()}
                ends = {limb: self._target(goal, limb, self._command[limb]) for limb, goal in goals.items()}
                yield from self._approach(_moved(ends, beside), key.speed, key.near)
            else:
                yield from self._follow(key)
        self._note(BACK)
        self._led_next = self.frame + int(self.rng.integers(*_LED_APART))

    def _go_home(self) -> Iterator[Float[np.ndarray, " 20"]]:
        if self.task.success.holds(self.world) and any(self.world.in_hand(t.name) for t in self.task.things):
            yield from self._stay(1.0)
            return
        goals = {role: Goal(frame="home") for role in ("main", "other") if self._moved(role)}
        if goals:
            yield from self._follow(Key(goals=goals, event="done", near=0.05))

    def _moved(self, role: str) -> bool:
        limb = self.limb(role)
        return bool(np.linalg.norm(self._command[limb].pos - self._home[limb].pos) > 0.01)

    def _note(self, name: str) -> None:
        if name:
            self.events.append(Event(name=name, frame=self.frame))

    def _vector(self) -> Float[np.ndarray, " 20"]:
        return pack(self._command, self._openings)

    def _stay(self, seconds: float) -> Iterator[Float[np.ndarray, " 20"]]:
        for _ in range(round(seconds * self.world.rate_hz)):
            yield self._vector()

    def _follow(self, key: Key) -> Iterator[Float[np.ndarray, " 20"]]:
        for role, opening in key.grips.items():
            self._openings[self.limb(role)] = opening
        if key.goals:
            if key.event == "contact" and self.rng.random() < self.pace.feint:
                yield from self._feint(key)
            yield from self._travel(key)
            self._note(key.event)
        dwell = key.dwell * self.pace.dwell
        if key.event and self.rng.random() < self.pace.pause:
            dwell += self.rng.uniform(*self.pace.pause_seconds)
        yield from self._stay(dwell)
        if not key.goals:  # a hand that closes, opens or waits has done so at the end
            self._note(key.event)

    def _feint(self, key: Key) -> Iterator[Float[np.ndarray, " 20"]]:
        """Reach most of the way and draw back."""
        before = dict(self._command)
        full = {
            self.limb(role): self._target(g, self.limb(role), before[self.limb(role)])
            for role, g in key.goals.items()
        }
        for part in (0.6, 0.0):
            way = {n: Pose(before[n].pos + part * (t.pos - before[n].pos), t.rot) for n, t in full.items()}
            yield from self._approach(way, 1.0, 0.01)

    def _travel(self, key: Key) -> Iterator[Float[np.ndarray, " 20"]]:
        speed = (
            float(np.exp(self.rng.normal(0, self.pace.wander))) * key.speed if self.pace.wander else key.speed
        )
        fixed: dict[str, Pose] = {}
        begin = dict(self._command)
        swing = self._swing(key, begin)
        limit = int(12 * self.world.rate_hz)
        lag = 0
        for _ in range(limit):
            targets = {}
            for role, goal in key.goals.items():
                limb = self.limb(role)
                if goal.fixed or goal.frame == "home" or goal.frame == "table":
                    if limb not in fixed:
                        fixed[limb] = self._target(goal, limb, begin[limb])
                    targets[limb] = fixed[limb]
                else:
                    targets[limb] = self._target(goal, limb, self._command[limb])
            left = self._advance(targets, speed, swing, begin)
            led = self._lead_astray(key, targets, left)
            yield self._vector()
            self._check_held(key)
            if left < key.near and not led:
                lag += 1
                if self._tracking(targets) < key.near + 0.004 or lag > 5:
                    return

    def _check_held(self, key: Key) -> None:
        for role, goal in key.goals.items():
            name, _, part = goal.frame.partition("/")
            if part != "start" and name in self.world.shapes and self.world.fallen(name):
                raise Dropped(name)
            if goal.carry and not self.world.in_hand(goal.carry):
                tool = self.world.body.pose(self.world.data, self.limb(role))
                if np.linalg.norm(self.world.pose(goal.carry).pos - tool.pos) > 0.15:
                    raise Dropped(goal.carry)

    def _swing(self, key: Key, begin: dict[str, Pose]) -> np.ndarray:
        if not self.pace.detour or key.event not in ("approach", "carry", "done"):
            return np.zeros(3)
        out = self.rng.normal(0, self.pace.detour, 3)
        out[2] = abs(out[2])
        return out

    def _lead_astray(self, key: Key, limbs: Collection[str], left: float) -> bool:
        """Now and then a few steps off the way, for all hands that move; whether this was one of them."""
        free = self.pace.astray and not self._led and key.event in _LED and left > _LED_FROM
        if free and self.frame >= self._led_next:
            self._led = self._detour()
            self._note(ASTRAY)
        if not self._led:
            return False
        step, turn = self._led.pop()
        for limb in limbs:
            self._command[limb] = Pose(self._command[limb].pos + step, turn @ self._command[limb].rot)
        if not self._led:
            self.events.append(Event(name=BACK, frame=self.frame + 1))
            self._led_next = self.frame + int(self.rng.integers(*_LED_APART))
        return True

    def _detour(self) -> list[tuple[np.ndarray, np.ndarray]]:
        count, size = int(self.rng.integers(*_LED_FRAMES)), self.pace.astray
        away = self.rng.normal(0, size, 3)
        away[2] = abs(away[2])
        angle = self.rng.uniform(-_LED_TURN, _LED_TURN) * size
        return [(away / count, rotate(np.array([0.0, 0.0, 1.0]), angle / count))] * count

    def _approach(
        self, targets: dict[str, Pose], speed: float, near: float
    ) -> Iterator[Float[np.ndarray, " 20"]]:
        begin = dict(self._command)
        for _ in range(200):
            left = self._advance(targets, speed, np.zeros(3), begin)
            yield self._vector()
            if left < near:
                return

    def _target(self, goal: Goal, limb: str, command: Pose) -> Pose:
        if goal.frame == "home":
            return self._home[limb]
        if goal.frame == "table" and np.isnan(goal.at[0]):
            height = max(goal.height or 0.0, command.pos[2] + goal.rise)
            rot = tool_rotation(closing_yaw(command), goal.tilt) if goal.tilt else command.rot
            return Pose(np.array([command.pos[0], command.pos[1], height]), rot)
        tool = self.world.body.pose(self.world.data, limb)
        return resolve(goal, self.world, tool, command)

    def _tracking(self, targets: dict[str, Pose]) -> float:
        world = self.world
        return max(
            float(np.linalg.norm(world.body.pose(world.data, limb).pos - self._command[limb].pos))
            for limb in targets
        )

    def _advance(
        self, targets: dict[str, Pose], speed: float, swing: np.ndarray, begin: dict[str, Pose]
    ) -> float:
        """Move every commanded pose one period towards its target; the longest distance left."""
        dt = 1 / self.world.rate_hz
        top = self.pace.speed * speed
        gaps = {limb: float(np.linalg.norm(t.pos - self._command[limb].pos)) for limb, t in targets.items()}
        longest = max(gaps.values())
        self._speed = min(
            top, self._speed + self.pace.acceleration * dt, np.sqrt(2 * self.pace.acceleration * longest)
        )
        step = self._speed * dt
        turning = 0.0
        for limb, target in targets.items():
            command = self._command[limb]
            share = 1.0 if gaps[limb] < 1e-9 else min(1.0, step * (gaps[limb] / longest) / gaps[limb])
            pos = command.pos + share * (target.pos - command.pos)
            if swing.any() and gaps[limb] > 0.05:
                whole = float(np.linalg.norm(target.pos - begin[limb].pos)) + 1e-9
                # A swing as long as what is left of the way would hold the hand where it is.
                mild = min(1.0, 0.5 * gaps[limb] / float(np.linalg.norm(swing)))
                pos = pos + mild * swing * np.sin(np.pi * min(1.0, gaps[limb] / whole)) * share
            axis, angle = axis_angle(target.rot @ command.rot.T)
            turn = min(abs(angle), self.pace.turn * dt * min(1.0, speed))
            self._command[limb] = Pose(pos, rotate(axis, np.sign(angle) * turn) @ command.rot)
            turning = max(turning, abs(angle) - turn)
        return max(longest - step, 0.0) + (0.05 * turning if turning > 0.05 else 0.0)


def _moved(
    poses: Mapping[str, Pose], away: np.ndarray, limbs: Collection[str] | None = None
) -> dict[str, Pose]:
    return {limb: Pose(poses[limb].pos + away, poses[limb].rot) for limb in limbs or poses}

"""The moves scripts are made of; each one writes its keyframes when its turn comes.

A move is data. Asked for keyframes it looks at the world once (to choose a grip), asked whether it
was achieved it looks again; the actor repeats a move that was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hostbot.sim.keys import Goal, Key, closing_yaw, nearest_half_turn
from hostbot.sim.pose import wrap
from hostbot.sim.predicates import Predicate
from hostbot.sim.robot import MAX_OPENING
from hostbot.sim.things import Grip
from hostbot.sim.world import World

OPEN, SHUT = 0.07, 0.0
HERE = (np.nan, np.nan, 0.0)
"""The tool's own place, filled in when the keyframe begins."""


class Stage(Protocol):
    """What a move may look at when it writes its keyframes."""

    world: World

    def limb(self, role: str) -> str:
        """The limb that plays a role."""


class Move(Protocol):
    """One step of a script."""

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Keyframes from here."""

    def achieved(self, stage: Stage) -> bool:
        """Whether the step did what it was for."""


def clear(world: World) -> float:
    """A height above everything in the scene."""
    return world.ceiling + 0.02


def choose_grip(
    stage: Stage, item: str, role: str, which: int | None = None, weight: float = 1.0, style: str = ""
) -> Grip:
    """The grip that turns the wrist least and lies nearest to the arm's own side."""
    world = stage.world
    grips = world.shapes[item].grips
    if which is not None:
        return grips[which]
    limb = stage.limb(role)
    tool = world.body.pose(world.data, limb)
    side = 1.0 if limb == "left" else -1.0

    def cost(grip: Grip) -> float:
        frame = world.pose(f"{item}/{grip.part}" if grip.part else item).level()
        turn = abs(wrap(frame.yaw + grip.yaw - np.pi / 2, np.pi))
        spot = frame.pos + frame.rot @ np.asarray(grip.at)
        crowd = 0.0
        for other, shape in world.shapes.items():
            if other != item and not shape.flat:
                gap = float(np.linalg.norm((world.pose(other).pos - spot)[:2])) - shape.radius
                crowd += max(0.0, 0.04 - gap) * 40
        return (
            weight * turn
            + crowd
            + 2.0 * spot[0]
            - 2.0 * side * spot[1]
            + 0.2 * float(np.linalg.norm(spot - tool.pos))
        )

    return min((grip for grip in grips if grip.style == style), key=cost)


@dataclass(frozen=True, kw_only=True)
class Pick:
    """Take a thing and lift it clear."""

    item: str
    role: str = "main"
    which: int | None = None
    """One of the thing's grips; the best one otherwise."""
    lift: bool = True
    height: float | None = None
    style: str = ""
    """A named way of holding, where the thing has several."""
    unless: Predicate | None = None
    """Leave it out where this holds already."""
    straight: bool = False
    """Only grips that need hardly any turn of the wrist, so that the tool can tip forward."""

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Above, down, close, up."""
        world = stage.world
        grip = choose_grip(
            stage, self.item, self.role, self.which, 10.0 if self.straight else 1.0, self.style
        )
        frame = f"{self.item}/{grip.part}" if grip.part else self.item
        opening = min(MAX_OPENING, grip.width + grip.spare)
        top = max(clear(world) + 0.01, float(world.pose(frame).pos[2]) + grip.at[2] + 0.05)
        over = Goal(frame=frame, at=grip.at, yaw=grip.yaw, height=top)
        down = Goal(frame=frame, at=grip.at, yaw=grip.yaw)
        role = self.role
        out = [
            Key(goals={role: over}, grips={role: opening}, event="approach", near=0.012),
            Key(goals={role: down}, event="contact", speed=0.7),
            Key(grips={role: SHUT}, event="grasp", dwell=0.25),
        ]
        if self.lift:
            tool_height = self.height if self.height is not None else clear(world) + grip.at[2]
            up = Goal(frame=frame, at=grip.at, height=tool_height, fixed=True)
            out.append(Key(goals={role: up}, event="lift", near=0.012))
        return out

    def achieved(self, stage: Stage) -> bool:
        """In the hand."""
        return (self.item, f"hand:{stage.limb(self.role)}") in stage.world.contacts


@dataclass(frozen=True, kw_only=True)
class Put:
    """Carry what is held to a place in another thing's frame and let go."""

    item: str
    frame: str
    at: tuple[float, float, float] = (0.0, 0.0, 0.0)
    yaw: float | None = None
    role: str = "main"
    drop: float = 0.006
    square: bool = False
    flip: bool = False
    release: bool = True
    unless: Predicate | None = None
    """Leave it out where this holds already."""

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Over, down, open, up."""
        world, role = stage.world, self.role
        x, y, z = self.at
        z = max(z, self._rim(stage))
        common: dict[str, Any] = {
            "frame": self.frame,
            "yaw": self.yaw,
            "carry": self.item,
            "square": self.square,
            "flip": self.flip,
        }
        over = Goal(**common, at=self.at, height=clear(world))
        down = Goal(**common, at=(x, y, z + self.drop))
        out = [
            Key(goals={role: over}, event="carry", near=0.006),
            Key(goals={role: down}, event="lower", speed=0.6),
        ]
        return [*out, *let_go(stage, role)] if self.release else out

    def _rim(self, stage: Stage) -> float:
        """Height at which to let go over a mouth too narrow for the fingers: they stay above it."""
        vessel, item = stage.world.shapes.get(self.frame), stage.world.shapes[self.item]
        if (
            vessel is None
            or not 0 < vessel.inner < item.radius + 0.026
            or vessel.floor > vessel.height - 0.02
        ):
            return -1.0
        tool = stage.world.body.pose(stage.world.data, stage.limb(self.role))
        return float(vessel.height + 0.004 - (tool.pos[2] - stage.world.pose(self.item).pos[2]))

    def achieved(self, stage: Stage) -> bool:
        """The task's predicate judges."""
        return True


def let_go(stage: Stage, role: str, width: float = 0.03) -> list[Key]:
    """Open a little, then rise out of the way."""
    world = stage.world
    limb = stage.limb(role)
    opening = min(MAX_OPENING, world.body.opening(world.data, limb) + width)
    up = Goal(frame="table", at=HERE, height=clear(world) + 0.03, rise=0.065)
    return [
        Key(grips={role: opening}, event="release", dwell=0.25),
        Key(goals={role: up}, event="retreat", near=0.02, speed=0.7),
    ]


@dataclass(frozen=True, kw_only=True)
class Press:
    """Push a button down with closed jaws."""

    item: str
    role: str = "main"

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Above, down, up."""
        top, role = f"{self.item}/top", self.role
        over = Goal(frame=top, height=clear(stage.world) + 0.02)
        ready = Goal(frame=top, at=(0, 0, 0.025))
        push = Goal(frame=self.item, height=0.024)
        return [
            Key(goals={role: over}, grips={role: SHUT}, event="approach", near=0.012),
            Key(goals={role: ready}, event="contact", near=0.006),
            Key(goals={role: push}, event="press", speed=0.5, dwell=0.1),
            Key(goals={role: over}, event="retreat", near=0.02),
        ]

    def achieved(self, stage: Stage) -> bool:
        """The button remembers."""
        return self.item in stage.world.pressed


@dataclass(frozen=True, kw_only=True)
class Shove:
    """Push a thing along the table to a spot, two fingers behind it."""

    item: str
    frame: str
    at: tuple[float, float, float] = (0.0, 0.0, 0.0)
    role: str = "main"
    width: float = 0.045
    square: bool = False

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Behind it, down, along the line, up."""
        world, role = stage.world, self.role
        thing, shape = world.pose(self.item), world.shapes[self.item]
        base = world.pose(self.frame).level()
        target = base.pos + (np.eye(3) if self.square else base.rot) @ np.asarray(self.at)
        line = (target - thing.pos)[:2]
        length = float(np.linalg.norm(line))
        heading = float(np.arctan2(line[1], line[0]))
        ahead = np.array([np.cos(heading), np.sin(heading), 0.0])
        half = min(shape.sides) if min(shape.sides) > 0 else shape.radius
        reach = _extent(thing.yaw, heading, shape.sides) if min(shape.sides) > 0 else half
        width = min(self.width, 1.2 * half)
        behind = thing.pos - ahead * (reach + 0.035)
        touch = thing.pos - ahead * (reach + 0.010)
        end = thing.pos + ahead * (length - reach - 0.005)
        depth = min(0.018, 0.5 * shape.height)
        yaw = heading + np.pi / 2

        def goal(point: np.ndarray, height: float) -> Goal:
            x, y = float(point[0]), float(point[1])
            return Goal(frame="table", at=(x, y, 0.0), height=height, yaw=yaw, fixed=True)

        return [
            Key(
                goals={role: goal(behind, clear(world) + 0.02)},
                grips={role: width},
                event="approach",
                near=0.012,
            ),
            Key(goals={role: goal(behind, depth)}, event="lower", near=0.008),
            Key(goals={role: goal(touch, depth)}, event="contact", near=0.006, speed=0.6),
            Key(goals={role: goal(end, depth)}, event="push", speed=0.45),
            Key(goals={role: goal(end - ahead * 0.03, depth)}, event="release", near=0.01),
            Key(goals={role: goal(end - ahead * 0.03, clear(world) + 0.03)}, event="retreat", near=0.02),
        ]

    def achieved(self, stage: Stage) -> bool:
        """Within a finger's breadth of the spot."""
        base = stage.world.pose(self.frame).level()
        target = base.pos + (np.eye(3) if self.square else base.rot) @ np.asarray(self.at)
        return bool(np.linalg.norm((stage.world.pose(self.item).pos - target)[:2]) < 0.03)


def _extent(yaw: float, heading: float, sides: tuple[float, float]) -> float:
    """Half length of a box along a heading, through its middle."""
    c, s = abs(np.cos(heading - yaw)), abs(np.sin(heading - yaw))
    return float(min(sides[0] / max(c, 1e-6), sides[1] / max(s, 1e-6)))


@dataclass(frozen=True, kw_only=True)
class Drag:
    """Take hold of a moving part, move it by an offset in the thing's frame, let go."""

    item: str
    by: tuple[float, float, float]
    role: str = "main"
    goal: float = 0.0
    joint: str = ""
    above: bool = True

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Grip, pull, let go."""
        world, role = stage.world, self.role
        grip = world.shapes[self.item].grips[0]
        frame = f"{self.item}/{grip.part}"
        out = list(Pick(item=self.item, role=role, which=0, lift=False).keys(stage))
        pull = Goal(frame=frame, at=self.by, yaw=grip.yaw, fixed=True)
        out.append(Key(goals={role: pull}, event="pull", speed=0.6))
        return [*out, *let_go(stage, role, 0.02)]

    def achieved(self, stage: Stage) -> bool:
        """The joint went far enough."""
        if not self.joint:
            return True
        low, high = stage.world.joint_range(self.joint)
        fraction = (stage.world.joint(self.joint) - low) / (high - low)
        return fraction >= self.goal if self.above else fraction <= self.goal


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Take a dial by its ridge and turn it."""

    item: str
    angle: float
    role: str = "main"

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Grip, turn in two parts, let go."""
        role = self.role
        out = list(Pick(item=self.item, role=role, which=0, lift=False).keys(stage))
        world = stage.world
        ridge = world.pose(f"{self.item}/ridge")
        tool = world.body.pose(world.data, stage.limb(role))
        start = nearest_half_turn(ridge.yaw + np.pi / 2, closing_yaw(tool))
        for part in (0.5, 1.0):
            yaw = start + part * self.angle
            x, y, z = (float(v) for v in ridge.pos)
            twist = Goal(frame="table", at=(x, y, z), yaw=yaw, fixed=True)
            out.append(Key(goals={role: twist}, event="turn" if part == 1.0 else "", speed=0.7))
        return [*out, *let_go(stage, role, 0.02)]

    def achieved(self, stage: Stage) -> bool:
        """Most of the way."""
        return bool(stage.world.joint(f"{self.item}/dial") * np.sign(self.angle) > 0.6 * abs(self.angle))


def _triple(point: np.ndarray) -> tuple[float, float, float]:
    return (float(point[0]), float(point[1]), float(point[2]))


@dataclass(frozen=True, kw_only=True)
class Path:
    """Go through points in a thing's frame, with closed jaws or with what is held."""

    frame: str
    points: tuple[tuple[float, float, float], ...]
    role: str = "main"
    carry: str = ""
    yaw: float | None = None
    grip: float | None = None
    event: str = "stroke"
    speed: float = 0.7
    square: bool = False
    flip: bool = False
    over: bool = True
    """Begin above the first point."""
    rise: bool = False
    """End above the last point."""
    near: float = 0.006
    tilt: float = 0.0
    fixed: bool = False
    """Points in the frame as it is at the beginning, though the thing may move."""

    def keys(self, stage: Stage) -> Sequence[Key]:
        """One keyframe a point."""
        role = self.role
        points = [np.asarray(point) for point in self.points]
        common: dict[str, Any] = {
            "frame": self.frame,
            "carry": self.carry,
            "yaw": self.yaw,
            "square": self.square,
            "flip": self.flip,
            "tilt": self.tilt,
        }
        if self.fixed:
            base = stage.world.pose(self.frame).level()
            points = [base.pos + (np.eye(3) if self.square else base.rot) @ point for point in points]
            common["frame"] = "table"
        grips = {} if self.grip is None else {role: self.grip}
        high = clear(stage.world) + (0.0 if self.carry else 0.02)
        out = []
        if self.over:
            goal = Goal(**common, at=_triple(points[0]), height=high)
            out.append(Key(goals={role: goal}, grips=grips, event="approach", near=0.012))
        for i, point in enumerate(points):
            last = i == len(points) - 1
            event = "contact" if i == 0 and self.over else (self.event if last else "")
            out.append(
                Key(
                    goals={role: Goal(**common, at=_triple(point))},
                    event=event,
                    near=self.near,
                    speed=self.speed,
                )
            )
        if self.rise:
            goal = Goal(**common, at=_triple(points[-1]), height=high)
            out.append(Key(goals={role: goal}, event="retreat", near=0.02))
        return out

    def achieved(self, stage: Stage) -> bool:
        """The task's predicate judges."""
        return True


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Hold a bar out over the middle of the table, across it, for the other hand to take."""

    item: str
    role: str = "main"
    height: float = 0.10

    def keys(self, stage: Stage) -> Sequence[Key]:
        """There, its held end to the holder's own side."""
        yaw = np.pi / 2 if stage.limb(self.role) == "left" else -np.pi / 2
        goal = Goal(frame="table", at=(0.29, 0.0, self.height), yaw=yaw, carry=self.item)
        return [Key(goals={self.role: goal}, event="offer", near=0.008)]

    def achieved(self, stage: Stage) -> bool:
        """Still held."""
        return stage.world.in_hand(self.item)


@dataclass(frozen=True, kw_only=True)
class LiftBoth:
    """Take a tray by both handles and lift it level."""

    item: str
    height: float = 0.08

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Both hands above, down, close, up."""
        world, item = stage.world, self.item
        over, down, up = {}, {}, {}
        for role in ("main", "other"):
            grip = world.shapes[item].grips[0 if stage.limb(role) == "left" else 1]
            top = clear(world) + 0.02
            over[role] = Goal(frame=item, at=grip.at, yaw=grip.yaw, height=top)
            down[role] = Goal(frame=item, at=grip.at, yaw=grip.yaw)
            up[role] = Goal(frame=item, at=grip.at, yaw=grip.yaw, height=self.height + grip.at[2], fixed=True)
        both = ("main", "other")
        return [
            Key(goals=over, grips=dict.fromkeys(both, 0.05), event="approach", near=0.010),
            Key(goals=down, event="contact", speed=0.7),
            Key(grips=dict.fromkeys(both, SHUT), event="grasp", dwell=0.3),
            Key(goals=up, event="lift", speed=0.5),
        ]

    def achieved(self, stage: Stage) -> bool:
        """Off the table."""
        return bool(stage.world.pose(self.item).pos[2] > 0.6 * self.height)


@dataclass(frozen=True, kw_only=True)
class Release:
    """Let go and rise."""

    role: str = "main"

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Open, up."""
        return let_go(stage, self.role)

    def achieved(self, stage: Stage) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, kw_only=True)
class Tip:
    """Lean the tool forward about its closing direction, with what it holds, and come back upright."""

    angle: float
    role: str = "main"

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Over, wait, back."""
        over = Goal(frame="table", at=HERE, tilt=-self.angle)
        back = Goal(frame="table", at=HERE, tilt=-1e-3, height=clear(stage.world) + 0.12)
        return [
            Key(goals={self.role: over}, event="pour", speed=0.6, dwell=0.7),
            Key(goals={self.role: back}, event="upright", near=0.01, speed=0.5),
        ]

    def achieved(self, stage: Stage) -> bool:
        """The task's predicate judges."""
        return True


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Stay as you are."""

    seconds: float
    event: str = "hold"

    def keys(self, stage: Stage) -> Sequence[Key]:
        """One keyframe that only dwells."""
        return [Key(event=self.event, dwell=self.seconds)]

    def achieved(self, stage: Stage) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, kw_only=True)
class Home:
    """A limb goes back to where it waits."""

    role: str = "main"

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Straight there."""
        return [Key(goals={self.role: Goal(frame="home")}, near=0.03)]

    def achieved(self, stage: Stage) -> bool:
        """Always."""
        return True

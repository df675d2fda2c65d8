"""Moves that work on things where they stand: press, push, drag, turn, follow a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hostbot.sim.keys import Goal, Key, closing_yaw, nearest_half_turn
from hostbot.sim.moves.base import SHUT, Stage, clear, let_go
from hostbot.sim.moves.hold import Pick
from hostbot.sim.predicates import Predicate


@dataclass(frozen=True, kw_only=True)
class Press:
    """Push a button down with closed jaws."""

    item: str
    role: str = "main"
    unless: Predicate | None = None
    """Leave it out where this holds already."""

    lasts = True  # what it achieves stays, and shows

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
    unless: Predicate | None = None
    """Leave it out where this holds already."""

    lasts = True  # what it achieves stays, and shows

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

    @property
    def lasts(self) -> bool:
        """Where it is known how far a joint is to go."""
        return bool(self.joint)

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

    lasts = True  # what it achieves stays, and shows

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

"""Moves with a thing in the hand: take it, put it down, hold it out, tip it, lift it with both hands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hostbot.sim.arms import MAX_OPENING
from hostbot.sim.keys import Goal, Key
from hostbot.sim.moves.base import HERE, SHUT, Stage, choose_grip, clear, let_go
from hostbot.sim.predicates import Predicate


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
    open: float = 0.03
    """How much wider the jaws open to let go."""
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
        return [*out, *let_go(stage, role, self.open)] if self.release else out

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
class Lean:
    """Lean the tool about its closing direction, with what it holds, and stay so."""

    angle: float
    role: str = "main"

    def keys(self, stage: Stage) -> Sequence[Key]:
        """One keyframe, at its own place."""
        rest = Goal(frame="table", at=HERE, tilt=self.angle, rise=0.02)
        return [Key(goals={self.role: rest}, event="lean", speed=0.6)]

    def achieved(self, stage: Stage) -> bool:
        """The task's predicate judges."""
        return True


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

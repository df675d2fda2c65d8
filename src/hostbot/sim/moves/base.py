"""What a move is, and what moves share: heights, grips, letting go.

A move is data. Asked for keyframes it looks at the world once (to choose a grip), asked whether it was
achieved it looks again; the actor repeats a move that was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hostbot.sim.arms import MAX_OPENING
from hostbot.sim.keys import Goal, Key
from hostbot.sim.pose import wrap
from hostbot.sim.things import Grip
from hostbot.sim.world import World

SHUT = 0.0
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
        frame = world.base(f"{item}/{grip.part}" if grip.part else item)
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

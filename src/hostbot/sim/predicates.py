"""What counts as done: predicates on physical state, which the environment asks to hold for half a second.

Every relation between things also asks that no hand touches what was put down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hostbot.sim.pose import wrap
from hostbot.sim.world import World


class Predicate(Protocol):
    """A condition on the world now."""

    def holds(self, world: World) -> bool:
        """Whether the condition is met."""


def _standing(world: World, name: str, limit: float = 0.35) -> bool:
    return bool(world.pose(name).rot[2, 2] > np.cos(limit))


@dataclass(frozen=True)
class Inside:
    """A thing lies in a vessel (or a drawer's box), let go of."""

    item: str
    vessel: str
    mark: str = ""

    def holds(self, world: World) -> bool:
        """Near the vessel's axis, above its floor, below its rim."""
        frame = world.pose(self.mark or self.vessel)
        low = bool(world.base(self.item).pos[2] < frame.pos[2] + world.shapes[self.vessel].height)
        surrounded = _surrounded(world, self.item, self.vessel, self.mark)
        return surrounded and low and _standing(world, self.vessel) and not world.in_hand(self.item)


def _surrounded(world: World, item: str, vessel: str, mark: str = "") -> bool:
    """Whether a thing's middle is between a vessel's walls, however the vessel is turned."""
    shape, height = world.shapes[vessel], world.shapes[item].height
    frame, pose = world.pose(mark or vessel), world.pose(item)
    local = frame.inverse().rot @ (pose.pos + pose.rot @ np.array([0, 0, height / 2]) - frame.pos)
    if shape.sides != (0.0, 0.0) and not mark:
        within = abs(local[0]) < shape.sides[0] and abs(local[1]) < shape.sides[1]
    else:
        within = bool(np.hypot(local[0], local[1]) < shape.inner)
    return bool(within and 0.0 < local[2] < shape.height + 0.25 * height)


@dataclass(frozen=True)
class Out:
    """A thing is no longer in the vessel it was in: to carry both is not to pour, or to take out."""

    item: str
    vessel: str

    def holds(self, world: World) -> bool:
        """Anywhere else than between its walls."""
        return not _surrounded(world, self.item, self.vessel)


@dataclass(frozen=True)
class On:
    """A thing rests on another, let go of."""

    item: str
    support: str
    reach: float = 1.0
    """How far from the middle it may be, in radii of the support."""
    standing: bool = False

    def holds(self, world: World) -> bool:
        """In contact, above the support and near its middle."""
        shape = world.shapes[self.support]
        base, item = world.pose(self.support), world.base(self.item)
        radius = shape.inner if shape.inner else shape.radius
        offset = item.pos - base.pos
        rises = offset[2] > 0.6 * shape.floor - 0.004 and offset[2] < shape.floor + 0.03
        over = bool(np.hypot(offset[0], offset[1]) < self.reach * radius)
        free = not world.in_hand(self.item)
        settled = world.touching(self.item, self.support) and _standing(world, self.support)
        upright = not self.standing or _standing(world, self.item)
        return bool(rises and over and free and settled and upright)


@dataclass(frozen=True)
class At:
    """A thing stands on a patch of the table, let go of."""

    item: str
    mat: str
    slack: float = 0.0

    def holds(self, world: World) -> bool:
        """Its middle over the patch and itself on the table."""
        offset = world.base(self.item).pos - world.pose(self.mat).pos
        near = bool(np.hypot(offset[0], offset[1]) < world.shapes[self.mat].radius + self.slack)
        return near and bool(abs(offset[2]) < 0.02) and not world.in_hand(self.item)


DIRECTIONS = {"left": (0.0, 1.0), "right": (0.0, -1.0), "front": (-1.0, 0.0), "behind": (1.0, 0.0)}
"""Sides of a landmark as the one who sits at the table sees them."""


@dataclass(frozen=True)
class Beside:
    """A thing stands on the table next to a landmark, on one side of it, let go of."""

    item: str
    landmark: str
    side: str

    def holds(self, world: World) -> bool:
        """Within a hand's breadth of the landmark and within 40 degrees of the side."""
        offset = (world.pose(self.item).pos - world.pose(self.landmark).pos)[:2]
        gap = np.linalg.norm(offset) - world.shapes[self.item].radius - world.shapes[self.landmark].radius
        along = float(offset @ np.array(DIRECTIONS[self.side])) / (float(np.linalg.norm(offset)) + 1e-9)
        low = world.pose(self.item).pos[2] < 0.02 and _standing(world, self.landmark)
        return bool(gap < 0.06 and along > np.cos(np.radians(40)) and low and not world.in_hand(self.item))


@dataclass(frozen=True)
class PutDown:
    """A thing lies about where it was to be put in another's frame, let go of."""

    item: str
    frame: str
    at: tuple[float, float, float]
    square: bool = False
    """As the table has it, however the other is turned."""
    slack: float = 0.03

    def holds(self, world: World) -> bool:
        """Seen from above."""
        frame = world.base(self.frame)
        place = frame.pos + (np.eye(3) if self.square else frame.rot) @ np.asarray(self.at)
        away = (world.base(self.item).pos - place)[:2]
        return bool(np.linalg.norm(away) < self.slack and not world.in_hand(self.item))


@dataclass(frozen=True)
class Shifted:
    """A thing stands away from where it stood at first, by so much along the table's axes, let go of."""

    item: str
    by: tuple[float, float]
    turn: float | None = None
    """By how much it is turned about the vertical; any heading will do otherwise."""
    slack: float = 0.03
    skew: float = 0.35

    def holds(self, world: World) -> bool:
        """Compare with where it started."""
        now, start = world.base(self.item), world.pose(f"{self.item}/start")
        near = np.linalg.norm((now.pos - start.pos)[:2] - np.asarray(self.by)) < self.slack
        turned = self.turn is None or abs(wrap(now.yaw - start.yaw - self.turn, 2 * np.pi)) < self.skew
        low = abs(now.pos[2] - start.pos[2]) < 0.02
        upright = world.shapes[self.item].round or _standing(world, self.item)
        return bool(near and turned and low and upright) and not world.in_hand(self.item)


@dataclass(frozen=True)
class HeldAt:
    """A thing is in a hand, in the air, at a place beside or above another along the table's axes."""

    item: str
    frame: str
    at: tuple[float, float, float]
    slack: float = 0.03

    def holds(self, world: World) -> bool:
        """Its underside, measured from the other's."""
        away = world.base(self.item).pos - world.base(self.frame).pos - np.asarray(self.at)
        return bool(np.linalg.norm(away) < self.slack) and world.in_hand(self.item)


@dataclass(frozen=True)
class Leaning:
    """A thing is in a hand, leaning by so much."""

    item: str
    angle: float
    slack: float = 0.35

    def holds(self, world: World) -> bool:
        """Compare its upright axis with the vertical; what is upright never leans."""
        lean = np.arccos(np.clip(world.pose(self.item).rot[2, 2], -1.0, 1.0))
        near = abs(lean - self.angle) < min(self.slack, self.angle / 2)
        return bool(near) and world.in_hand(self.item)


@dataclass(frozen=True)
class HandAt:
    """A hand is at a place beside or above a thing along the table's axes."""

    frame: str
    at: tuple[float, float, float]
    slack: float = 0.025

    def holds(self, world: World) -> bool:
        """Any hand."""
        place = world.base(self.frame).pos + np.asarray(self.at)
        hands = [world.body.pose(world.data, limb).pos for limb in world.body.limbs]
        return any(bool(np.linalg.norm(hand - place) < self.slack) for hand in hands)


@dataclass(frozen=True)
class Lifted:
    """A thing is held up in the air."""

    item: str
    height: float = 0.06

    def holds(self, world: World) -> bool:
        """High above the table, in a hand and touching nothing else."""
        high = world.pose(self.item).pos[2] > self.height
        others = [b for a, b in world.contacts if a == self.item and not b.startswith("hand:")]
        return bool(high and world.in_hand(self.item) and "table" not in others)


@dataclass(frozen=True)
class InHand:
    """A hand touches a thing."""

    item: str

    def holds(self, world: World) -> bool:
        """Any hand."""
        return world.in_hand(self.item)


@dataclass(frozen=True)
class HeldBy:
    """A thing is held up by both hands at once."""

    item: str

    def holds(self, world: World) -> bool:
        """Every hand touches it."""
        return all((self.item, f"hand:{limb}") in world.contacts for limb in ("left", "right"))


@dataclass(frozen=True)
class Joint:
    """A part has moved past a fraction of its range."""

    name: str
    above: float | None = None
    below: float | None = None

    def holds(self, world: World) -> bool:
        """Compare with the joint's limits."""
        low, high = world.joint_range(self.name)
        fraction = (world.joint(self.name) - low) / (high - low)
        if self.above is not None and fraction < self.above:
            return False
        return self.below is None or fraction <= self.below


@dataclass(frozen=True)
class Pressed:
    """These buttons were pressed, in this order, and no other."""

    order: tuple[str, ...]

    def holds(self, world: World) -> bool:
        """Compare with what the buttons remember."""
        return tuple(world.pressed) == self.order


@dataclass(frozen=True)
class Wiped:
    """Every stain of a surface is gone, and the surface is not."""

    surface: str

    def holds(self, world: World) -> bool:
        """Count the stains; what was pushed off the table is no good."""
        clean = len(world.wiped.get(self.surface, ())) == world.stains(self.surface)
        return clean and not world.fallen(self.surface)


@dataclass(frozen=True)
class Toppled:
    """A thing lies on its side, its top pointing away from whoever sits at the table."""

    item: str

    def holds(self, world: World) -> bool:
        """More than sixty degrees from upright, within sixty of straight away, not held."""
        up = world.pose(self.item).rot[:, 2]
        return bool(up[2] < 0.5 and up[0] > 0.5) and not world.in_hand(self.item)


@dataclass(frozen=True)
class Undisturbed:
    """Things that are no business of the task stand about where they stood, and their parts as they were."""

    names: tuple[str, ...]
    distance: float = 0.06
    share: float = 0.25
    """Of a part's range."""

    def holds(self, world: World) -> bool:
        """Compare with the start."""
        for name in self.names:
            now, start = world.pose(name), world.start[name]
            if (
                np.linalg.norm((now.pos - start.pos)[:2]) > self.distance
                or now.rot[2, 2] < start.rot[2, 2] - 0.4
            ):
                return False
        for joint, begin in world.start_joints.items():
            low, high = world.joint_range(joint)
            moved = abs(world.joint(joint) - begin) / (high - low)
            if joint.split("/")[0] in self.names and moved > self.share and not joint.endswith("/cap"):
                return False
        return True


@dataclass(frozen=True)
class Over:
    """A cover stands over a thing, let go of."""

    cover: str
    item: str
    limit: float = 0.03

    def holds(self, world: World) -> bool:
        """Middles close together, the cover not beside but above."""
        cover, item = world.pose(self.cover), world.base(self.item)
        near = np.linalg.norm((cover.pos - item.pos)[:2]) < self.limit
        above = cover.pos[2] > item.pos[2] - 0.004
        return bool(near and above and cover.rot[2, 2] > 0.9 and not world.in_hand(self.cover))


@dataclass(frozen=True)
class Nearer:
    """A thing has come closer to whoever sits at the table than it was, and lies there let go of."""

    item: str
    by: float

    def holds(self, world: World) -> bool:
        """Compare with where it started."""
        moved = world.start[self.item].pos[0] - world.pose(self.item).pos[0]
        low = abs(world.pose(self.item).pos[2] - world.start[self.item].pos[2]) < 0.02
        return bool(moved > self.by and low) and not world.in_hand(self.item)


@dataclass(frozen=True)
class Capped:
    """A lid lies on a pot's rim, let go of."""

    lid: str
    pot: str

    def holds(self, world: World) -> bool:
        """Near the pot's axis, at the height of its rim."""
        offset = world.pose(self.lid).pos - world.pose(self.pot).pos
        rim = world.shapes[self.pot].height
        near = bool(np.hypot(offset[0], offset[1]) < 0.02)
        return near and bool(abs(offset[2] - rim) < 0.012) and not world.in_hand(self.lid)


@dataclass(frozen=True)
class Threaded:
    """A ring lies low around a peg, let go of."""

    ring: str
    peg: str

    def holds(self, world: World) -> bool:
        """The post within the ring's hole, the ring down."""
        offset = world.pose(self.ring).pos - world.pose(self.peg).pos
        around = bool(np.hypot(offset[0], offset[1]) < world.shapes[self.ring].inner)
        return around and bool(offset[2] < 0.04) and not world.in_hand(self.ring)


@dataclass(frozen=True)
class Stands:
    """A pen stands in a holder, let go of."""

    pen: str
    holder: str

    def holds(self, world: World) -> bool:
        """Its foot within the holder and near its floor, itself steep."""
        pen, holder = world.pose(self.pen), world.pose(self.holder)
        offset = pen.pos - holder.pos
        inside = bool(np.hypot(offset[0], offset[1]) < world.shapes[self.holder].inner)
        return inside and bool(offset[2] < 0.03 and pen.rot[2, 2] > 0.8) and not world.in_hand(self.pen)


@dataclass(frozen=True)
class All:
    """Several conditions at once."""

    parts: tuple[Predicate, ...]

    def holds(self, world: World) -> bool:
        """Every one of them."""
        return all(part.holds(world) for part in self.parts)

"""Deeds: what drills ask for, one thing at a time; each with its script, its words, and what is left to see.

How far something is pushed or moved, how high it is held and how much it is turned is drawn by the words alone: whoever
shows the same words shows the same motion. Sides are those of whoever sits at the table.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cache

import mujoco
import numpy as np

from hostbot.sim.moves import Lean, Move, Path, Pick, Press, Put, Shove, Wait
from hostbot.sim.predicates import DIRECTIONS, HandAt, HeldAt, InHand, Leaning, Predicate, Pressed, Shifted
from hostbot.sim.things import Builder, Kind, Look, Shape, Thing

WAYS: dict[str, tuple[int, int]] = {
    "to the left": (0, 1),
    "to the right": (0, -1),
    "closer": (-1, 0),
    "away from you": (1, 0),
    "closer and left": (-1, 1),
    "closer and right": (-1, -1),
    "away and left": (1, 1),
    "away and right": (1, -1),
}
"""Eight ways across the table, as x and y; in few words, for a small model reads 24."""
OVER = {"over": (0.0, 0.0)} | {
    f"in the air {words}": DIRECTIONS[side]
    for side, words in (
        ("left", "to the left of"),
        ("right", "to the right of"),
        ("front", "in front of"),
        ("behind", "behind"),
    )
}
"""Where something may be held: above another thing, or above the table beside it."""
TURNS = {"": 0.0, " and turn it left": 1.0, " and turn it right": -1.0}
LEANS: dict[str, tuple[float, float]] = {"forward": (-1.9, -0.5), "back": (0.4, 0.7)}
"""Radians by which something is leant; an arm reaches further forward."""
_PUSHED, _MOVED, _TURNED = (0.05, 0.12), (0.07, 0.16), (0.5, 1.1)
"""Metres, and radians."""
_ABOVE, _ASIDE = (0.08, 0.14), (0.08, 0.11)
"""Metres above the middle of a thing, and beside it."""
_PAST, _HIGHER = (0.03, 0.06), (0.02, 0.045)
"""Metres a hand gets past a thing that it waves over, and above it."""
_ROOM, _BEHIND = 0.08, 0.045
"""Metres kept free where a thing is to get, at least, and between it and the hand that is to push it."""
_FINGERS = 0.03
_SLIDES, _STANDS = 2.4, 2.8
"""How slender a thing may be that is pushed, or taken."""


@dataclass(frozen=True, kw_only=True)
class Deed:
    """One thing done to a thing."""

    things: tuple[Thing, ...]
    script: tuple[Move, ...]
    success: Predicate
    words: str
    free: tuple[tuple[str, float, float, float], ...] = ()
    """Spots kept free of other things, as a task has them."""


@cache
def shape_of(kind: Kind) -> Shape:
    """What a kind measures, before anything makes one of it larger or smaller."""
    spec = mujoco.MjSpec()
    return kind(Builder(spec, spec.worldbody.add_body(name="it"), "it", Look(rgb=(0.5, 0.5, 0.5))))


def slides(kind: Kind) -> bool:
    """Whether a thing pushed near the table goes along: it does not roll, and is too broad to fall over."""
    return not shape_of(kind).round and _slender(kind) < _SLIDES


def stands(kind: Kind) -> bool:
    """Whether a thing is too broad to fall over when a hand comes for it a little beside it."""
    return _slender(kind) < _STANDS


def _slender(kind: Kind) -> float:
    """How high a thing is, in halves of its breadth."""
    shape = shape_of(kind)
    return shape.height / (min(shape.sides) or shape.radius)


def press(item: Thing) -> Deed:
    """Press a button."""
    done = Pressed((item.name,))
    words = f"press the {item.words}"
    return Deed(things=(item,), script=(Press(item=item.name, unless=done),), success=done, words=words)


def touch(item: Thing) -> Deed:
    """Take hold of a thing where it stands."""
    script = (Pick(item=item.name, lift=False),)
    return Deed(things=(item,), script=script, success=InHand(item.name), words=f"touch the {item.words}")


def push(item: Thing, way: str) -> Deed:
    """Push a thing along the table, from where it stands; closed jaws, for a corner between open ones gets stuck."""
    words = f"push the {item.words} {way}"
    x, y = _away(way, _by(words).uniform(*_PUSHED))
    done = Shifted(item.name, (x, y))
    shove = Shove(
        item=item.name, frame=f"{item.name}/start", at=(x, y, 0.0), square=True, unless=done, width=0.0
    )
    radius = shape_of(item.kind).radius
    behind = _away(way, -radius - _BEHIND)
    room = max(_ROOM, radius + _FINGERS)
    free = ((item.name, x, y, room), (item.name, x / 2, y / 2, room), (item.name, *behind, _ROOM))
    return Deed(things=(item,), script=(shove,), success=done, words=words, free=free)


def move(item: Thing, way: str, turn: str = "") -> Deed:
    """Take a thing and put it down elsewhere, perhaps turned."""
    words = f"move the {item.words} {way}{turn}"
    rng = _by(words)
    x, y = _away(way, rng.uniform(*_MOVED))
    angle = TURNS[turn] * rng.uniform(*_TURNED) if turn else None
    done = Shifted(item.name, (x, y), angle)
    put = Put(item=item.name, frame=f"{item.name}/start", at=(x, y, 0.0), yaw=angle, square=True, unless=done)
    room = max(_ROOM, shape_of(item.kind).radius + _FINGERS)
    return Deed(
        things=(item,),
        script=(Pick(item=item.name, unless=done), put),
        success=done,
        words=words,
        free=((item.name, 0.0, 0.0, room), (item.name, x, y, room)),
    )


def hold(item: Thing, other: Thing, where: str) -> Deed:
    """Take a thing and keep it in the air above another one, or beside it."""
    words = f"hold the {item.words} {where} the {other.words}"
    rng, height = _by(words), shape_of(other.kind).height
    x, y = (share * rng.uniform(*_ASIDE) for share in OVER[where])
    at = (x, y, max(height / 2 + rng.uniform(*_ABOVE), height + _FINGERS))
    lift = Path(frame=other.name, points=(at,), carry=item.name, square=True, over=False, event="carry")
    return Deed(
        things=(item, other),
        script=(Pick(item=item.name), lift, Wait(seconds=0.5)),
        success=HeldAt(item.name, other.name, at),
        words=words,
        free=((item.name, 0.0, 0.0, _ROOM), *(((other.name, x, y, 0.0),) if x or y else ())),
    )


def lean(item: Thing, how: str) -> Deed:
    """Take a thing and lean it, in the air."""
    words = f"lean the {item.words} {how}"
    angle = _by(words).uniform(*LEANS[how])
    return Deed(
        things=(item,),
        script=(Pick(item=item.name, straight=True), Lean(angle=angle), Wait(seconds=0.5)),
        success=Leaning(item.name, abs(angle)),
        words=words,
        free=((item.name, 0.0, 0.0, _ROOM),),
    )


def wave(item: Thing, way: str) -> Deed:
    """Pass over a thing with closed jaws, from one side of it to the other, and stay there."""
    words = f"wave over the {item.words} {way}"
    rng, shape = _by(words), shape_of(item.kind)
    x, y = _away(way, shape.radius + rng.uniform(*_PAST))
    z = shape.height + rng.uniform(*_HIGHER)
    stroke = Path(
        frame=item.name, points=((-x, -y, z), (x, y, z)), square=True, fixed=True, grip=0.0, yaw=0.0
    )
    return Deed(
        things=(item,),
        script=(stroke, Wait(seconds=0.5)),
        success=HandAt(item.name, (x, y, z)),
        words=words,
        free=((item.name, -x, -y, _FINGERS), (item.name, x, y, _FINGERS)),
    )


def _away(way: str, far: float) -> tuple[float, float]:
    x, y = far * np.asarray(WAYS[way]) / np.hypot(*WAYS[way])
    return float(x), float(y)


def _by(words: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(words.encode()))

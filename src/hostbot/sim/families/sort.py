"""Put two things away: each in its own vessel, or both in one."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Move, Pick, Put
from hostbot.sim.predicates import All, Inside
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, apple, block, bowl, box, plum, thing

VESSELS = (thing("white", bowl), thing("brown", box))
PAIRS = (
    (thing("red", block), thing("blue", block)),
    (thing("red", apple), thing("purple", plum)),
    (thing("yellow", block), thing("green", apple)),
    (thing("orange", plum), thing("green", block)),
)
FRUITS = (
    (thing("red", apple), thing("purple", plum)),
    (thing("green", apple), thing("orange", plum)),
    (thing("red", apple), thing("orange", plum)),
    (thing("green", apple), thing("purple", plum)),
)
SPOTS = ((0.0, 0.024), (0.0, -0.024))


def sort(moves: tuple[tuple[Thing, Thing], ...], foils: tuple[Thing, ...]) -> Task:
    """The task of putting each thing into the vessel named with it."""
    family = "gather" if len({vessel.name for _, vessel in moves}) == 1 else "sort"
    script: list[Move] = []
    for (item, vessel), (x, y) in zip(moves, SPOTS, strict=True):
        spot = (x, y, 0.02) if family == "gather" else (0.0, 0.0, 0.02)
        there = Inside(item.name, vessel.name)
        put = Put(item=item.name, frame=vessel.name, at=spot, unless=there)
        script += [Pick(item=item.name, unless=there), put]
    (a, va), (b, vb) = moves
    if family == "gather":
        wording = (
            f"Put the {a.words} and the {b.words} in the {va.words}.",
            f"Place both the {a.words} and the {b.words} into the {va.words}.",
            f"Collect the {a.words} and the {b.words} in the {va.words}.",
        )
    else:
        wording = (
            f"Put the {a.words} in the {va.words} and the {b.words} in the {vb.words}.",
            f"Sort the things: {a.words} into the {va.words}, {b.words} into the {vb.words}.",
            f"Place the {a.words} into the {va.words}, then the {b.words} into the {vb.words}.",
        )
    things = tuple(dict.fromkeys(thing for pair in moves for thing in pair))
    return Task(
        name=f"{family}-" + "-".join(f"{item.name}-{vessel.name}" for item, vessel in moves),
        family=family,
        things=things,
        foils=foils,
        script=tuple(script),
        success=All(tuple(Inside(item.name, vessel.name) for item, vessel in moves)),
        instructions=wording,
    )


def tasks() -> Iterator[Task]:
    """Each pair both ways round, and pairs of fruit into either vessel."""
    bowl_, box_ = VESSELS
    for a, b in PAIRS:
        yield sort(((a, bowl_), (b, box_)), ())
        yield sort(((a, box_), (b, bowl_)), ())
    for a, b in FRUITS:
        yield sort(((a, bowl_), (b, bowl_)), (box_,))
        yield sort(((a, box_), (b, box_)), (bowl_,))

"""Drills: touch one of a table full of things. No task of the bench, but what nearly all of them begin with.

To learn which thing of its own scene is the one a hand goes for, a model needs more scenes and videos than tasks give,
and in every scene each thing must be what is meant as often as any other: then neither a scene nor a video known by
heart tells the answer. Things are of the kinds that training tasks touch first, in any colour.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hostbot.sim.catalogue import split, task
from hostbot.sim.moves import Drag, Move, Pick, Press, Turn
from hostbot.sim.predicates import InHand, Predicate, Pressed
from hostbot.sim.task import Task
from hostbot.sim.things import COLOURS, Kind, Thing

NAME = "touch"
THINGS = 4
"""Things of a scene, any of which may be meant."""
_ALIKE = 0.5
"""How often a thing is of the kind of the one before it: then its colour alone tells it apart."""


def drill(seed: int, which: int) -> Task:
    """The scene of a seed, in which the thing of a number is to be touched."""
    rng = np.random.default_rng([seed, *NAME.encode()])
    known, looks = kinds(), dict[tuple[str, str], None]()
    kind = str(rng.choice(list(known)))
    while len(looks) < THINGS:
        kind = kind if looks and rng.random() < _ALIKE else str(rng.choice(list(known)))
        looks[kind, str(rng.choice(list(COLOURS)))] = None
    things = [Thing(name=f"{colour}_{kind}", kind=known[kind][0], colour=colour) for kind, colour in looks]
    meant = things.pop(which % THINGS)
    move, success = _touch(meant.name, known[meant.kind.__name__][1])
    return Task(
        name=NAME,
        family=NAME,
        things=(meant,),
        foils=tuple(things),
        script=(move,),
        success=success,
        instructions=(f"Touch the {meant.words}.",),
    )


def _touch(name: str, move: type[Move]) -> tuple[Move, Predicate]:
    if move is Press:
        return Press(item=name), Pressed((name,))
    return Pick(item=name, which=0 if move in (Drag, Turn) else None, lift=False), InHand(name)


@cache
def kinds() -> dict[str, tuple[Kind, type[Move]]]:
    """What training tasks touch first, with one hand, and by which kind of move."""
    found: dict[str, tuple[Kind, type[Move]]] = {}
    for name in split().train:
        one = task(name)
        move, scene = one.script[0], {thing.name: thing for thing in one.scene}
        if one.hands == 1 and isinstance(move, Drag | Pick | Press | Turn):
            kind = scene[move.item].kind
            found.setdefault(kind.__name__, (kind, type(move)))
    return dict(sorted(found.items()))

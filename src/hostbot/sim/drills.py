"""Drills: touch one of a table full of things, or bring what is held to one. No tasks of the bench, but what nearly all
of them are made of.

To learn which thing of its own scene is the one a hand goes for, a model needs more scenes and videos than tasks give,
and in every scene each thing must be what is meant as often as any other: then neither a scene nor a video known by
heart tells the answer. Things are of the kinds that training tasks touch first, or put something at, or made up, in any
colour. No drill asks for what a novel task does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np

from hostbot.sim.catalogue import split, task
from hostbot.sim.moves import Drag, Move, Pick, Press, Put, Turn
from hostbot.sim.predicates import DIRECTIONS, InHand, Predicate, Pressed, PutDown
from hostbot.sim.task import Task
from hostbot.sim.things import COLOURS, Kind, Thing
from hostbot.sim.things.made_up import COUNT, made_up, palette

NAME = "drill"
TOUCH, BRING = "touch", "bring"
THINGS = 4
"""Things of a scene, any of which may be meant."""
_ALIKE = 0.5
"""How often a thing is of the kind of the one before it: then its colour alone tells it apart."""
_MADE_UP = 0.5
"""How often a thing is of a kind that was made up."""
_BRINGS = 0.5
"""Share of scenes in which something is brought."""
_FAR, _BESIDE = 0.05, 0.09
"""Metres: what is put further from a thing's middle is put beside it; how far from one that was made up."""
_SIDES = {"left": "to the left of", "right": "to the right of", "front": "in front of", "behind": "behind"}


def drill(seed: int, which: int, begun: bool = True) -> Task:
    """The scene of a seed, in which the thing of a number is meant.

    What is to be brought is in the hand already, and not named, or it has to be taken first if the drill is not begun.
    """
    rng = np.random.default_rng([seed, *NAME.encode()])
    return _bring(rng, which, begun) if rng.random() < _BRINGS else _touch(rng, which)


def _touch(rng: np.random.Generator, which: int) -> Task:
    known = touched()
    things = list(_things(rng, {name: kind for name, (kind, _) in known.items()}, THINGS))
    meant = things.pop(which % THINGS)
    move, success = _first_touch(meant.name, known[_kind(meant)][1] if _kind(meant) in known else Pick)
    return Task(
        name=NAME,
        family=TOUCH,
        things=(meant,),
        foils=tuple(things),
        script=(move,),
        success=success,
        instructions=(f"Touch the {meant.words}.",),
    )


def _first_touch(name: str, move: type[Move]) -> tuple[Move, Predicate]:
    if move is Press:
        return Press(item=name), Pressed((name,))
    return Pick(item=name, which=0 if move in (Drag, Turn) else None, lift=False), InHand(name)


def _bring(rng: np.random.Generator, which: int, begun: bool) -> Task:
    known = places()
    held = next(_things(rng, carried(), 1))
    own = {name: kind for name, (kind, _) in known.items()}
    things = list(_things(rng, own, THINGS, {_look(held)}, _kept_for(held)))
    ways = [known[_kind(thing)][1] if _kind(thing) in known else _beside(thing) for thing in things]
    chosen = [listed[int(rng.integers(len(listed)))] for listed in ways]
    meant, (where, put) = things.pop(which % THINGS), chosen[which % THINGS]
    put = replace(put, item=held.name, frame=meant.name)
    return Task(
        name=NAME,
        family=BRING,
        things=(held, meant),
        foils=tuple(things),
        script=(Pick(item=held.name), put),
        success=PutDown(held.name, meant.name, put.at, put.square),
        instructions=(f"Put {'it' if begun else f'the {held.words}'} {where} the {meant.words}.",),
        begun=1 if begun else 0,
    )


def _things(
    rng: np.random.Generator,
    known: dict[str, Kind],
    count: int,
    besides: Iterable[tuple[str, str]] = (),
    never: Iterable[tuple[str, str]] = (),
) -> Iterator[Thing]:
    """Things no two of which look the same."""
    looks, barred = set(besides), set(never)
    kind, colours = _drawn(rng, known)
    for k in range(count):
        while True:
            if k and rng.random() >= _ALIKE:
                kind, colours = _drawn(rng, known)
            look = kind.__name__, str(rng.choice(colours))
            if look not in looks | barred:
                break
        looks.add(look)
        yield Thing(name=f"{look[1]}_{look[0]}", kind=kind, colour=look[1])


def _drawn(rng: np.random.Generator, known: dict[str, Kind]) -> tuple[Kind, Sequence[str]]:
    """Any kind, and the colours it has."""
    if rng.random() < _MADE_UP:
        number = int(rng.integers(COUNT))
        return made_up(number), palette(number)
    return known[str(rng.choice(list(known)))], list(COLOURS)


def _kind(thing: Thing) -> str:
    return thing.kind.__name__


def _look(thing: Thing) -> tuple[str, str]:
    return _kind(thing), thing.colour


def _kept_for(held: Thing) -> set[tuple[str, str]]:
    """What novel tasks bring together with such a thing, whichever way: no drill does."""
    return {other for one, other in _novel() if one == _look(held)}


@cache
def _novel() -> frozenset[tuple[tuple[str, str], tuple[str, str]]]:
    """Any two things, by looks, that a novel task is about."""
    together = [map(_look, task(name).things) for name in split().novel]
    return frozenset(pair for looks in together for pair in permutations(looks, 2))


def _beside(thing: Thing) -> tuple[tuple[str, Put], ...]:
    """The one way to put something at a thing that was made up: so that many scenes have the same."""
    sides = list(DIRECTIONS)
    side = sides[sum(_kind(thing).encode()) % len(sides)]
    x, y = (_BESIDE * share for share in DIRECTIONS[side])
    return ((_SIDES[side], Put(item="", frame="", at=(x, y, 0.0), square=True)),)


@cache
def touched() -> dict[str, tuple[Kind, type[Move]]]:
    """What training tasks touch first, with one hand, and by which kind of move."""
    found: dict[str, tuple[Kind, type[Move]]] = {}
    for one, scene in _training():
        move = one.script[0]
        if isinstance(move, Drag | Pick | Press | Turn):
            kind = scene[move.item].kind
            found.setdefault(kind.__name__, (kind, type(move)))
    return dict(sorted(found.items()))


@cache
def carried() -> dict[str, Kind]:
    """What training tasks put somewhere, with one hand."""
    kinds = [scene[put.item].kind for _, scene, put in _puts()]
    return {kind.__name__: kind for kind in sorted(kinds, key=lambda kind: kind.__name__)}


@cache
def places() -> dict[str, tuple[Kind, tuple[tuple[str, Put], ...]]]:
    """What training tasks put something at, and in which ways, each with its words."""
    found: dict[str, tuple[Kind, dict[str, Put]]] = {}
    for one, scene, put in _puts():
        if put.frame in scene and (words := _words(one, put)):
            kind = scene[put.frame].kind
            found.setdefault(kind.__name__, (kind, {}))[1].setdefault(words, put)
    return {name: (kind, tuple(ways.items())) for name, (kind, ways) in sorted(found.items())}


def _words(one: Task, put: Put) -> str:
    """On, in, or on which side; nothing for a place that is neither in the middle nor beside."""
    away = np.asarray(put.at[:2])
    if not away.any():
        return "in" if f" in the {put.frame.replace('_', ' ')}" in one.instructions[0] else "on"
    if np.linalg.norm(away) < _FAR:
        return ""
    side = max(DIRECTIONS, key=lambda name: float(away @ np.asarray(DIRECTIONS[name])))
    return _SIDES[side]


def _puts() -> Iterator[tuple[Task, dict[str, Thing], Put]]:
    for one, scene in _training():
        for move in one.script:
            if isinstance(move, Put):
                yield one, scene, move


def _training() -> Iterator[tuple[Task, dict[str, Thing]]]:
    """Training tasks for one hand."""
    for name in split().train:
        if (one := task(name)).hands == 1:
            yield one, {thing.name: thing for thing in one.scene}

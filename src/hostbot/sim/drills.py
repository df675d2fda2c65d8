"""Drills: touch one of a table full of things, or bring what is held to one. No tasks of the bench, but what nearly all
of them are made of. Drills that are acted whole also push and move things where they stand, hold one above another,
lean one, wave over one, and do two such deeds in a row: a hand that is watched may do anything.

To learn which thing of its own scene is the one a hand goes for, a model needs more scenes and videos than tasks give,
and in every scene each thing must be what is meant as often as any other: then neither a scene nor a video known by
heart tells the answer. Things are of the kinds that training tasks touch first, or put something at, or made up, in any
colour. No drill asks for what a novel task does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np

from hostbot.sim import deeds
from hostbot.sim.catalogue import split, task
from hostbot.sim.deeds import OVER, TURNS, WAYS, Deed, shape_of, slides, stands
from hostbot.sim.moves import Drag, Move, Pick, Press, Put, Shove, Turn
from hostbot.sim.predicates import DIRECTIONS, All, InHand, Predicate, Pressed, PutDown
from hostbot.sim.task import Task
from hostbot.sim.things import COLOURS, Kind, Thing
from hostbot.sim.things.made_up import COUNT, SLIM, made_up, palette, slim

NAME = "drill"
TOUCH, BRING, PUSH, MOVE, HOLD, THEN = "touch", "bring", "push", "move", "hold", "then"
LEAN, WAVE = "lean", "wave"
SHARES = {TOUCH: 0.12, BRING: 0.30, PUSH: 0.13, MOVE: 0.12, HOLD: 0.06, THEN: 0.13, LEAN: 0.08, WAVE: 0.06}
"""How many of the drills that are acted whole are of each family."""
THINGS = 4
"""Things of a scene, any of which may be meant."""
_ALIKE = 0.5
"""How often a thing is of the kind of the one before it: then its colour alone tells it apart."""
_MADE_UP = 0.5
"""How often a thing is of a kind that was made up."""
_SLIM = 0.3
"""How often that is a slim one, in drills that are acted whole."""
_BRINGS = 0.5
"""Share of sketched scenes in which something is brought."""
_OVER, _PUSH_FIRST, _PUSH_LAST = 0.6, 0.6, 0.3
"""How often something is held right above another thing, and how often what can be pushed is: before, and after."""
_FORWARD = 0.8
"""How often something is leant forward."""
_NOT_PUSHED = ("banana", "lid")
"""Fingers behind it would pass over its edge, or meet it sooner on one side than on another."""
_NOT_MOVED = ("banana", "book", "bottle")
"""Jaws that close beside it tip it over."""
_FAR, _BESIDE = 0.05, 0.09
"""Metres: what is put further from a thing's middle is put beside it; how far from one that was made up."""
_SIDES = {"left": "to the left of", "right": "to the right of", "front": "in front of", "behind": "behind"}


def drill(seed: int, which: int, begun: bool = True) -> Task:
    """The scene of a seed, in which the thing of a number is meant.

    What is to be brought is in the hand already, and not named, or it has to be taken first if the drill is not begun.
    Those that are not begun are of all families.
    """
    rng = np.random.default_rng([seed, *NAME.encode()])
    if begun:
        return _bring(rng, which, begun) if rng.random() < _BRINGS else _touch(rng, which)
    family = str(rng.choice(list(SHARES), p=list(SHARES.values())))
    if family == BRING:
        return _bring(rng, which, begun)
    return _touch(rng, which, begun) if family == TOUCH else _do(family, rng, which)


def _touch(rng: np.random.Generator, which: int, begun: bool = True) -> Task:
    known = touched()
    kinds = {name: kind for name, (kind, _) in known.items()}
    things = list(_things(rng, kinds, THINGS, slims=not begun))
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
    held = next(_things(rng, carried(), 1, slims=not begun))
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


def _do(family: str, rng: np.random.Generator, which: int) -> Task:
    """A drill of deeds; each of a scene's things has its own."""
    any_deed = pressed() | pushed() | moved()
    known = {PUSH: pushed(), THEN: any_deed, WAVE: any_deed}.get(family) or moved()
    things = _strangers(rng, known, slides if family == PUSH else stands)
    drawn = [_deeds(family, rng, things, k) for k in range(THINGS)]
    chosen = drawn[which % THINGS]
    meant = tuple(dict.fromkeys(thing for deed in chosen for thing in deed.things))
    words = ", then ".join(deed.words for deed in chosen)
    return Task(
        name=NAME,
        family=family,
        things=meant,
        foils=tuple(thing for thing in things if thing not in meant),
        script=tuple(move for deed in chosen for move in deed.script),
        success=_all_of(chosen),
        instructions=(f"{words[0].upper()}{words[1:]}.",),
        free=tuple(spot for deed in chosen for spot in deed.free),
    )


def _deeds(family: str, rng: np.random.Generator, things: Sequence[Thing], which: int) -> tuple[Deed, ...]:
    item, other = things[which], things[(which + int(rng.integers(1, THINGS))) % THINGS]
    if family == PUSH:
        return (deeds.push(item, _way(item, rng)),)
    if family == MOVE:
        return (_move(item, rng),)
    if family == LEAN:
        return (deeds.lean(item, "forward" if rng.random() < _FORWARD else "back"),)
    if family == WAVE:
        return (deeds.wave(item, str(rng.choice(list(WAYS)))),)
    if family == HOLD:
        sides = list(OVER)[1:]
        return (deeds.hold(item, other, "over" if rng.random() < _OVER else str(rng.choice(sides))),)
    return _lasting(item, rng, _PUSH_FIRST), _lasting(other, rng, _PUSH_LAST, last=True)


def _lasting(item: Thing, rng: np.random.Generator, pushes: float, last: bool = False) -> Deed:
    """Something done to a thing that can still be seen later; what comes last may also be to touch it."""
    if _kind(item) in pressed():
        return deeds.press(item)
    taken_well = _kind(item) in moved() or _kind(item) not in pushed()
    slid = slides(item.kind) and _kind(item) not in _NOT_PUSHED
    if slid and (rng.random() < pushes or not taken_well):
        return deeds.push(item, _way(item, rng))
    return deeds.touch(item) if last else _move(item, rng)


def _move(item: Thing, rng: np.random.Generator) -> Deed:
    """Some things are turned, too: such as have sides to tell it by."""
    turn = str(rng.choice(list(TURNS)))
    return deeds.move(item, _way(item, rng), turn if any(shape_of(item.kind).sides) else "")


def _way(item: Thing, rng: np.random.Generator) -> str:
    """Any way; not closer if a novel task is to get it closer."""
    ways = [way for way, (x, _) in WAYS.items() if x >= 0 or _look(item) not in _raked()]
    return str(rng.choice(ways))


def _all_of(done: Sequence[Deed]) -> Predicate:
    """All that is left to see of what was done; buttons that were pressed, in that order."""
    order = tuple(name for deed in done if isinstance(deed.success, Pressed) for name in deed.success.order)
    others = [deed.success for deed in done if not isinstance(deed.success, Pressed)]
    parts = (*([Pressed(order)] if order else []), *others)
    return parts[0] if len(parts) == 1 else All(parts)


def _any(_: Kind) -> bool:
    return True


def _strangers(rng: np.random.Generator, known: dict[str, Kind], fits: Callable[[Kind], bool]) -> list[Thing]:
    """The things of a scene, no two of which any novel task is about."""
    while True:
        things = list(_things(rng, known, THINGS, fits=fits, slims=True))
        if not any((_look(one), _look(other)) in _novel() for one, other in permutations(things, 2)):
            return things


def _things(
    rng: np.random.Generator,
    known: dict[str, Kind],
    count: int,
    besides: Iterable[tuple[str, str]] = (),
    never: Iterable[tuple[str, str]] = (),
    fits: Callable[[Kind], bool] = _any,
    slims: bool = False,
) -> Iterator[Thing]:
    """Things no two of which look the same."""
    looks, barred = set(besides), set(never)
    kind, colours = _drawn(rng, known, fits, slims)
    for k in range(count):
        while True:
            if k and rng.random() >= _ALIKE:
                kind, colours = _drawn(rng, known, fits, slims)
            look = kind.__name__, str(rng.choice(colours))
            if look not in looks | barred:
                break
        looks.add(look)
        yield Thing(name=f"{look[1]}_{look[0]}", kind=kind, colour=look[1])


def _drawn(
    rng: np.random.Generator, known: dict[str, Kind], fits: Callable[[Kind], bool], slims: bool
) -> tuple[Kind, Sequence[str]]:
    """Any kind that fits, and the colours it has."""
    if rng.random() < _MADE_UP:
        if slims and rng.random() < _SLIM:
            number = int(rng.integers(SLIM))
            if fits(slim(number)):
                return slim(number), palette(COUNT + number)
        number = int(rng.integers(COUNT))
        while not fits(made_up(number)):
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


@cache
def _raked() -> frozenset[tuple[str, str]]:
    """What novel tasks are to get closer, by looks."""
    return frozenset(
        _look(thing) for name in split().novel if task(name).family == "rake" for thing in task(name).things
    )


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
def pressed() -> dict[str, Kind]:
    """What training tasks press first."""
    return {name: kind for name, (kind, move) in touched().items() if move is Press}


@cache
def taken() -> dict[str, Kind]:
    """What training tasks take first, with one hand."""
    return {name: kind for name, (kind, move) in touched().items() if move is Pick}


@cache
def moved() -> dict[str, Kind]:
    """What training tasks take first, if it does not fall over easily."""
    return {name: kind for name, kind in taken().items() if name not in _NOT_MOVED}


@cache
def pushed() -> dict[str, Kind]:
    """What training tasks push along the table, or take and might push."""
    shoved = {
        scene[move.item].kind for one, scene in _training() for move in one.script if isinstance(move, Shove)
    }
    found = {kind.__name__: kind for kind in shoved} | taken()
    return {name: found[name] for name in sorted(found) if slides(found[name]) and name not in _NOT_PUSHED}


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

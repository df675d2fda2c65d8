"""Training tasks in other colours among other things, so that nothing but the demonstration tells what is meant.

In the bench's own scenes the things on the table nearly give the task away: of 229 training tasks 96 have things that
no other task has, and a button that is pressed always stands with the same two. A model learns that by heart and
ignores the video. Here a task's things have colours drawn for each variant, and what else stands there is drawn for
each scene.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from hostbot.sim.catalogue import split, task, tasks
from hostbot.sim.task import Task
from hostbot.sim.things import COLOURS, Kind, Thing
from hostbot.types import BadInput

_LIKE_MEANT = 0.5
"""How often another thing is of a kind that the task is about: that is what must be told apart."""
_TRIES = 200
_ALONE = ("tray",)
"""Kinds so large that a second one does not fit on the table."""
_TWIN = "twin"
"""How the name of a thing's double begins; the thing's number follows."""


def varied(of: Task, variant: int, seed: int) -> Task:
    """A training task in the colours of a variant, in a scene of other things drawn by the seed.

    Names stay, since scripts and predicates use them; looks and instructions change. No variant is a novel task.
    Variants come in twos: what is meant in one stands by in the other, so that both can be meant in a scene of either.
    """
    if split().of(of.name) == "novel":
        raise BadInput(f"{of.name} is a novel task: variants are for training")
    meant = _doubled(of)
    own = [zlib.crc32(of.name.encode()), variant // 2 if meant else variant]
    colours, twin = _colours(of, meant, np.random.default_rng(own), bool(variant % 2))
    things = tuple(replace(thing, colour=colours[thing.name]) for thing in of.things)
    foils = _others(of, things, twin, np.random.default_rng([*own, variant % 2, seed]))
    instructions = tuple(_reworded(text, of.things, colours) for text in of.instructions)
    return replace(of, things=things, foils=foils, instructions=instructions)


def exchanged(of: Task) -> Task | None:
    """The other one of two variants, in the scene of this one: the same table, something else is meant.

    Names are exchanged in the script, the instructions are left as they were. None where nothing stands by.
    """
    for foil in of.foils:
        if foil.name.startswith(_TWIN):
            meant = of.things[int(foil.name.removeprefix(_TWIN).split("_")[0])]
            names = {meant.name: foil.name, foil.name: meant.name}
            found: Task = replace(
                renamed(of, names),
                name=of.name,
                family=of.family,
                instructions=of.instructions,
                things=tuple(foil if thing == meant else thing for thing in of.things),
                foils=tuple(meant if thing == foil else thing for thing in of.foils),
            )
            return found
    return None


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Data with other names of things, wherever they or their parts are named."""
    if isinstance(value, str):
        head, slash, part = value.partition("/")
        return names.get(head, head) + slash + part
    if isinstance(value, tuple):
        return tuple(renamed(one, names) for one in value)
    if isinstance(value, Mapping):
        return {renamed(key, names): renamed(one, names) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type | Thing):
        return replace(
            value, **{f.name: renamed(getattr(value, f.name), names) for f in fields(value) if f.init}
        )
    return value


def _doubled(of: Task) -> list[int]:
    """Which of a task's things can have a double standing by."""
    fixed = _bound(of) | {host for _, host, _ in of.nested}
    if of.hands != 1 or all(foil.name in _bound(of) for foil in of.foils):
        return []
    return [
        index
        for index, thing in enumerate(of.things)
        if thing.name not in fixed
        and thing.kind.__name__ not in _ALONE
        and renamed(of.script, {thing.name: ""}) != of.script
    ]


def _colours(
    of: Task, meant: list[int], rng: np.random.Generator, turned: bool
) -> tuple[dict[str, str], tuple[int, str] | None]:
    """A colour for each of the task's things, different for things of a kind, such that no novel task comes out.

    Besides, which of them has a double standing by, and its colour.
    """
    for _ in range(_TRIES):
        drawn = {thing.name: str(rng.choice(list(COLOURS))) for thing in of.things}
        twin, other = None, drawn
        if meant:
            index, colour = int(rng.choice(meant)), str(rng.choice(list(COLOURS)))
            name = of.things[index].name
            other = drawn | {name: colour}
            twin = (index, drawn[name] if turned else colour)
        looks = [(thing.kind, drawn[thing.name]) for thing in of.things]
        looks += [] if twin is None else [(of.things[twin[0]].kind, other[of.things[twin[0]].name])]
        if len(set(looks)) == len(looks) and not _is_novel(of, drawn) and not _is_novel(of, other):
            return (other if turned else drawn), twin
    raise BadInput(f"{of.name} has no variant that is not a novel task")


def _bound(of: Task) -> set[str]:
    """Things that start in or on another, or with a part moved."""
    return {joint.split("/")[0] for joint, _ in of.joints} | {item for item, _, _ in of.nested}


def _is_novel(of: Task, colours: Mapping[str, str]) -> bool:
    names = {thing.name: _renamed(thing, colours[thing.name]) for thing in of.things}
    name = "-".join(names.get(part, part) for part in of.name.split("-"))
    taken, said = _novel()
    return name in taken or any(_reworded(text, of.things, colours) in said for text in of.instructions)


@cache
def _novel() -> tuple[frozenset[str], frozenset[str]]:
    names = frozenset(split().novel)
    return names, frozenset(text for name in names for text in task(name).instructions)


def _renamed(thing: Thing, colour: str) -> str:
    return thing.name.replace(thing.colour, colour, 1)


def _reworded(text: str, things: tuple[Thing, ...], colours: Mapping[str, str]) -> str:
    """An instruction with the new colours; all at once, since one thing's new words may be another's old ones."""
    for index, thing in enumerate(things):
        text = text.replace(thing.words, f"{{{index}}}")
    return text.format(*(_renamed(thing, colours[thing.name]).replace("_", " ") for thing in things))


def _others(
    of: Task, things: tuple[Thing, ...], twin: tuple[int, str] | None, rng: np.random.Generator
) -> tuple[Thing, ...]:
    """As many other things as the task has: the double, then of the kinds it is about, or of those its family knows."""
    bound = _bound(of)
    # Two hands need the room: there only what stood beside such a task before.
    meant = [thing.kind for thing in things if thing.name not in bound and of.hands == 1]
    taken = {(thing.kind, thing.colour) for thing in things}
    taken |= set() if twin is None else {(things[twin[0]].kind, twin[1])}
    found = []
    for index, foil in enumerate(of.foils):
        if twin is not None and foil.name not in bound:
            kind = things[twin[0]].kind
            found.append(Thing(name=f"{_TWIN}{twin[0]}_{kind.__name__}", kind=kind, colour=twin[1]))
            twin = None
            continue
        name, kind = foil.name, foil.kind
        if foil.name not in bound:
            kind = _draw(
                meant if meant and rng.random() < _LIKE_MEANT else _kinds(of.family, of.hands == 2), rng
            )
            name = f"other{index}_{kind.__name__}"
        free = [colour for colour in COLOURS if (kind, colour) not in taken]
        colour = str(rng.choice(free))
        taken.add((kind, colour))
        found.append(Thing(name=name, kind=kind, colour=colour))
    return tuple(found)


def _draw(kinds: list[Kind] | tuple[Kind, ...], rng: np.random.Generator) -> Kind:
    return kinds[int(rng.integers(len(kinds)))]


@cache
def _kinds(family: str, foils_only: bool) -> tuple[Kind, ...]:
    """What stands by itself in scenes of a family's training tasks, each kind once."""
    kinds: dict[str, Kind] = {}
    for name in split().train:
        one = tasks()[name]
        bound = _bound(one)
        if one.family == family:
            there = one.foils if foils_only else one.scene
            kinds |= {t.kind.__name__: t.kind for t in there if t.name not in bound}
    return tuple(kinds[name] for name in sorted(kinds))

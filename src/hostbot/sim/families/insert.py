"""Stand a marker in a pen holder."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Pick, Put
from hostbot.sim.predicates import Stands
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, holder, marker, thing

PENS = tuple(thing(colour, marker, "pen") for colour in ("red", "blue"))
HOLDERS = tuple(thing(colour, holder) for colour in ("grey", "orange"))


def insert(item: Thing, vessel: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of standing one pen in one holder."""
    return Task(
        name=f"insert-{item.name}-{vessel.name}",
        family="insert",
        things=(item, vessel),
        foils=foils,
        script=(Pick(item=item.name), Put(item=item.name, frame=vessel.name, at=(0, 0, 0.012), drop=0.003)),
        success=Stands(item.name, vessel.name),
        instructions=(
            f"Insert the {item.words} into the {vessel.words}.",
            f"Put the {item.words} in the {vessel.words}.",
            f"Stand the {item.words} up in the {vessel.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Every pen with every holder."""
    for i, item in enumerate(PENS):
        for k, vessel in enumerate(HOLDERS):
            yield insert(item, vessel, (PENS[1 - i], HOLDERS[1 - k]))

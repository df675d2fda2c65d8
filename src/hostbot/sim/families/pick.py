"""Pick one thing up and hold it high."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Pick, Wait
from hostbot.sim.predicates import Lifted
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, book, pen, ring, sponge, thing

ITEMS = (
    thing("red", book),
    thing("yellow", sponge),
    thing("green", ring),
    thing("blue", book),
    thing("pink", sponge),
    thing("orange", ring),
    thing("black", pen),
    thing("green", book),
    thing("blue", pen),
    thing("white", ring),
)
HIGH = 0.17


def pick(item: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of holding one thing up."""
    return Task(
        name=f"pick-{item.name}",
        family="pick",
        things=(item,),
        foils=foils,
        script=(Pick(item=item.name, height=HIGH + 0.04), Wait(seconds=0.9)),
        success=Lifted(item.name, HIGH),
        instructions=(
            f"Pick up the {item.words} and hold it high.",
            f"Lift the {item.words} up.",
            f"Take the {item.words} and raise it.",
        ),
    )


def tasks() -> Iterator[Task]:
    """One task a thing, two others beside it."""
    for i, item in enumerate(ITEMS):
        yield pick(item, (ITEMS[(i + 1) % len(ITEMS)], ITEMS[(i + 2) % len(ITEMS)]))

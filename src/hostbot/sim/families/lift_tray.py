"""Lift a tray level with two hands, empty or with something on it."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.families.place_on import place_on
from hostbot.sim.moves import LiftBoth, Wait
from hostbot.sim.predicates import All, HeldBy, Lifted, Predicate
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, block, can, thing, tray

TRAYS = tuple(thing(colour, tray) for colour in ("brown", "blue", "green"))
LOADS = (thing("red", block), thing("yellow", block), thing("orange", can))


def lift_tray(item: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of lifting one tray."""
    parts: tuple[Predicate, ...] = (Lifted(item.name, 0.05), HeldBy(item.name))
    return Task(
        name=f"lift_tray-{item.name}",
        family="lift_tray",
        things=(item,),
        foils=foils,
        hands=2,
        script=(LiftBoth(item=item.name), Wait(seconds=1.0)),
        success=All(parts),
        instructions=(
            f"Lift the {item.words} with both hands.",
            f"Pick up the {item.words} using two hands.",
            f"Raise the {item.words} off the table, one hand on each handle.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Lift each tray, or put one of the two things beside it on it."""
    for i, item in enumerate(TRAYS):
        loads = (LOADS[i], LOADS[(i + 1) % len(LOADS)])
        yield lift_tray(item, loads)
        yield place_on(loads[0], item, 0.008, (loads[1],))
        yield place_on(loads[1], item, 0.008, (loads[0],))

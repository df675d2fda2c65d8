"""Put an item into a vessel."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Pick, Put
from hostbot.sim.predicates import Inside
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, apple, banana, block, bowl, box, can, cup, plum, pot, thing

ITEMS = (
    thing("red", apple),
    thing("yellow", banana),
    thing("purple", plum),
    thing("blue", block),
    thing("green", block),
)
VESSELS = (thing("white", bowl), thing("brown", box), thing("grey", pot))
CUPS = (thing("cyan", cup), thing("pink", cup))


def place_in(item: Thing, vessel: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of putting one item into one vessel."""
    name, where = item.words, vessel.words
    return Task(
        name=f"place_in-{item.name}-{vessel.name}",
        family="place_in",
        things=(item, vessel),
        foils=foils,
        script=(Pick(item=item.name), Put(item=item.name, frame=vessel.name, at=(0, 0, 0.02))),
        success=Inside(item.name, vessel.name),
        instructions=(
            f"Put the {name} in the {where}.",
            f"Place the {name} into the {where}.",
            f"Pick up the {name} and drop it in the {where}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Every item with every vessel, another item and another vessel beside them."""
    for i, item in enumerate(ITEMS):
        for k, vessel in enumerate(VESSELS):
            foils = (ITEMS[(i + 1 + k) % len(ITEMS)], VESSELS[(k + 1) % len(VESSELS)])
            yield place_in(item, vessel, foils)
    small = (thing("purple", plum), thing("orange", plum), thing("red", plum))
    for i, item in enumerate(small):
        for k, vessel in enumerate(CUPS):
            yield place_in(item, vessel, (small[(i + 1) % 3], CUPS[1 - k]))
    tins = (thing("green", can), thing("orange", can))
    for i, item in enumerate(tins):
        for k, vessel in enumerate(VESSELS[:2]):
            yield place_in(item, vessel, (tins[1 - i], VESSELS[1 - k]))

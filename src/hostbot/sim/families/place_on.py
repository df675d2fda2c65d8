"""Put an item on top of something flat."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Pick, Put
from hostbot.sim.predicates import On
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, apple, banana, block, book, bottle, can, crate, cup, plate, thing

ITEMS = (
    thing("red", block),
    thing("green", can),
    thing("yellow", banana),
    thing("blue", bottle),
    thing("orange", block),
    thing("pink", cup),
)
SUPPORTS = ((thing("white", plate), 0.008), (thing("blue", book), 0.022), (thing("brown", crate), 0.060))


def place_on(item: Thing, support: Thing, height: float, foils: tuple[Thing, ...]) -> Task:
    """The task of putting one item on one support."""
    return Task(
        name=f"place_on-{item.name}-{support.name}",
        family="place_on",
        things=(item, support),
        foils=foils,
        script=(Pick(item=item.name), Put(item=item.name, frame=support.name, at=(0, 0, height))),
        success=On(item.name, support.name),
        instructions=(
            f"Put the {item.words} on the {support.words}.",
            f"Set the {item.words} down on top of the {support.words}.",
            f"Place the {item.words} onto the {support.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Every item on every support that carries it, with another item and another support."""
    for i, item in enumerate(ITEMS):
        for k, (support, height) in enumerate(SUPPORTS):
            if support.kind is book and item.kind in (bottle, cup):
                continue
            other = ITEMS[(i + 1) % len(ITEMS)]
            if k == 2 and other.kind is bottle:
                other = ITEMS[(i + 2) % len(ITEMS)]
            yield place_on(item, support, height, (other, SUPPORTS[(k + 2) % 3][0]))
    saucers = (thing("yellow", plate), thing("green", plate))
    fruits = (thing("red", apple), thing("green", apple))
    for i, item in enumerate(fruits):
        for k, support in enumerate(saucers):
            yield place_on(item, support, 0.008, (fruits[1 - i], saucers[1 - k]))

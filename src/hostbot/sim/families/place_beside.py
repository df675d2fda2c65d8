"""Put an item next to a landmark, on a given side of it."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Pick, Put
from hostbot.sim.predicates import DIRECTIONS, Beside
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, block, bottle, bowl, can, cup, thing

WORDS = {
    "left": ("to the left of", "on the left side of"),
    "right": ("to the right of", "on the right side of"),
    "front": ("in front of", "on the near side of"),
    "behind": ("behind", "on the far side of"),
}
PAIRS = (
    (thing("red", can), thing("white", bowl), 0.112),
    (thing("blue", block), thing("green", bottle), 0.078),
    (thing("yellow", can), thing("cyan", cup), 0.090),
    (thing("purple", block), thing("orange", bowl), 0.108),
    (thing("green", block), thing("red", bottle), 0.078),
)


def place_beside(item: Thing, landmark: Thing, side: str, distance: float, foils: tuple[Thing, ...]) -> Task:
    """The task of putting one item on one side of one landmark."""
    x, y = (distance * v for v in DIRECTIONS[side])
    put = Put(item=item.name, frame=landmark.name, at=(x, y, 0.0), square=True)
    where, longer = WORDS[side]
    return Task(
        name=f"place_beside-{item.name}-{side}-{landmark.name}",
        family="place_beside",
        things=(item, landmark),
        foils=foils,
        script=(Pick(item=item.name), put),
        free=((landmark.name, x, y, 0.05),),
        success=Beside(item.name, landmark.name, side),
        instructions=(
            f"Put the {item.words} {where} the {landmark.words}.",
            f"Place the {item.words} {longer} the {landmark.words}.",
            f"Move the {item.words} so that it stands {where} the {landmark.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Every pair with every side; the other sides are what else could be meant."""
    for i, (item, landmark, distance) in enumerate(PAIRS):
        for side in DIRECTIONS:
            yield place_beside(item, landmark, side, distance, (PAIRS[(i + 1) % len(PAIRS)][0],))

"""Cover a thing: a sheet over a book, a shell over something small."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Pick, Put
from hostbot.sim.predicates import Over
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, apple, block, book, cloth, shell, thing

SMALL = (thing("yellow", block), thing("red", apple), thing("green", block))
BOOKS = (thing("red", book), thing("blue", book))
SHELL, CLOTH = thing("white", shell), thing("cyan", cloth)


def cover(item: Thing, top: Thing, height: float, foils: tuple[Thing, ...]) -> Task:
    """The task of covering one thing."""
    yaw = 0.0 if top.kind is cloth else None
    return Task(
        name=f"cover-{item.name}-{top.name}",
        family="cover",
        things=(item, top),
        foils=foils,
        script=(
            Pick(item=top.name),
            Put(item=top.name, frame=item.name, at=(0, 0, height), yaw=yaw, flip=True, drop=0.003),
        ),
        success=Over(top.name, item.name),
        instructions=(
            f"Cover the {item.words} with the {top.words}.",
            f"Put the {top.words} over the {item.words}.",
            f"Hide the {item.words} under the {top.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Books under a sheet, small things under a shell."""
    for i, item in enumerate(BOOKS):
        yield cover(item, CLOTH, 0.023, (BOOKS[1 - i],))
    for i, item in enumerate(SMALL):
        yield cover(item, SHELL, 0.0, (SMALL[(i + 1) % len(SMALL)],))

"""Push a carton along the table onto a mat."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Shove
from hostbot.sim.predicates import At
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, block, crate, mat, thing

CRATES = (thing("brown", crate), thing("white", crate))
MATS = (thing("red", mat), thing("blue", mat), thing("green", mat))


def push(item: Thing, target: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of pushing one thing onto one mat."""
    return Task(
        name=f"push-{item.name}-{target.name}",
        family="push",
        things=(item, target),
        foils=foils,
        script=(Shove(item=item.name, frame=target.name),),
        lane=((item.name, target.name, 0.06),),
        success=At(item.name, target.name),
        instructions=(
            f"Push the {item.words} onto the {target.words}.",
            f"Slide the {item.words} to the {target.words}.",
            f"Move the {item.words} onto the {target.words} without lifting it.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Cartons and blocks onto mats, a second mat in the scene."""
    for item in (*CRATES, thing("yellow", block), thing("purple", block)):
        for k, target in enumerate(MATS):
            yield push(item, target, (MATS[(k + 1) % len(MATS)], thing("orange", block)))

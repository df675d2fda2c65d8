"""Take a thing out of a vessel, or off another one, and put it on a mat."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Pick, Put
from hostbot.sim.predicates import All, At, Out
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, block, bowl, box, can, mat, plate, plum, thing

INSIDE = (
    (thing("red", plum), thing("white", bowl), 0.012),
    (thing("orange", plum), thing("blue", bowl), 0.012),
    (thing("yellow", block), thing("brown", box), 0.009),
)
ON = (
    (thing("red", block), thing("green", block), 0.0405),
    (thing("blue", block), thing("yellow", block), 0.0405),
    (thing("orange", can), thing("white", plate), 0.0085),
    (thing("purple", block), thing("cyan", plate), 0.0085),
)
MATS = (thing("green", mat), thing("purple", mat))


def take(
    family: str, item: Thing, host: Thing, height: float, target: Thing, foils: tuple[Thing, ...]
) -> Task:
    """The task of moving one thing from its host to one mat."""
    out = "out of" if family == "take_out" else "off"
    there = At(item.name, target.name)
    return Task(
        name=f"{family}-{item.name}-{host.name}-{target.name}",
        family=family,
        things=(item, host, target),
        foils=foils,
        nested=((item.name, host.name, height),),
        script=(Pick(item=item.name), Put(item=item.name, frame=target.name)),
        success=All((there, Out(item.name, host.name))) if family == "take_out" else there,
        instructions=(
            f"Take the {item.words} {out} the {host.words} and put it on the {target.words}.",
            f"Move the {item.words} from the {host.words} to the {target.words}.",
            f"Get the {item.words} {out} the {host.words}; it goes on the {target.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Out of bowls and off other things, onto either mat."""
    for family, triples in (("take_out", INSIDE), ("unstack", ON)):
        for item, host, height in triples:
            for k, target in enumerate(MATS):
                yield take(family, item, host, height, target, (MATS[1 - k],))

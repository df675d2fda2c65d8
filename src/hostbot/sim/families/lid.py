"""Put a lid on a pot, or take it off."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Pick, Put
from hostbot.sim.predicates import At, Capped
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, lid, mat, pot, thing

POTS = tuple(thing(colour, pot) for colour in ("grey", "red", "blue"))
LIDS = tuple(thing(colour, lid) for colour in ("white", "orange", "green"))
MATS = tuple(thing(colour, mat) for colour in ("yellow", "cyan"))


def lid_on(top: Thing, vessel: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of putting a lid on a pot."""
    return Task(
        name=f"lid_on-{top.name}-{vessel.name}",
        family="lid_on",
        things=(top, vessel),
        foils=foils,
        script=(Pick(item=top.name), Put(item=top.name, frame=vessel.name, at=(0, 0, 0.052), drop=0.004)),
        success=Capped(top.name, vessel.name),
        instructions=(
            f"Put the {top.words} on the {vessel.words}.",
            f"Cover the {vessel.words} with the {top.words}.",
            f"Close the {vessel.words} with the {top.words}.",
        ),
    )


def lid_off(top: Thing, vessel: Thing, target: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of taking a lid off a pot and laying it on a mat."""
    return Task(
        name=f"lid_off-{top.name}-{vessel.name}-{target.name}",
        family="lid_off",
        things=(top, vessel, target),
        foils=foils,
        nested=((top.name, vessel.name, 0.051),),
        script=(Pick(item=top.name), Put(item=top.name, frame=target.name)),
        success=At(top.name, target.name),
        instructions=(
            f"Take the {top.words} off the {vessel.words} and lay it on the {target.words}.",
            f"Open the {vessel.words} and put the {top.words} on the {target.words}.",
            f"Uncover the {vessel.words}; the {top.words} goes on the {target.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Lids and pots in every combination, lids off onto mats."""
    for i, top in enumerate(LIDS):
        for k, vessel in enumerate(POTS):
            yield lid_on(top, vessel, (POTS[(k + 1) % 3],))
        for k, target in enumerate(MATS):
            yield lid_off(top, POTS[i], target, (MATS[1 - k],))

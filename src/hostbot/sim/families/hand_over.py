"""Give a bar from one hand to the other and lay it down on the other side."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Home, Offer, Pick, Put, Release
from hostbot.sim.predicates import At
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, bar, mat, thing

BARS = tuple(thing(colour, bar) for colour in ("red", "green", "purple"))
MATS = tuple(thing(colour, mat) for colour in ("yellow", "blue"))


def hand_over(item: Thing, target: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of handing one bar over and laying it on one mat."""
    return Task(
        name=f"hand_over-{item.name}-{target.name}",
        family="hand_over",
        things=(item, target),
        foils=foils,
        hands=2,
        across=(target.name,),
        script=(
            Pick(item=item.name, which=0),
            Offer(item=item.name),
            Pick(item=item.name, role="other", which=1, lift=False),
            Release(),
            Home(),
            Put(item=item.name, frame=target.name, role="other"),
        ),
        success=At(item.name, target.name),
        instructions=(
            f"Hand the {item.words} over to the other hand and lay it on the {target.words}.",
            f"Pass the {item.words} from one hand to the other, then put it on the {target.words}.",
            f"Give the {item.words} to the other hand and place it on the {target.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Every bar to every mat."""
    for i, item in enumerate(BARS):
        for target in MATS:
            yield hand_over(item, target, (BARS[(i + 1) % len(BARS)],))

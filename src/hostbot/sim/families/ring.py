"""Drop a ring over a peg."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Pick, Put
from hostbot.sim.predicates import Threaded
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, peg, ring, thing

RINGS = tuple(thing(colour, ring) for colour in ("red", "blue", "yellow"))
PEGS = tuple(thing(colour, peg) for colour in ("green", "white", "orange"))


def ring_on(item: Thing, post: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of dropping one ring over one peg."""
    return Task(
        name=f"ring_on_peg-{item.name}-{post.name}",
        family="ring_on_peg",
        things=(item, post),
        foils=foils,
        script=(Pick(item=item.name), Put(item=item.name, frame=post.name, at=(0, 0, 0.050), open=0.012)),
        success=Threaded(item.name, post.name),
        instructions=(
            f"Put the {item.words} on the {post.words}.",
            f"Drop the {item.words} over the {post.words}.",
            f"Thread the {item.words} onto the {post.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Every ring with every peg."""
    for i, item in enumerate(RINGS):
        for k, post in enumerate(PEGS):
            yield ring_on(item, post, (RINGS[(i + 1) % 3], PEGS[(k + 1) % 3]))

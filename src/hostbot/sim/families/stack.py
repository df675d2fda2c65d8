"""Stack one thing on or in another of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from hostbot.sim.moves import Pick, Put
from hostbot.sim.predicates import Inside, On, Predicate
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, block, bowl, can, pot, small_bowl, small_pot, thing

BLOCKS = tuple(thing(colour, block) for colour in ("red", "green", "blue", "yellow"))
CANS = tuple(thing(colour, can) for colour in ("green", "red", "orange"))
BOWLS = (
    (thing("yellow", small_bowl), thing("white", bowl)),
    (thing("pink", small_bowl), thing("blue", bowl)),
)
POTS = ((thing("red", small_pot), thing("grey", pot)), (thing("orange", small_pot), thing("black", pot)))


def stack(top: Thing, base: Thing, height: float, success: Predicate, foils: tuple[Thing, ...]) -> Task:
    """The task of putting one thing on another like it."""
    return Task(
        name=f"stack-{top.name}-{base.name}",
        family="stack",
        things=(top, base),
        foils=foils,
        script=(Pick(item=top.name), Put(item=top.name, frame=base.name, at=(0, 0, height), drop=0.003)),
        success=success,
        instructions=(
            f"Stack the {top.words} on the {base.words}.",
            f"Put the {top.words} on top of the {base.words}.",
            f"Pile the {top.words} onto the {base.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Blocks on blocks, cans on cans, small bowls and pots into big ones."""
    for top, base in permutations(BLOCKS, 2):
        other = next(b for b in BLOCKS if b not in (top, base))
        yield stack(top, base, 0.041, On(top.name, base.name, standing=True), (other,))
    for top, base in permutations(CANS, 2):
        other = next(c for c in CANS if c not in (top, base))
        yield stack(top, base, 0.063, On(top.name, base.name, standing=True), (other,))
    for pairs in (BOWLS, POTS):
        for i, (top, base) in enumerate(pairs):
            yield stack(top, base, 0.018, Inside(top.name, base.name), pairs[1 - i])
            yield stack(
                top, pairs[1 - i][1], 0.018, Inside(top.name, pairs[1 - i][1].name), (pairs[1 - i][0], base)
            )

"""Press two keys in a given order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from hostbot.sim.moves import Press
from hostbot.sim.predicates import Pressed
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, key, thing

TRIPLES = (("red", "green", "blue"), ("yellow", "purple", "orange"), ("pink", "black", "cyan"))


def press_order(first: Thing, second: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of pressing one key and then another."""
    a, b = first.words, second.words
    return Task(
        name=f"press_order-{first.name}-{second.name}",
        family="press_order",
        things=(first, second),
        foils=foils,
        script=(Press(item=first.name), Press(item=second.name)),
        success=Pressed((first.name, second.name)),
        instructions=(
            f"Press the {a}, then the {b}.",
            f"Push the {a} first and the {b} after it.",
            f"Press the {a} followed by the {b}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Every ordered pair of three keys."""
    for colours in TRIPLES:
        keys = [thing(colour, key) for colour in colours]
        for first, second in permutations(keys, 2):
            yield press_order(first, second, tuple(k for k in keys if k not in (first, second)))

"""Fold a sock: take its edge and lay one half over the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hostbot.sim.moves import Path, Pick, Release
from hostbot.sim.predicates import Joint
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, flap, thing

SOCKS = tuple(thing(colour, flap, "sock") for colour in ("pink", "green", "blue"))


def fold(item: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of folding one sock."""
    # The grip's place on the leaf, turned about the hinge.
    length, above, hinge = 0.084, 0.004, 0.010
    arc = tuple(
        (
            float(length * np.cos(a) - above * np.sin(a)),
            0.0,
            float(hinge + length * np.sin(a) + above * np.cos(a)),
        )
        for a in np.linspace(0.25, 2.7, 9)
    )
    joint = f"{item.name}/leaf"
    return Task(
        name=f"fold-{item.name}",
        family="fold",
        things=(item,),
        foils=foils,
        script=(
            Pick(item=item.name, which=0, lift=False),
            Path(frame=item.name, points=arc, event="fold", over=False, speed=0.6, near=0.012),
            Release(),
        ),
        success=Joint(joint, above=0.90),
        instructions=(
            f"Fold the {item.words}.",
            f"Fold the {item.words} in half.",
            f"Fold the {item.words} over.",
        ),
    )


def tasks() -> Iterator[Task]:
    """One task a sock."""
    for i, item in enumerate(SOCKS):
        yield fold(item, (SOCKS[(i + 1) % len(SOCKS)],))

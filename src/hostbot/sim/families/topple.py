"""Knock a standing thing over."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Path
from hostbot.sim.predicates import Toppled
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, bottle, marker, thing

STANDING = (
    (thing("blue", bottle), 0.082, 0.034),
    (thing("green", bottle), 0.082, 0.034),
    (thing("red", bottle), 0.082, 0.034),
    (thing("purple", marker), 0.100, 0.020),
    (thing("black", marker), 0.100, 0.020),
)


def topple(item: Thing, height: float, radius: float, foils: tuple[Thing, ...]) -> Task:
    """The task of knocking one thing over, away from whoever does it."""
    points = ((-radius - 0.030, 0.0, height), (0.060, 0.0, height - 0.014))
    stroke = Path(
        frame=item.name,
        points=points,
        square=True,
        fixed=True,
        grip=0.0,
        yaw=0.0,
        event="topple",
        rise=True,
    )
    return Task(
        name=f"topple-{item.name}",
        family="topple",
        things=(item,),
        foils=foils,
        script=(stroke,),
        success=Toppled(item.name),
        instructions=(
            f"Knock the {item.words} over.",
            f"Tip the {item.words} over, away from you.",
            f"Topple the {item.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """One task a thing, another one standing by."""
    for i, (item, height, radius) in enumerate(STANDING):
        yield topple(
            item, height, radius, (STANDING[(i + 1) % len(STANDING)][0], STANDING[(i + 2) % len(STANDING)][0])
        )

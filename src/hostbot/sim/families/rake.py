"""Pull a thing closer with a rake."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Path, Pick, Release
from hostbot.sim.predicates import Nearer
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, block, rake, sponge, thing

TOOL = thing("green", rake)
TARGETS = (
    (thing("red", block), 0.026),
    (thing("blue", block), 0.026),
    (thing("yellow", block), 0.026),
    (thing("pink", sponge), 0.040),
)


def pull(item: Thing, radius: float, foils: tuple[Thing, ...]) -> Task:
    """The task of raking one thing closer."""
    reach = radius + 0.027 - 0.075
    points = ((reach, 0.0, 0.002), (reach - 0.125, 0.0, 0.002))
    stroke = Path(
        frame=item.name,
        points=points,
        carry=TOOL.name,
        yaw=0.0,
        square=True,
        fixed=True,
        event="pull",
        speed=0.5,
    )
    return Task(
        name=f"rake-{item.name}",
        family="rake",
        things=(TOOL, item),
        foils=foils,
        script=(Pick(item=TOOL.name), stroke, Release()),
        success=Nearer(item.name, 0.06),
        instructions=(
            f"Pull the {item.words} closer with the {TOOL.words}.",
            f"Use the {TOOL.words} to drag the {item.words} towards you.",
            f"Rake the {item.words} in with the {TOOL.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """One task a thing, another thing in the scene."""
    for i, (item, radius) in enumerate(TARGETS):
        yield pull(item, radius, (TARGETS[(i + 1) % len(TARGETS)][0],))

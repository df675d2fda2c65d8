"""Pour a ball from a cup into a bowl."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Path, Pick, Tip
from hostbot.sim.predicates import All, Inside, Out
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, ball, bowl, cup, thing

CUPS = (thing("green", cup), thing("purple", cup))
BOWLS = (thing("yellow", bowl), thing("white", bowl))
BALL = thing("orange", ball)


def pour(source: Thing, target: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of pouring what one cup holds into one bowl."""
    over = Path(
        frame=target.name,
        points=((0.036, 0.0, 0.070),),
        carry=source.name,
        square=True,
        event="carry",
        over=True,
    )
    return Task(
        name=f"pour-{source.name}-{target.name}",
        family="pour",
        things=(source, target, BALL),
        foils=foils,
        nested=((BALL.name, source.name, 0.007),),
        script=(Pick(item=source.name, style="around", straight=True), over, Tip(angle=1.95)),
        success=All((Inside(BALL.name, target.name), Out(BALL.name, source.name))),
        instructions=(
            f"Pour the ball from the {source.words} into the {target.words}.",
            f"Empty the {source.words} into the {target.words}.",
            f"Tip the {source.words} over the {target.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Every cup into every bowl."""
    for i, source in enumerate(CUPS):
        for k, target in enumerate(BOWLS):
            yield pour(source, target, (CUPS[1 - i], BOWLS[1 - k]))

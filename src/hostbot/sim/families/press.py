"""Press one button among several."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Press
from hostbot.sim.predicates import Pressed
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, button, thing

COLOURS = ("red", "green", "blue", "yellow", "white", "orange")
BUTTONS = tuple(thing(colour, button) for colour in COLOURS)


def press(target: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of pressing one button."""
    return Task(
        name=f"press-{target.name}",
        family="press",
        things=(target,),
        foils=foils,
        script=(Press(item=target.name),),
        success=Pressed((target.name,)),
        instructions=(
            f"Press the {target.words}.",
            f"Push the {target.words} down.",
            f"Hit the {target.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """One task a colour, two other buttons in the scene."""
    for i, target in enumerate(BUTTONS):
        yield press(target, tuple(BUTTONS[(i + k) % len(BUTTONS)] for k in (1, 2)))

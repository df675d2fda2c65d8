"""Wipe stains off a surface with a sponge, along a path."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Path, Pick, Release
from hostbot.sim.predicates import Wiped
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, dirty_mat, dirty_plate, sponge, thing

SPONGES = (thing("yellow", sponge), thing("pink", sponge))
MATS = tuple(thing(colour, dirty_mat, "mat") for colour in ("green", "blue", "white"))
PLATES = tuple(thing(colour, dirty_plate, "plate") for colour in ("white", "cyan"))


def wipe(tool: Thing, surface: Thing, height: float, foils: tuple[Thing, ...]) -> Task:
    """The task of wiping one surface clean."""
    z = height - 0.006
    points = ((-0.038, 0.0, z), (0.038, 0.0, z), (-0.030, 0.0, z))
    stroke = Path(
        frame=surface.name, points=points, carry=tool.name, yaw=0.0, flip=True, event="wipe", speed=0.5
    )
    return Task(
        name=f"wipe-{surface.name}-{tool.name}",
        family="wipe",
        things=(tool, surface),
        foils=foils,
        script=(Pick(item=tool.name), stroke, Release()),
        success=Wiped(surface.name),
        instructions=(
            f"Wipe the {surface.words} with the {tool.words}.",
            f"Clean the {surface.words} using the {tool.words}.",
            f"Rub the stains off the {surface.words} with the {tool.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Every surface with every sponge, a second surface in the scene."""
    for surfaces, height in ((MATS, 0.0015), (PLATES, 0.008)):
        for k, surface in enumerate(surfaces):
            for tool in SPONGES:
                yield wipe(tool, surface, height, (surfaces[(k + 1) % len(surfaces)],))

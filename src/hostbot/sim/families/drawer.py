"""Open a drawer, close it, put something in."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Drag, Path, Pick, Put
from hostbot.sim.predicates import Inside, Joint
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, apple, block, drawer, plum, thing

CABINETS = tuple(thing(colour, drawer) for colour in ("white", "blue", "brown"))
ITEMS = (thing("red", block), thing("green", block), thing("orange", plum), thing("red", apple))
BLOCKS = tuple(
    (thing(a, block), thing(b, block)) for a, b in (("red", "green"), ("blue", "yellow"), ("red", "yellow"))
)
OUT = 0.080


def open_drawer(cabinet: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of pulling a drawer out."""
    joint = f"{cabinet.name}/box"
    return Task(
        name=f"open_drawer-{cabinet.name}",
        family="open_drawer",
        things=(cabinet,),
        foils=foils,
        script=(Drag(item=cabinet.name, by=(-0.084, 0, 0), joint=joint, goal=0.8),),
        free=((cabinet.name, -0.135, 0.0, 0.065),),
        success=Joint(joint, above=0.75),
        instructions=(
            f"Open the {cabinet.words}.",
            f"Pull the {cabinet.words} open.",
            f"Slide the {cabinet.words} out.",
        ),
    )


def close_drawer(cabinet: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of pushing an open drawer shut."""
    joint = f"{cabinet.name}/box"
    push = Path(
        frame=cabinet.name,
        points=((-0.215, 0, 0.038), (-0.098, 0, 0.038)),
        grip=0.02,
        yaw=1.5708,
        event="push",
        rise=True,
    )
    return Task(
        name=f"close_drawer-{cabinet.name}",
        family="close_drawer",
        things=(cabinet,),
        foils=foils,
        joints=((joint, OUT),),
        free=((cabinet.name, -0.135, 0.0, 0.065),),
        script=(push,),
        success=Joint(joint, below=0.12),
        instructions=(
            f"Close the {cabinet.words}.",
            f"Push the {cabinet.words} shut.",
            f"Slide the {cabinet.words} in.",
        ),
    )


def store(item: Thing, cabinet: Thing, foils: tuple[Thing, ...]) -> Task:
    """The task of putting an item into an open drawer."""
    inside = f"{cabinet.name}/inside"
    return Task(
        name=f"store-{item.name}-{cabinet.name}",
        family="store",
        things=(item, cabinet),
        foils=foils,
        joints=((f"{cabinet.name}/box", OUT),),
        free=((cabinet.name, -0.135, 0.0, 0.065),),
        script=(Pick(item=item.name), Put(item=item.name, frame=inside, at=(-0.022, 0, 0.02))),
        success=Inside(item.name, cabinet.name, mark=inside),
        instructions=(
            f"Put the {item.words} in the {cabinet.words}.",
            f"Place the {item.words} inside the open {cabinet.words}.",
            f"Store the {item.words} in the {cabinet.words}.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Open, close and fill."""
    for i, cabinet in enumerate(CABINETS):
        yield open_drawer(cabinet, BLOCKS[i])
        yield close_drawer(cabinet, (ITEMS[i], ITEMS[i + 1]))
        for k, item in enumerate(ITEMS):
            yield store(item, cabinet, (ITEMS[(k + 1) % len(ITEMS)],))

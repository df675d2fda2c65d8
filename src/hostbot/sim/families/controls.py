"""Turn knobs, throw levers, move sliders."""

from __future__ import annotations

from collections.abc import Iterator

from hostbot.sim.moves import Drag, Path, Turn
from hostbot.sim.predicates import Joint
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, knob, lever, slider, thing

KNOBS = tuple(thing(colour, knob) for colour in ("red", "green", "blue", "yellow"))
LEVERS = tuple(thing(colour, lever) for colour in ("red", "blue", "yellow"))
SLIDERS = tuple(thing(colour, slider) for colour in ("green", "orange", "purple"))


def turn(item: Thing, way: str, foils: tuple[Thing, ...]) -> Task:
    """The task of turning a knob one way."""
    sign = 1.0 if way == "left" else -1.0
    joint = f"{item.name}/dial"
    clock = "counterclockwise" if way == "left" else "clockwise"
    return Task(
        name=f"turn_knob-{item.name}-{way}",
        family="turn_knob",
        things=(item,),
        foils=foils,
        script=(Turn(item=item.name, angle=sign * 1.25),),
        success=Joint(joint, above=0.80) if sign > 0 else Joint(joint, below=0.20),
        instructions=(
            f"Turn the {item.words} to the {way}.",
            f"Rotate the {item.words} {clock}.",
            f"Twist the {item.words} {way}wards.",
        ),
    )


def throw(item: Thing, way: str, foils: tuple[Thing, ...]) -> Task:
    """The task of swinging a lever from the far side to one side."""
    sign = 1.0 if way == "left" else -1.0
    joint = f"{item.name}/arm"
    points = ((0.0, -sign * 0.092, 0.072), (0.0, 0.0, 0.074), (0.0, sign * 0.062, 0.068))
    back = (0.0, sign * 0.03, 0.075)
    stroke = Path(frame=item.name, points=(*points, back), grip=0.0, yaw=0.0, event="swing", rise=True)
    return Task(
        name=f"throw_lever-{item.name}-{way}",
        family="throw_lever",
        things=(item,),
        foils=foils,
        joints=((joint, sign * 0.7), *((f"{other.name}/arm", sign * 0.7) for other in foils)),
        script=(stroke,),
        success=Joint(joint, below=0.14) if sign > 0 else Joint(joint, above=0.86),
        instructions=(
            f"Push the {item.words} to the {way}.",
            f"Throw the {item.words} to the {way}.",
            f"Swing the {item.words} over to the {way} side.",
        ),
    )


def slide(item: Thing, way: str, foils: tuple[Thing, ...]) -> Task:
    """The task of moving a slider to one end."""
    sign = 1.0 if way == "left" else -1.0
    joint = f"{item.name}/cart"
    drag = Drag(
        item=item.name, by=(0, sign * 0.06, 0), joint=joint, goal=0.9 if sign > 0 else 0.1, above=sign > 0
    )
    return Task(
        name=f"move_slider-{item.name}-{way}",
        family="move_slider",
        things=(item,),
        foils=foils,
        script=(drag,),
        success=Joint(joint, above=0.88) if sign > 0 else Joint(joint, below=0.12),
        instructions=(
            f"Move the {item.words} to the {way}.",
            f"Slide the {item.words} all the way {way}.",
            f"Push the {item.words} to its {way} end.",
        ),
    )


def tasks() -> Iterator[Task]:
    """Every control both ways, another control beside it."""
    for make, items in ((turn, KNOBS), (throw, LEVERS), (slide, SLIDERS)):
        for i, item in enumerate(items):
            for way in ("left", "right"):
                yield make(item, way, (items[(i + 1) % len(items)],))

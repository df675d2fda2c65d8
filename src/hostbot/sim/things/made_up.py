"""Things that do not exist: a few boxes, discs and drops put together by a number.

Of a few dozen kinds a model learns the kinds. A new one it has to find by how it looks, and that is learned from things
of which there are many.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hostbot.sim.things.base import COLOURS, Builder, Grip, Kind, Shape

COUNT, SLIM = 200, 80
"""Kinds, and slim ones besides, which few things of the bench are."""
_COLOURS = 4
"""Colours in which each is to be had."""
_ACROSS = np.pi / 2
_SECOND = ((0.92, 0.92, 0.90), (0.12, 0.12, 0.14), (0.55, 0.42, 0.28), (0.60, 0.62, 0.65))
"""Colours of parts that are not in the thing's own."""


@cache
def made_up(number: int) -> Kind:
    """The kind of a number."""

    def kind(b: Builder) -> Shape:
        rng = np.random.default_rng([number, 77])
        b.free()
        wide, tall = float(rng.uniform(0.012, 0.026)) * b.s, float(rng.uniform(0.012, 0.042)) * b.s
        long = wide * float(rng.choice([1.0, 1.0, rng.uniform(1.2, 2.4)]))
        _body(b, rng, long, wide, tall)
        for _ in range(int(rng.integers(1, 4))):
            _ornament(b, rng, long, wide, tall)
        yaws = (0.0, _ACROSS) if long == wide else (_ACROSS,)
        grips = tuple(Grip(at=(0, 0, 1.2 * tall), yaw=yaw, width=2 * wide) for yaw in yaws)
        radius = float(np.hypot(long, wide))
        return Shape(
            radius=radius, height=2 * tall, grips=grips, floor=2 * tall, inner=wide, sides=(long, wide)
        )

    kind.__name__ = f"shape_{number}"
    return kind


@cache
def slim(number: int) -> Kind:
    """The slim kind of a number: one that lies, or one that stands on a foot and is taken by its upper end."""

    def kind(b: Builder) -> Shape:
        rng = np.random.default_rng([number, 79])
        b.free()
        lies = rng.random() < 0.5
        return _rod(b, rng) if lies else _post(b, rng)

    kind.__name__ = f"shape_{COUNT + number}"
    return kind


def _rod(b: Builder, rng: np.random.Generator) -> Shape:
    long, wide = float(rng.uniform(0.035, 0.070)) * b.s, float(rng.uniform(0.006, 0.011)) * b.s
    tall = wide * float(rng.uniform(0.8, 1.1))
    b.box([long, wide, tall], [0, 0, tall], density=500)
    for _ in range(int(rng.integers(1, 3))):
        _ornament(b, rng, long, wide, tall)
    grips = (Grip(at=(0, 0, tall), yaw=_ACROSS, width=2 * wide),)
    return Shape(radius=long, height=2 * tall, grips=grips, sides=(long, wide))


def _post(b: Builder, rng: np.random.Generator) -> Shape:
    wide, high = float(rng.uniform(0.008, 0.012)) * b.s, float(rng.uniform(0.08, 0.13)) * b.s
    foot = float(rng.uniform(0.017, 0.022))
    b.box([foot, foot, 0.006], [0, 0, 0.006], density=2500, rgba=b.rgba(float(rng.uniform(0.5, 0.8))))
    b.box([wide, wide, high / 2], [0, 0, high / 2], density=400)
    _ornament(b, rng, wide, wide, high / 2)
    grips = tuple(Grip(at=(0, 0, high - 0.022), yaw=yaw, width=2 * wide) for yaw in (0.0, _ACROSS))
    return Shape(radius=1.42 * foot, height=high, grips=grips, floor=high, inner=wide)


def palette(number: int) -> tuple[str, ...]:
    """The colours in which the kind of a number is to be had."""
    drawn = np.random.default_rng([number, 78]).permutation(list(COLOURS))[:_COLOURS]
    return tuple(str(colour) for colour in drawn)


def _body(b: Builder, rng: np.random.Generator, long: float, wide: float, tall: float) -> None:
    """What is felt is a box, so that nothing rolls away; what is seen may be round."""
    how = (
        str(rng.choice(["box", "disc", "drop", "steps"]))
        if long == wide
        else str(rng.choice(["box", "drop"]))
    )
    felt = {} if how == "box" else {"rgba": (0, 0, 0, 0)}
    b.box([long, wide, tall], [0, 0, tall], density=300, **felt)
    if how == "disc":
        b.cylinder(wide, tall, [0, 0, tall], ghost=True)
    elif how == "drop":
        b.ellipsoid([long, wide, tall], [0, 0, tall], ghost=True)
    elif how == "steps":
        for share, low in ((1.0, 0.0), (0.7, 0.7), (0.4, 1.3)):
            b.box([share * long, share * wide, 0.35 * tall], [0, 0, (low + 0.35) * tall], ghost=True)


def _ornament(b: Builder, rng: np.random.Generator, long: float, wide: float, tall: float) -> None:
    """A part on top, around it or at an end, in another shade or colour."""
    colour = b.rgba(float(rng.uniform(0.4, 0.7)))
    if rng.random() < 0.5:
        colour = (*_SECOND[int(rng.integers(len(_SECOND)))], 1.0)
    where, share = str(rng.choice(["top", "belt", "end", "knob"])), float(rng.uniform(0.3, 0.7))
    if where == "belt":
        low = float(rng.uniform(0.4, 1.6)) * tall
        b.box([1.03 * long, 1.03 * wide, 0.2 * tall], [0, 0, low], ghost=True, rgba=colour)
    elif where == "top":
        b.box([share * long, share * wide, 0.003], [0, 0, 2 * tall], ghost=True, rgba=colour)
    elif where == "end":
        b.box([0.25 * long, 1.04 * wide, 1.02 * tall], [0.8 * long, 0, tall], ghost=True, rgba=colour)
    else:
        b.sphere(share * wide, [0, 0, 2 * tall], ghost=True, rgba=colour)

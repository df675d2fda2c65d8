"""Things that are taken, put down, pushed and used: blocks, fruit, books, pens, tools."""

from __future__ import annotations

import numpy as np

from hostbot.sim.things.base import Builder, Grip, Shape

ACROSS = np.pi / 2


def block(b: Builder) -> Shape:
    """A cube that fits the hand."""
    b.free()
    h = 0.020 * b.s
    b.box([h, h, h], [0, 0, h])
    if b.look.unseen:
        b.box([h * 1.02, h * 1.02, h * 0.25], [0, 0, h], ghost=True, rgba=(0.1, 0.1, 0.1, 1))
    grips = tuple(Grip(at=(0, 0, h), yaw=yaw, width=2 * h) for yaw in (0.0, ACROSS))
    return Shape(radius=h * 1.42, height=2 * h, grips=grips, floor=2 * h, inner=h, sides=(h, h))


def bar(b: Builder) -> Shape:
    """A long bar that two hands can hold."""
    b.free()
    x, y, z = 0.085 * b.s, 0.014 * b.s, 0.014 * b.s
    b.box([x, y, z], [0, 0, z], density=250)
    for side in (-1, 1):
        b.box([0.02, y * 1.03, z * 1.03], [side * (x - 0.02), 0, z], ghost=True, rgba=b.rgba(0.6))
    b.mark("head", [x * 0.6, 0, z])
    b.mark("tail", [-x * 0.6, 0, z])
    grips = tuple(Grip(at=(side * x * 0.62, 0, z), yaw=ACROSS, width=2 * y) for side in (1, -1))
    return Shape(radius=x, height=2 * z, grips=grips, sides=(x, y))


def _fruit(b: Builder, r: float, squash: float) -> Shape:
    b.free()
    z = r * squash
    b.ellipsoid([r, r, z], [0, 0, z], condim=6, friction=[1.0, 0.02, 0.008], density=250)
    b.capsule([0, 0, 2 * z - 0.003], [0.003, 0, 2 * z + 0.007], 0.003, ghost=True, rgba=(0.25, 0.16, 0.07, 1))
    yaws = (0.0, ACROSS / 2, ACROSS, -ACROSS / 2)
    grips = tuple(Grip(at=(0, 0, z), yaw=yaw, width=2 * r, spare=0.018) for yaw in yaws)
    return Shape(radius=r, height=2 * z, grips=grips, round=True)


def apple(b: Builder) -> Shape:
    """A round fruit with a stalk."""
    return _fruit(b, 0.024 * b.s, 0.92)


def plum(b: Builder) -> Shape:
    """A small flattened fruit."""
    return _fruit(b, 0.021 * b.s, 0.85)


def ball(b: Builder) -> Shape:
    """A ball that rolls."""
    b.free()
    r = 0.011 * b.s
    b.sphere(r, [0, 0, r], condim=6, friction=[0.8, 0.01, 0.0015], density=250)
    grips = tuple(Grip(at=(0, 0, r), yaw=yaw, width=2 * r) for yaw in (0.0, ACROSS))
    return Shape(radius=r, height=2 * r, grips=grips, round=True)


def banana(b: Builder) -> Shape:
    """A bent fruit; boxes touch and capsules show, for a round one would roll away."""
    b.free()
    r = 0.013 * b.s
    b.box([0.013, r, r], [0, 0, r], density=300, rgba=(0, 0, 0, 0))
    for side in (-1, 1):
        quat = [np.cos(side * 0.25), 0, 0, np.sin(side * 0.25)]
        b.box([0.010, r * 0.8, r], [side * 0.019, 0.004, r], quat=quat, density=300, rgba=(0, 0, 0, 0))
        b.capsule([side * 0.010, 0, r], [side * 0.025, 0.008, r], r * 0.85, ghost=True)
    b.capsule([-0.011, 0, r], [0.011, 0, r], r, ghost=True)
    b.sphere(0.005, [0.036, 0.014, r], ghost=True, rgba=(0.25, 0.18, 0.05, 1))
    return Shape(radius=0.039 * b.s, height=2 * r, grips=(Grip(at=(0, 0, r), yaw=ACROSS, width=2 * r),))


def book(b: Builder) -> Shape:
    """A closed book lying flat."""
    b.free()
    x, y, z = 0.055 * b.s, 0.034 * b.s, 0.011 * b.s
    b.box([x, y, z], [0, 0, z], density=250)
    b.box([x * 0.98, 0.003, z * 0.7], [0, y - 0.002, z], ghost=True, rgba=(0.95, 0.93, 0.85, 1))
    b.box([x * 0.5, y * 0.35, 0.0006], [0, 0, 2 * z], ghost=True, rgba=(0.95, 0.9, 0.7, 1))
    grips = (Grip(at=(0, 0, z), yaw=ACROSS, width=2 * y, spare=0.016),)
    return Shape(radius=0.062 * b.s, height=2 * z, grips=grips, floor=2 * z, inner=y, sides=(x, y))


def pen(b: Builder) -> Shape:
    """A pen lying on the table; its flats keep it from rolling."""
    b.free()
    x, r = 0.062 * b.s, 0.0065 * b.s
    b.box([x, r, r], [0, 0, r], density=600)
    b.box([0.014, r * 1.08, r * 1.08], [x - 0.014, 0, r], ghost=True, rgba=b.rgba(0.5))
    b.capsule([-x, 0, r], [-x - 0.008, 0, r], 0.003, ghost=True, rgba=(0.1, 0.1, 0.1, 1))
    return Shape(radius=x, height=2 * r, grips=(Grip(at=(0, 0, r), yaw=ACROSS, width=2 * r),), sides=(x, r))


def marker(b: Builder) -> Shape:
    """A marker standing on its broad cap, to be taken by its upper end."""
    b.free()
    r, h = 0.0085 * b.s, 0.125 * b.s
    b.cylinder(0.017, 0.006, [0, 0, 0.006], density=2500, rgba=b.rgba(0.6))
    b.cylinder(r, h / 2, [0, 0, h / 2], density=500, condim=4)
    b.cylinder(r * 0.6, 0.005, [0, 0, h + 0.004], ghost=True, rgba=(0.1, 0.1, 0.1, 1))
    grips = tuple(
        Grip(at=(0, 0, h - 0.022), yaw=yaw, width=2 * r) for yaw in (0.0, ACROSS / 2, ACROSS, -ACROSS / 2)
    )
    return Shape(radius=0.019, height=h, grips=grips)


def sponge(b: Builder) -> Shape:
    """A sponge with a scouring side."""
    b.free()
    x, y, z = 0.036 * b.s, 0.024 * b.s, 0.017 * b.s
    b.box([x, y, z], [0, 0, z], density=150, friction=[0.5, 0.005, 0.0003])
    b.box([x * 1.01, y * 1.01, z * 0.3], [0, 0, 0.32 * z], ghost=True, rgba=(0.15, 0.35, 0.15, 1))
    grips = (Grip(at=(0, 0, 1.2 * z), yaw=ACROSS, width=2 * y),)
    return Shape(radius=0.043 * b.s, height=2 * z, grips=grips, sides=(x, y))


def bottle(b: Builder) -> Shape:
    """A bottle with a neck, standing."""
    b.free()
    r, h = 0.024 * b.s, 0.075 * b.s
    b.cylinder(r, h / 2, [0, 0, h / 2], density=350, condim=4)
    b.cylinder(r * 0.45, 0.016, [0, 0, h + 0.016], density=200)
    b.cylinder(r * 0.55, 0.006, [0, 0, h + 0.030], ghost=True, rgba=(0.95, 0.95, 0.95, 1))
    b.cylinder(r * 1.02, 0.014, [0, 0, h * 0.5], ghost=True, rgba=(0.93, 0.9, 0.8, 1))
    grips = tuple(
        Grip(at=(0, 0, h * 0.62), yaw=yaw, width=2 * r) for yaw in (0.0, ACROSS / 2, ACROSS, -ACROSS / 2)
    )
    return Shape(radius=r * 1.1, height=h + 0.034, grips=grips)


def can(b: Builder) -> Shape:
    """A tin can."""
    b.free()
    r, h = 0.026 * b.s, 0.062 * b.s
    b.cylinder(r, h / 2, [0, 0, h / 2], density=300, condim=4)
    for z in (0.004, h - 0.004):
        b.cylinder(r * 1.03, 0.003, [0, 0, z], ghost=True, rgba=(0.8, 0.8, 0.82, 1))
    grips = tuple(
        Grip(at=(0, 0, h * 0.6), yaw=yaw, width=2 * r) for yaw in (0.0, ACROSS / 2, ACROSS, -ACROSS / 2)
    )
    return Shape(radius=r * 1.1, height=h, grips=grips, floor=h, inner=r)


def crate(b: Builder) -> Shape:
    """A carton too broad for the jaws, made to be pushed."""
    b.free()
    x, y, z = 0.048 * b.s, 0.048 * b.s, 0.030 * b.s
    b.box([x, y, z], [0, 0, z], density=160, friction=[0.5, 0.008, 0.0004])
    b.box([x * 1.01, 0.008, z * 1.01], [0, 0, z], ghost=True, rgba=b.rgba(0.6))
    b.box([0.008, y * 1.01, z * 1.005], [0, 0, z], ghost=True, rgba=b.rgba(0.6))
    return Shape(radius=x * 1.42, height=2 * z, floor=2 * z, inner=x, sides=(x, y))


def ring(b: Builder) -> Shape:
    """A ring with a wide hole, held across its band."""
    b.free()
    r, h = 0.038 * b.s, 0.020 * b.s
    b.wall(r, 0.0, h, 0.010, density=300)
    grips = []
    for k in range(b.sides):
        phi = 2 * np.pi * k / b.sides
        at = ((r - 0.005) * np.cos(phi), (r - 0.005) * np.sin(phi), h * 0.55)
        grips.append(Grip(at=at, yaw=phi, width=0.010, spare=0.03))
    return Shape(radius=r * 1.05, height=h, grips=tuple(grips), floor=h, inner=r - 0.010)


def rake(b: Builder) -> Shape:
    """A rake: a raised handle along x, an upright grip at one end and a blade across the other."""
    b.free()
    half, z = 0.075, 0.056
    b.box([half, 0.006, 0.006], [0, 0, z], density=250)
    b.box([0.005, 0.044 * b.s, 0.028], [half, 0, 0.028], density=150)
    b.box([0.018, 0.009, 0.039], [-half + 0.018, 0, 0.039], density=250, rgba=b.rgba(0.6))
    b.mark("blade", [half, 0, 0.0])
    grips = (Grip(at=(-half + 0.018, 0, 0.062), yaw=ACROSS, width=0.018),)
    return Shape(radius=0.088, height=0.078, grips=grips, yaws=(-0.35, 0.35), sides=(0.08, 0.044))


def shell(b: Builder) -> Shape:
    """A cover without a bottom, lifted by the knob on its top."""
    b.free()
    x, h = 0.046 * b.s, 0.050 * b.s
    for side in (-1, 1):
        b.box([x, 0.003, h / 2], [0, side * x, h / 2], density=250)
        b.box([0.003, x, h / 2], [side * x, 0, h / 2], density=250)
    b.box([x + 0.003, x + 0.003, 0.003], [0, 0, h + 0.003], density=250, rgba=b.rgba(0.85))
    b.box([0.011, 0.011, 0.015], [0, 0, h + 0.021], density=300, rgba=b.rgba(0.5))
    grips = tuple(Grip(at=(0, 0, h + 0.024), yaw=yaw, width=0.022) for yaw in (0.0, ACROSS))
    return Shape(radius=x * 1.45, height=h + 0.036, grips=grips, inner=x - 0.004, sides=(x, x))


def cloth(b: Builder) -> Shape:
    """A stiff sheet with a tab in its middle, to lay over something."""
    b.free()
    x, y = 0.066 * b.s, 0.046 * b.s
    b.box([x, y, 0.003], [0, 0, 0.003], density=200)
    for side in (-1, 1):
        b.box([x, 0.004, 0.0032], [0, side * y * 0.6, 0.0032], ghost=True, rgba=b.rgba(0.6))
    b.box([0.014, 0.007, 0.013], [0, 0, 0.019], density=300, rgba=b.rgba(0.6))
    grips = (Grip(at=(0, 0, 0.021), yaw=ACROSS, width=0.014),)
    return Shape(radius=0.078 * b.s, height=0.032, grips=grips, sides=(x, y))

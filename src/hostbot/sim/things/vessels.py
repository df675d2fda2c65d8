"""Things that take others in or carry them: cups, bowls, pots, boxes, plates, lids, trays."""

from __future__ import annotations

import mujoco
import numpy as np

from hostbot.sim.things.base import Builder, Grip, Shape, rim

ACROSS = np.pi / 2


def cup(b: Builder) -> Shape:
    """A drinking cup without a handle."""
    b.free()
    r, h = 0.032 * b.s, 0.066 * b.s
    b.cylinder(r * 0.95, 0.003, [0, 0, 0.003], density=1500)
    b.wall(r, 0.003, h - 0.003, 0.004, density=350)
    b.wall(r * 1.015, h * 0.72, h * 0.16, 0.003, ghost=True, rgba=b.rgba(0.55 if b.look.unseen else 1.35))
    yaws = (0.0, ACROSS / 2, ACROSS, -ACROSS / 2)
    around = tuple(Grip(at=(0, 0, h * 0.55), yaw=a, width=2 * r, spare=0.018, style="around") for a in yaws)
    return Shape(
        radius=r * 1.08, height=h, grips=(*rim(r, h, 0.004, b.sides), *around), floor=0.006, inner=r - 0.005
    )


def _bowl(b: Builder, r: float, h: float) -> Shape:
    b.free()
    b.cylinder(r * 0.97, 0.004, [0, 0, 0.007], density=700)
    b.cylinder(r * 0.6, 0.0035, [0, 0, 0.0035], density=700)
    b.wall(r, 0.008, h - 0.008, 0.005, density=350)
    b.wall(r * 1.02, h - 0.008, 0.006, 0.006, ghost=True, rgba=b.rgba(0.6 if b.look.unseen else 1.3))
    return Shape(radius=r * 1.08, height=h, grips=rim(r, h, 0.005, b.sides), floor=0.011, inner=r - 0.006)


def bowl(b: Builder) -> Shape:
    """A wide bowl with a low foot."""
    return _bowl(b, 0.054 * b.s, 0.044)


def small_bowl(b: Builder) -> Shape:
    """A bowl that fits into a bowl."""
    return _bowl(b, 0.038 * b.s, 0.046)


def _pot(b: Builder, r: float, h: float) -> Shape:
    b.free()
    b.cylinder(r * 0.97, 0.003, [0, 0, 0.003], density=900)
    b.wall(r, 0.004, h - 0.004, 0.005, density=400)
    for side in (-1, 1):
        b.box(
            [0.008, 0.014, 0.004], [side * (r + 0.008), 0, h - 0.008], density=300, rgba=(0.12, 0.12, 0.13, 1)
        )
    # The two walls that carry the handles are no place for a jaw.
    grips = tuple(g for k, g in enumerate(rim(r, h, 0.005, b.sides)) if 2 * k % b.sides != 0)
    return Shape(radius=r + 0.018, height=h, grips=grips, floor=0.006, inner=r - 0.006)


def pot(b: Builder) -> Shape:
    """A cooking pot with two side handles."""
    return _pot(b, 0.050 * b.s, 0.050)


def small_pot(b: Builder) -> Shape:
    """A pot that fits into a pot, its handles over the rim."""
    return _pot(b, 0.035 * b.s, 0.056)


def box(b: Builder) -> Shape:
    """An open box, fixed to the table by its weight."""
    b.free()
    x, y, h, t = 0.062 * b.s, 0.050 * b.s, 0.046 * b.s, 0.004
    b.box([x, y, 0.004], [0, 0, 0.004], density=3000, rgba=b.rgba(0.7))
    for side in (-1, 1):
        b.box([x, t / 2, h / 2], [0, side * (y - t / 2), h / 2], density=600)
        b.box([t / 2, y, h / 2], [side * (x - t / 2), 0, h / 2], density=600)
    return Shape(radius=0.082 * b.s, height=h, floor=0.008, inner=y - 0.006, sides=(x, y))


def plate(b: Builder) -> Shape:
    """A flat plate with a raised edge."""
    b.free()
    r = 0.066 * b.s
    b.cylinder(r, 0.004, [0, 0, 0.004], density=2200)
    b.cylinder(r * 0.72, 0.0005, [0, 0, 0.0082], ghost=True, rgba=b.rgba(0.78))
    return Shape(radius=r, height=0.008, floor=0.008, inner=r * 0.9, flat=True)


STAINS = ((-0.030, 0.004), (-0.010, -0.008), (0.012, 0.007), (0.032, -0.004))


def _stain(b: Builder, height: float) -> None:
    for k, (x, y) in enumerate(STAINS):
        b.body.add_site(
            name=f"{b.name}/stain{k}",
            type=mujoco.mjtGeom.mjGEOM_CYLINDER,
            pos=[x, y, height],
            size=[0.009, 0.0005, 0],
            rgba=[0.28, 0.16, 0.06, 1],
        )


def dirty_plate(b: Builder) -> Shape:
    """A plate with stains that a sponge takes away."""
    shape = plate(b)
    _stain(b, 0.0088)
    return shape


def dirty_mat(b: Builder) -> Shape:
    """A patch of table with stains that a sponge takes away."""
    shape = mat(b)
    _stain(b, 0.0020)
    return shape


def tray(b: Builder) -> Shape:
    """A tray with an upright handle at either end, for two hands."""
    b.free()
    x, y = 0.058 * b.s, 0.105 * b.s
    b.box([x, y, 0.004], [0, 0, 0.004], density=450)
    for side in (-1, 1):
        b.box([x, 0.003, 0.008], [0, side * y, 0.010], density=400, rgba=b.rgba(0.8))
        b.box([0.003, y, 0.008], [side * x, 0, 0.010], density=400, rgba=b.rgba(0.8))
        b.box([0.026, 0.007, 0.020], [0, side * (y + 0.006), 0.026], density=400, rgba=b.rgba(0.5))
    b.mark("left", [0, y + 0.006, 0.030])
    b.mark("right", [0, -y - 0.006, 0.030])
    grips = (
        Grip(at=(0, y + 0.006, 0.030), yaw=ACROSS, width=0.014),
        Grip(at=(0, -y - 0.006, 0.030), yaw=ACROSS, width=0.014),
    )
    return Shape(
        radius=0.118 * b.s,
        height=0.046,
        grips=grips,
        yaws=(-0.2, 0.2),
        floor=0.008,
        inner=x * 0.9,
        sides=(x, y + 0.013),
    )


def lid(b: Builder) -> Shape:
    """A lid with a knob."""
    b.free()
    r = 0.052 * b.s
    b.cylinder(r, 0.004, [0, 0, 0.004], density=500)
    b.cylinder(r * 0.70, 0.004, [0, 0, -0.002 + 0.002], ghost=True)
    b.box([0.010, 0.010, 0.014], [0, 0, 0.022], density=300, rgba=(0.12, 0.12, 0.13, 1))
    grips = tuple(Grip(at=(0, 0, 0.024), yaw=yaw, width=0.020) for yaw in (0.0, ACROSS))
    return Shape(radius=r, height=0.036, grips=grips, inner=r)


def holder(b: Builder) -> Shape:
    """A heavy pen holder with a narrow mouth."""
    b.free()
    r, h = 0.029 * b.s, 0.060 * b.s
    b.cylinder(r, 0.005, [0, 0, 0.005], density=6000)
    b.wall(r, 0.008, h - 0.008, 0.005, density=900)
    return Shape(radius=r * 1.1, height=h, floor=0.010, inner=r - 0.005)


def mat(b: Builder) -> Shape:
    """A coloured patch painted on the table."""
    r = 0.058 * b.s
    b.cylinder(r, 0.0006, [0, 0, 0.0006], ghost=True)
    b.cylinder(r * 0.72, 0.0002, [0, 0, 0.0013], ghost=True, rgba=b.rgba(1.25))
    return Shape(radius=r, height=0.001, floor=0.0, inner=r, flat=True)

"""Things fixed to the table whose parts move: buttons, drawers, levers, knobs, sliders, pegs, flaps."""

from __future__ import annotations

import mujoco
import numpy as np

from hostbot.sim.things.base import Builder, Grip, Shape

ACROSS = np.pi / 2
SLIDE, HINGE = mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE
BASE = (0.30, 0.31, 0.33, 1.0)


def button(b: Builder) -> Shape:
    """A sprung push button on a box; its cap lights up once it has been pressed."""
    b.box([0.030, 0.030, 0.011], [0, 0, 0.011], rgba=BASE)
    cap = b.part(
        "cap", [0, 0, 0.022], SLIDE, [0, 0, -1], (0.0, 0.012), stiffness=500, damping=6, armature=0.02
    )
    b.cylinder(0.019, 0.009, [0, 0, 0.009], cap, density=300)
    b.mark("top", [0, 0, 0.018], cap)
    return Shape(radius=0.043, height=0.040)


def key(b: Builder) -> Shape:
    """A square key on a low base, for sequences; it lights up once it has been pressed."""
    b.box([0.034, 0.026, 0.008], [0, 0, 0.008], rgba=(0.85, 0.84, 0.80, 1.0))
    cap = b.part(
        "cap", [0, 0, 0.016], SLIDE, [0, 0, -1], (0.0, 0.012), stiffness=500, damping=6, armature=0.02
    )
    b.box([0.022, 0.017, 0.009], [0, 0, 0.009], cap, density=300)
    b.mark("top", [0, 0, 0.018], cap)
    return Shape(radius=0.042, height=0.034)


def drawer(b: Builder) -> Shape:
    """A cabinet whose drawer opens towards the robot."""
    x, y, h, t = 0.060, 0.055, 0.060, 0.004
    b.box([x, y, t / 2], [0, 0, h], rgba=b.rgba(0.75))
    b.box([t / 2, y, h / 2], [x, 0, h / 2], rgba=b.rgba(0.6))
    for side in (-1, 1):
        b.box([x, t / 2, h / 2], [0, side * y, h / 2], rgba=b.rgba(0.75))
    body = b.part(
        "box", [0, 0, 0.006], SLIDE, [-1, 0, 0], (0.0, 0.085), damping=3, frictionloss=5.0, armature=0.05
    )
    b.box([x - 0.006, y - 0.006, 0.002], [-0.002, 0, 0.002], body, density=500)
    b.box([t / 2, y - 0.004, 0.024], [-x, 0, 0.026], body, density=500)
    b.box([t / 2, y - 0.008, 0.016], [x - 0.010, 0, 0.016], body, density=300)
    for side in (-1, 1):
        b.box([x - 0.006, t / 2, 0.016], [-0.002, side * (y - 0.008), 0.016], body, density=300)
    b.box([0.015, 0.016, 0.004], [-x - 0.018, 0, 0.048], body, rgba=(0.9, 0.9, 0.9, 1))
    b.box([0.003, 0.016, 0.016], [-x - 0.033, 0, 0.036], body, rgba=(0.9, 0.9, 0.9, 1))
    b.mark("handle", [-x - 0.033, 0, 0.040], body)
    b.mark("inside", [-0.012, 0, 0.004], body)
    grip = Grip(at=(0, 0, 0), yaw=0.0, width=0.006, part="handle", spare=0.016)
    return Shape(
        radius=0.105,
        height=0.062,
        grips=(grip,),
        yaws=(-0.25, 0.25),
        far=True,
        floor=0.004,
        inner=0.04,
        sides=(0.10, 0.057),
    )


def lever(b: Builder) -> Shape:
    """A lever that swings from one side to the other and stays where it is put."""
    b.box([0.026, 0.040, 0.014], [0, 0, 0.014], rgba=BASE)
    arm = b.part(
        "arm", [0, 0, 0.024], HINGE, [1, 0, 0], (-0.75, 0.75), damping=0.05, frictionloss=0.15, armature=0.002
    )
    b.capsule([0, 0, 0], [0, 0, 0.070], 0.006, arm, density=200, rgba=(0.75, 0.76, 0.78, 1))
    b.sphere(0.013, [0, 0, 0.076], arm, density=200)
    b.mark("tip", [0, 0, 0.070], arm)
    return Shape(radius=0.070, height=0.115, yaws=(-0.3, 0.3))


def knob(b: Builder) -> Shape:
    """A dial with a pointer, turned by its ridge."""
    b.cylinder(0.040, 0.010, [0, 0, 0.010], rgba=BASE)
    for k in range(-2, 3):
        phi = ACROSS + 0.7 * k
        b.box(
            [0.004, 0.0015, 0.0006],
            [0.034 * np.cos(phi), 0.034 * np.sin(phi), 0.0205],
            ghost=True,
            rgba=(1, 1, 1, 1),
        )
    dial = b.part(
        "dial", [0, 0, 0.020], HINGE, [0, 0, 1], (-1.5, 1.5), damping=0.03, frictionloss=0.10, armature=0.001
    )
    b.cylinder(0.024, 0.006, [0, 0, 0.006], dial, density=300, rgba=b.rgba(0.7))
    b.box([0.022, 0.007, 0.014], [0, 0, 0.025], dial, density=300)
    b.box([0.010, 0.0025, 0.001], [0.014, 0, 0.0395], dial, ghost=True, rgba=(1, 1, 1, 1))
    b.mark("ridge", [0, 0, 0.024], dial)
    grip = Grip(at=(0, 0, 0), yaw=ACROSS, width=0.014, part="ridge")
    return Shape(radius=0.048, height=0.060, grips=(grip,), yaws=(-0.3, 0.3))


def slider(b: Builder) -> Shape:
    """A handle that slides along a rail and stays where it is put."""
    b.box([0.020, 0.080, 0.008], [0, 0, 0.008], rgba=BASE)
    b.box([0.003, 0.070, 0.001], [0, 0, 0.0165], ghost=True, rgba=(0.9, 0.9, 0.9, 1))
    cart = b.part(
        "cart", [0, 0, 0.017], SLIDE, [0, 1, 0], (-0.055, 0.055), damping=3, frictionloss=5.0, armature=0.05
    )
    b.box([0.016, 0.012, 0.005], [0, 0, 0.006], cart, density=300, rgba=b.rgba(0.7))
    b.box([0.009, 0.009, 0.016], [0, 0, 0.026], cart, density=300)
    b.mark("grip", [0, 0, 0.028], cart)
    grip = Grip(at=(0, 0, 0), yaw=0.0, width=0.018, part="grip")
    return Shape(radius=0.086, height=0.060, grips=(grip,), yaws=(-0.3, 0.3), sides=(0.02, 0.08))


def peg(b: Builder) -> Shape:
    """An upright post on a foot, to drop rings over."""
    b.cylinder(0.036, 0.005, [0, 0, 0.005], rgba=BASE)
    b.cylinder(0.0085, 0.034, [0, 0, 0.040], condim=3)
    b.sphere(0.0085, [0, 0, 0.074])
    b.mark("top", [0, 0, 0.080])
    return Shape(radius=0.046, height=0.083, floor=0.010, inner=0.010)


def flap(b: Builder) -> Shape:
    """A sock cut from stiff sheet, hinged at the ankle: one half lies flat, the other folds over it."""
    b.box([0.036, 0.034, 0.004], [-0.039, 0, 0.004])
    b.box([0.014, 0.0342, 0.0042], [-0.061, 0, 0.0042], ghost=True, rgba=b.rgba(0.6))
    half = b.part(
        "leaf",
        [0, 0, 0.010],
        HINGE,
        [0, -1, 0],
        (0.0, 3.10),
        damping=0.002,
        frictionloss=0.0004,
        armature=0.0002,
    )
    b.box([0.042, 0.034, 0.003], [0.046, 0, -0.003], half, density=400)
    b.box([0.004, 0.012, 0.007], [0.084, 0, 0.002], half, density=150, rgba=b.rgba(0.6))
    b.mark("edge", [0.084, 0, 0.003], half)
    grip = Grip(at=(0, 0, 0.002), yaw=ACROSS, width=0.024, part="edge")
    return Shape(radius=0.096, height=0.020, grips=(grip,), yaws=(-0.3, 0.3), ahead=0.06, sides=(0.09, 0.034))

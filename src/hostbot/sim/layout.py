"""Where things may stand: random spots with room for fingers, within reach, ways and targets kept free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hostbot.sim.things import Shape
from hostbot.types import BadInput


class NoRoom(BadInput):
    """The things of a scene do not all fit on the table."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where things may be put down."""

    x: tuple[float, float] = (0.19, 0.42)
    y: tuple[float, float] = (-0.25, 0.25)
    margin: float = 0.026
    """Room between footprints for a finger."""
    main: str = "left"
    cross: float = 0.09
    """How far beyond the middle the acting arm is asked to reach."""


def place(
    shapes: Mapping[str, Shape],
    near: Sequence[str],
    across: Sequence[str],
    free: Sequence[tuple[str, float, float, float]],
    lane: Sequence[tuple[str, str, float]],
    layout: Layout,
    rng: np.random.Generator,
) -> dict[str, tuple[float, float, float]]:
    """Random (x, y, yaw) for every thing; those in ``near`` within the acting arm's reach."""
    sign = 1.0 if layout.main == "left" else -1.0
    order = sorted(shapes, key=lambda n: (-shapes[n].radius, n))
    margin = layout.margin
    for attempt in range(400):
        if attempt and attempt % 40 == 0:
            margin *= 0.8
        spots: dict[str, tuple[float, float, float]] = {}
        for name in order:
            spot = _spot(name, shapes, spots, near, across, layout, sign, margin, rng)
            if spot is None:
                break
            spots[name] = spot
        if (
            len(spots) == len(shapes)
            and _is_free(spots, shapes, near, free, sign)
            and _is_open(spots, shapes, lane)
        ):
            return spots
    raise NoRoom(f"no room on the table for {', '.join(order)}; use fewer or smaller things")


def reaches(
    main: str,
    spots: Mapping[str, tuple[float, float, float]],
    shapes: Mapping[str, Shape],
    near: Sequence[str],
    free: Sequence[tuple[str, float, float, float]],
    layout: Layout,
) -> bool:
    """Whether an arm gets to everything it needs in a scene that was perhaps made for the other one."""
    sign = 1.0 if main == "left" else -1.0
    return all(spots[name][1] * sign >= -layout.cross for name in near) and all(
        _is_reached(*_beside(spots[name], shapes[name], dx, dy), sign) for name, dx, dy, _ in free
    )


def _beside(spot: tuple[float, float, float], shape: Shape, dx: float, dy: float) -> tuple[float, float]:
    """A place beside a thing; it turns with one that has a front."""
    x, y, yaw = spot
    if shape.yaws[1] < np.pi:
        dx, dy = dx * np.cos(yaw) - dy * np.sin(yaw), dx * np.sin(yaw) + dy * np.cos(yaw)
    return x + dx, y + dy


def _is_reached(x: float, y: float, sign: float) -> bool:
    return bool(0.15 < x < 0.46 and -0.12 < y * sign < 0.29)


def _is_free(
    spots: Mapping[str, tuple[float, float, float]],
    shapes: Mapping[str, Shape],
    near: Sequence[str],
    free: Sequence[tuple[str, float, float, float]],
    sign: float,
) -> bool:
    """Whether every spot to be kept free is on the table, in reach, and clear of things not in ``near``.

    Those of different things are clear of each other, too.
    """
    kept: list[tuple[str, float, float, float]] = []
    for name, dx, dy, radius in free:
        x, y = _beside(spots[name], shapes[name], dx, dy)
        if any(other != name and np.hypot(x - u, y - v) < radius + r for other, u, v, r in kept):
            return False
        kept.append((name, x, y, radius))
        if not _is_reached(x, y, sign):
            return False
        for other, (ox, oy, _) in spots.items():
            ours = other == name or (other in near and radius < 0.06)
            if not ours and np.hypot(x - ox, y - oy) < radius + shapes[other].radius:
                return False
    return True


def _is_open(
    spots: Mapping[str, tuple[float, float, float]],
    shapes: Mapping[str, Shape],
    lane: Sequence[tuple[str, str, float]],
) -> bool:
    """Whether nothing tall stands on the straight way from one thing to another."""
    for a, b, half in lane:
        start, end = np.array(spots[a][:2]), np.array(spots[b][:2])
        for other, (ox, oy, _) in spots.items():
            if other in (a, b) or shapes[other].flat:
                continue
            point = np.array([ox, oy])
            along = float(
                np.clip((point - start) @ (end - start) / ((end - start) @ (end - start) + 1e-9), -0.4, 1.0)
            )
            if np.linalg.norm(start + along * (end - start) - point) < half + shapes[other].radius:
                return False
    return True


def _spot(
    name: str,
    shapes: Mapping[str, Shape],
    spots: Mapping[str, tuple[float, float, float]],
    near: Sequence[str],
    across: Sequence[str],
    layout: Layout,
    sign: float,
    margin: float,
    rng: np.random.Generator,
) -> tuple[float, float, float] | None:
    shape = shapes[name]
    for _ in range(30):
        low, high = layout.x[0], layout.x[1] - shape.ahead
        if shape.far:
            low = high = 0.40
        x = rng.uniform(low, high + 1e-9)
        y = rng.uniform(*layout.y)
        if (name in across and y * sign > -0.06) or (name in near and y * sign < -layout.cross):
            continue
        # A tray for two hands sits in the middle.
        if shape.radius > 0.11:
            y = rng.uniform(-0.03, 0.03)
        clear = all(
            np.hypot(x - ox, y - oy) > shape.radius + shapes[other].radius + margin
            for other, (ox, oy, _) in spots.items()
        )
        if clear:
            return (float(x), float(y), float(rng.uniform(*shape.yaws)))
    return None

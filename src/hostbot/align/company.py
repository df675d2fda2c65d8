"""Videos of other tasks that travel with the weights: how near a wrong task comes is known before it is asked.

How close two videos of one task lie differs from task to task. So does how close the nearest videos of other tasks
lie, and much in the same way: the difference of the two tells more than closeness alone.

Legend: n videos, k steps kept of each, T demo steps, N robot steps, d embedding width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Float32

from hostbot.types import BadInput

STEPS = 16
"""Kept of a video."""
NEAREST = 5
"""Videos of the company that a video is measured against."""


@dataclass(frozen=True, kw_only=True)
class Company:
    """Demonstrations and executions of other tasks, a few steps of each."""

    demos: Float32[np.ndarray, "n k d"]
    robots: Float32[np.ndarray, "n k d"]
    maps: Float32[np.ndarray, "2 w f+1"] | None = None
    """What tells whole videos of one task from those of others, where it was learned."""

    def __post_init__(self) -> None:
        shapes = self.demos.shape, self.robots.shape
        if shapes[0] != shapes[1] or len(shapes[0]) != 3 or not len(self.demos):
            raise BadInput(f"company is as many demos as robots, [n, k, d], got {shapes[0]} and {shapes[1]}")

    def only(self, keep: Bool[np.ndarray, " n"]) -> Company:
        """A part of it."""
        return replace(self, demos=self.demos[keep], robots=self.robots[keep])


def kept_steps(points: Float32[np.ndarray, "T d"]) -> Float32[np.ndarray, "k d"]:
    """What company keeps of a video: steps spaced evenly, both ends among them."""
    return points[np.rint(np.linspace(0, len(points) - 1, STEPS)).astype(np.int64)]


def company_of(
    demos: Sequence[Float32[np.ndarray, "T d"]], robots: Sequence[Float32[np.ndarray, "N d"]]
) -> Company:
    """Company from embedded videos."""
    return Company(
        demos=np.stack([kept_steps(v) for v in demos]), robots=np.stack([kept_steps(v) for v in robots])
    )


def margin(demo: Float[np.ndarray, "T d"], robot: Float[np.ndarray, "N d"], company: Company) -> float:
    """How much closer two videos lie to each other than to the nearest company of the other's kind, in no order."""
    there, back = _near(demo, robot[None])[0], _near(robot, demo[None])[0]
    foes = _nearest(_near(demo, company.robots)), _nearest(_near(robot, company.demos))
    return float(0.5 * (there - foes[0] + back - foes[1]))


def _near(video: Float[np.ndarray, "T d"], others: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, " n"]:
    """A video's steps to the closest step of each other video: mean cosine."""
    cosines = video @ others.reshape(-1, others.shape[-1]).T
    return cosines.reshape(len(video), *others.shape[:2]).max(2).mean(0)


def _nearest(near: Float[np.ndarray, " n"]) -> float:
    return float(np.sort(near)[-NEAREST:].mean())

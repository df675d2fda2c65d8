"""Figures of an evaluation: success with intervals, first touches, localisation errors.

Legend: n trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hostbot.sim.progress import correspondence, shared
from hostbot.types import Event

Z95 = 1.959963984540054


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a success rate; it stays in [0, 1] and is honest at 0 and n."""
    if n == 0:
        return 0.0, 1.0
    rate, square = successes / n, Z95**2
    middle = (rate + square / (2 * n)) / (1 + square / n)
    half = Z95 / (1 + square / n) * math.sqrt(rate * (1 - rate) / n + square / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is kept of one trial."""

    task: str
    family: str
    seed: int
    shown_task: str
    video_seed: int
    success: bool
    followed: bool
    """Whether the task that was shown got done."""
    frames: int
    touched: str
    """The first thing the robot touched; empty where it touched nothing."""
    meant: str
    """The first thing the human touched in the video that was shown (or would have been)."""
    cycles: int
    held: int
    """Cycles whose actions were refused: not finite, or no rotation."""
    end_seen: int | None
    """Frame at which the policy said that the demonstration was over."""
    progress: float | None
    """Where in the demonstration it thought to be at its last cycle."""
    confidence: float | None
    localisation_error: float | None
    """Mean error of its place in the demonstration, as a share of it, where the truth is known."""
    localisation_cycles: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from the others of an evaluation."""
        return self.task, self.seed


def localisation_error(
    estimates: Sequence[tuple[int, float]],
    robot: Sequence[Event],
    demo: Sequence[Event],
    num_robot: int,
    num_demo: int,
) -> tuple[float | None, int]:
    """Mean |estimated - true| progress over (robot frame, progress) estimates, and how many.

    The truth is the frame map through the events that both executions share; with none between the ends it is not
    known.
    """
    known = [(f, p) for f, p in estimates if math.isfinite(p) and f < num_robot]
    if not known or not shared(robot, demo) or min(num_robot, num_demo) < 2:
        return None, 0
    to_demo = correspondence(robot, demo, num_robot, num_demo).robot_to_demo
    errors = [abs(p - to_demo[frame] / (num_demo - 1)) for frame, p in known]
    return float(np.mean(errors)), len(errors)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of a group of trials."""

    name: str
    n: int
    successes: int
    rate: float
    low: float
    high: float
    followed: float
    right_first_touch: float | None
    """Of the trials in which anything was touched."""
    touched: float
    """Share of trials in which anything was touched."""
    seconds: float | None
    """Mean duration of successes."""
    localisation_error: float | None
    held: int


def figures(name: str, results: Iterable[Result], rate_hz: float) -> Figures:
    """Summarise trials."""
    listed = list(results)
    n, wins = len(listed), sum(r.success for r in listed)
    low, high = wilson(wins, n)
    touches = [r.touched == r.meant for r in listed if r.touched]
    errors = [
        (r.localisation_error, r.localisation_cycles) for r in listed if r.localisation_error is not None
    ]
    cycles = sum(count for _, count in errors)
    return Figures(
        name=name,
        n=n,
        successes=wins,
        rate=wins / n if n else 0.0,
        low=low,
        high=high,
        followed=sum(r.followed for r in listed) / n if n else 0.0,
        right_first_touch=float(np.mean(touches)) if touches else None,
        touched=len(touches) / n if n else 0.0,
        seconds=float(np.mean([r.frames for r in listed if r.success])) / rate_hz if wins else None,
        localisation_error=sum(e * c for e, c in errors) / cycles if cycles else None,
        held=sum(r.held for r in listed),
    )

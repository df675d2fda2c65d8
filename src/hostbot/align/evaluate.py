"""How good an alignment is, beside clock time: error at events, order, phases, same task or not, forwards or not.

Truth comes as arrays (frames of shared events, progress of every frame), so that whoever knows it may hand it in.

Legend: N robot frames, T demo frames, K embedded steps, d embedding width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from hostbot.align.steps import clock_map
from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is known of a pair: progress of every frame on one scale, and the robot's frames at shared events."""

    robot_progress: Float[np.ndarray, " N"]
    demo_progress: Float[np.ndarray, " T"]
    robot_events: Int[np.ndarray, " k"]


@dataclass(frozen=True, kw_only=True)
class PairScores:
    """One pair's figures."""

    group: str
    """What the pair is listed under, such as the task's family."""
    aligned: float
    """Mean absolute progress error at events."""
    clock: float
    tau: float
    """Kendall's tau of raw nearest neighbours, before any warping."""


def event_error(robot_to_demo: Int[np.ndarray, " N"], truth: Truth) -> float:
    """Mean |progress of a robot's event - progress of the demo frame it was matched to| (paper, 0.006 aligned)."""
    if len(robot_to_demo) != len(truth.robot_progress):
        raise BadInput(f"a map of {len(robot_to_demo)} frames, but truth of {len(truth.robot_progress)}")
    if not len(truth.robot_events):
        return float("nan")
    matched = robot_to_demo[truth.robot_events]
    return float(np.abs(truth.robot_progress[truth.robot_events] - truth.demo_progress[matched]).mean())


def clock_event_error(truth: Truth) -> float:
    """The same for frames matched by clock time."""
    return event_error(clock_map(len(truth.robot_progress), len(truth.demo_progress)), truth)


def nearest(demo: Float[np.ndarray, "T d"], robot: Float[np.ndarray, "N d"]) -> Int[np.ndarray, " N"]:
    """Each robot step's nearest demo step on the sphere."""
    return (robot @ demo.T).argmax(1)


def kendall_tau(order: Int[np.ndarray, " n"]) -> float:
    """Of a sequence against its own order: concordant minus discordant pairs over all pairs; ties count for neither.

    A constant map has tau 0 here, where others drop it silently.
    """
    if len(order) < 2:
        return float("nan")
    above = np.triu(np.ones((len(order), len(order)), bool), 1)
    return float(np.sign(order[None, :] - order[:, None])[above].mean())


def phase_r2(
    train: Sequence[tuple[Float[np.ndarray, "K d"], Float[np.ndarray, " K"]]],
    test: Sequence[tuple[Float[np.ndarray, "K d"], Float[np.ndarray, " K"]]],
    ridge: float = 1e-3,
) -> float:
    """Phase progression: how much of progress a linear map of the embedding explains on new videos, R squared."""
    if not train or not test:
        raise BadInput(f"phase progression needs videos to fit and to test, got {len(train)} and {len(test)}")
    x, y = (np.concatenate([video[i] for video in train]) for i in (0, 1))
    mean = x.mean(0)
    w = np.linalg.solve(
        (x - mean).T @ (x - mean) + ridge * len(x) * np.eye(x.shape[1]), (x - mean).T @ (y - y.mean())
    )
    u, v = (np.concatenate([video[i] for video in test]) for i in (0, 1))
    left = np.square(v - ((u - mean) @ w + y.mean())).sum()
    return float(1 - left / np.square(v - v.mean()).sum())


def table(scores: Sequence[PairScores]) -> list[tuple[str, int, float, float, float]]:
    """Group, pairs, error aligned, error by the clock, tau: a row a group, all pairs last."""
    groups: dict[str, list[PairScores]] = {}
    for score in scores:
        groups.setdefault(score.group, []).append(score)
    rows = [_row(name, groups[name]) for name in sorted(groups)]
    return [*rows, _row("all", scores)] if scores else []


def _row(name: str, scores: Sequence[PairScores]) -> tuple[str, int, float, float, float]:
    means = [float(np.nanmean([getattr(s, k) for s in scores])) for k in ("aligned", "clock", "tau")]
    return name, len(scores), means[0], means[1], means[2]


def spread(values: Sequence[float]) -> Mapping[str, float]:
    """Mean and deviation, as the paper gives them."""
    found = np.asarray([v for v in values if np.isfinite(v)])
    return {"mean": float(found.mean()), "deviation": float(found.std())} if len(found) else {}

"""How sure an alignment is that two videos show the same task, in the same direction, as one number in [0, 1].

The path cost alone cannot tell: it is normalised over the demonstration's frames, so that a wrong task is matched at
ease as long as its frames differ from each other. What tells is how close matched frames are on the sphere, and how
much closer than to the company that trained weights keep.

Legend: T demo steps, N robot steps, d embedding width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from hostbot.align.company import Company, margin
from hostbot.align.likeness import likeness
from hostbot.types import BadInput, Correspondence

FEATURES = ("closeness", "path cost", "sharpness", "margin", "likeness")
"""Margin where the weights have company, likeness where it has learned maps."""


def features(
    demo: Float[np.ndarray, "T d"],
    robot: Float[np.ndarray, "N d"],
    found: Correspondence,
    company: Company | None = None,
    looks: tuple[Float[np.ndarray, "T e"], Float[np.ndarray, "N e"]] | None = None,
) -> Float[np.ndarray, " f"]:
    """Mean cosine of matched steps both ways, path cost a step, mean per-frame confidence, margin, likeness.

    Margin is of ``looks``, where that is not all there is to a point; company is made of it, too.
    """
    there = (robot * demo[found.robot_to_demo]).sum(1).mean()
    back = (demo * robot[found.demo_to_robot]).sum(1).mean()
    sharpness = 0.5 * (found.robot_confidence.mean() + found.demo_confidence.mean())
    values = [0.5 * (there + back), found.cost, sharpness]
    if company is not None:
        values.append(margin(*(looks or (demo, robot)), company))
        values += [] if company.maps is None else [likeness(demo, robot, company.maps)]
    return np.array(values)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A logistic curve over the features, fitted on pairs known to be of one kind or another."""

    weights: tuple[float, ...]
    bias: float

    def probability(self, values: Float[np.ndarray, "*n f"]) -> Float[np.ndarray, "*n"]:
        """Of the first kind."""
        return 1 / (1 + np.exp(-np.clip(values @ np.array(self.weights) + self.bias, -60, 60)))


@dataclass(frozen=True, kw_only=True)
class Calibration(Curve):
    """Whether a pair shows one task rather than two; where that was fitted apart, also in which direction.

    What tells tasks apart (likeness knows no order) says nothing of directions, so one curve for both would be worse at
    either. Without ``direction`` the curve was fitted against wrong tasks and videos played backwards together.
    """

    direction: Curve | None = None

    def probability(self, values: Float[np.ndarray, "*n f"]) -> Float[np.ndarray, "*n"]:
        """That a pair shows one task, in the same direction."""
        if values.shape[-1] != len(self.weights):
            raise BadInput(
                f"a calibration of {len(self.weights)} features was given {values.shape[-1]}; company and "
                "calibration belong together, make both with `hostbot align train`"
            )
        found = super().probability(values)
        return found if self.direction is None else found * self.direction.probability(values)


def confidence(values: Float[np.ndarray, " f"], calibration: Calibration | None) -> float:
    """Of one pair: calibrated where weights came with a calibration, else the closeness itself."""
    if calibration is None:
        return float(np.clip(values[0], 0, 1))
    return float(calibration.probability(values))


def fit_both(
    same: Float[np.ndarray, "n f"], others: Float[np.ndarray, "m f"], backwards: Float[np.ndarray, "k f"]
) -> Calibration:
    """From pairs of one task, of two, and of one of which one video is played backwards."""

    def curve(against: Float[np.ndarray, "m f"]) -> Curve:
        kinds = np.arange(len(same) + len(against)) < len(same)
        return fit(np.concatenate([same, against]), kinds)

    task = curve(others)
    return Calibration(weights=task.weights, bias=task.bias, direction=curve(backwards))


def fit(values: Float[np.ndarray, "n f"], same: Bool[np.ndarray, " n"], ridge: float = 1e-2) -> Curve:
    """Logistic regression by Newton's steps on standardised features; both kinds must be there, and count the same."""
    if same.all() or not same.any():
        raise BadInput("a calibration needs pairs of one task and of different tasks")
    mean, std = values.mean(0), values.std(0) + 1e-9
    x = np.concatenate([(values - mean) / std, np.ones((len(values), 1))], 1)
    num, share = values.shape[1], same.mean()
    counts = np.where(same, 0.5 / share, 0.5 / (1 - share))
    w = np.zeros(num + 1)
    penalty = ridge * np.diag([1.0] * num + [0.0])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -60, 60)))
        gradient = x.T @ (counts * (p - same)) / len(x) + penalty @ w
        hessian = (x * (counts * p * (1 - p))[:, None]).T @ x / len(x) + penalty + 1e-9 * np.eye(num + 1)
        w = w - np.linalg.solve(hessian, gradient)
    scaled = w[:-1] / std
    return Curve(weights=tuple(map(float, scaled)), bias=float(w[-1] - (scaled * mean).sum()))


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """The chance that a positive scores above a negative, ties counting half."""
    if not len(positive) or not len(negative):
        raise BadInput(f"AUROC needs scores of both kinds, got {len(positive)} and {len(negative)}")
    a, b = np.asarray(positive, float), np.sort(np.asarray(negative, float))
    below, upto = np.searchsorted(b, a, "left"), np.searchsorted(b, a, "right")
    return float((below + upto).mean() / (2 * len(b)))

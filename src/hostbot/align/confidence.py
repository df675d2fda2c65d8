"""How sure an alignment is that two videos show the same task, in the same direction, as one number in [0, 1].

The path cost alone cannot tell: it is normalised over the demonstration's frames, so that a wrong task is matched at
ease as long as its frames differ from each other. What tells is how close matched frames are on the sphere.

Legend: T demo steps, N robot steps, d embedding width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from hostbot.types import BadInput, Correspondence

FEATURES = ("closeness", "path cost", "sharpness")


def features(
    demo: Float[np.ndarray, "T d"], robot: Float[np.ndarray, "N d"], found: Correspondence
) -> Float[np.ndarray, " 3"]:
    """Mean cosine of matched steps both ways, path cost a step, mean per-frame confidence."""
    there = (robot * demo[found.robot_to_demo]).sum(1).mean()
    back = (demo * robot[found.demo_to_robot]).sum(1).mean()
    sharpness = 0.5 * (found.robot_confidence.mean() + found.demo_confidence.mean())
    return np.array([0.5 * (there + back), found.cost, sharpness])


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A logistic curve over the features, fitted on pairs known to be of one task or not."""

    weights: tuple[float, float, float]
    bias: float

    def probability(self, values: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n"]:
        """That a pair shows one task."""
        return 1 / (1 + np.exp(-np.clip(values @ np.array(self.weights) + self.bias, -60, 60)))


def confidence(values: Float[np.ndarray, " 3"], calibration: Calibration | None) -> float:
    """Of one pair: calibrated where weights came with a calibration, else the closeness itself."""
    if calibration is None:
        return float(np.clip(values[0], 0, 1))
    return float(calibration.probability(values))


def fit(values: Float[np.ndarray, "n 3"], same: Bool[np.ndarray, " n"], ridge: float = 1e-2) -> Calibration:
    """Logistic regression by Newton's steps on standardised features; both kinds must be there."""
    if same.all() or not same.any():
        raise BadInput("a calibration needs pairs of one task and of different tasks")
    mean, std = values.mean(0), values.std(0) + 1e-9
    x = np.concatenate([(values - mean) / std, np.ones((len(values), 1))], 1)
    w = np.zeros(4)
    penalty = ridge * np.diag([1.0, 1.0, 1.0, 0.0])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -60, 60)))
        gradient = x.T @ (p - same) / len(x) + penalty @ w
        hessian = (x * (p * (1 - p))[:, None]).T @ x / len(x) + penalty + 1e-9 * np.eye(4)
        w = w - np.linalg.solve(hessian, gradient)
    scaled = w[:3] / std
    first, second, third = (float(v) for v in scaled)
    return Calibration(weights=(first, second, third), bias=float(w[3] - (scaled * mean).sum()))


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """The chance that a positive scores above a negative, ties counting half."""
    if not len(positive) or not len(negative):
        raise BadInput(f"AUROC needs scores of both kinds, got {len(positive)} and {len(negative)}")
    a, b = np.asarray(positive, float), np.sort(np.asarray(negative, float))
    below, upto = np.searchsorted(b, a, "left"), np.searchsorted(b, a, "right")
    return float((below + upto).mean() / (2 * len(b)))

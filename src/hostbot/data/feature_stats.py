"""Per-episode statistics as LeRobot keeps them: min, max, mean, std, count and five quantiles.

Everything is computed in float64, so that the overflow that zeroed image deviations in older datasets
cannot happen. ``aggregate`` weights means and quantiles by count as LeRobot does; a weighted mean of
quantiles is not a quantile, so training takes its statistics from the data instead (``hostbot data
stats``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64, UInt8

from hostbot.types import Image

QUANTILES: Mapping[str, float] = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
Stats = dict[str, np.ndarray]
_MAX_SAMPLES = 64
_SAMPLE_SIDE = 150


def numeric_stats(values: np.ndarray) -> Stats:
    """Statistics over the rows of a feature; every entry has the shape of one row."""
    rows: Float64[np.ndarray, N * shape] = values.astype(np.float64)
    return {
        "min": rows.min(0),
        "max": rows.max(0),
        "mean": rows.mean(0),
        "std": rows.std(0),
        "count": np.array([len(rows)]),
        **{name: np.quantile(rows, q, axis=0) for name, q in QUANTILES.items()},
    }


class ImageSampler:
    """Evenly spaced frames of a stream whose length is not known, thinned whenever they are too many."""

    def __init__(self) -> None:
        self._kept: list[UInt8[np.ndarray, "_ _ 3"]] = []
        self._stride, self._seen = 1, 0

    def add(self, frame: Image) -> None:
        """Look at one frame."""
        if self._seen % self._stride == 0:
            step = max(1, min(frame.shape[:2]) // _SAMPLE_SIDE)
            self._kept.append(frame[::step, ::step].copy())
            if len(self._kept) > _MAX_SAMPLES:
                self._kept, self._stride = self._kept[::2], self._stride * 2
        self._seen += 1

    def stats(self) -> Stats:
        """Channel statistics in [0, 1], each of shape (3, 1, 1)."""
        pixels = np.concatenate([k.reshape(-1, 3) for k in self._kept])
        counts = np.stack([np.bincount(pixels[:, c], minlength=256) for c in range(3)]).astype(np.float64)
        levels, total = np.arange(256) / 255, float(len(pixels))
        mean = counts @ levels / total
        variance = counts @ levels**2 / total - mean**2
        cumulative = np.cumsum(counts, axis=1) / total
        flat = {
            "min": levels[(counts > 0).argmax(1)],
            "max": levels[255 - (counts > 0)[:, ::-1].argmax(1)],
            "mean": mean,
            "std": np.sqrt(np.maximum(variance, 0)),
            **{name: levels[(cumulative >= q - 1e-12).argmax(1)] for name, q in QUANTILES.items()},
        }
        return {k: v.reshape(3, 1, 1) for k, v in flat.items()} | {"count": np.array([len(self._kept)])}


def aggregate(a: Stats | None, b: Stats) -> Stats:
    """Statistics of two sets of rows together."""
    if a is None:
        return b
    m, n = float(a["count"][0]), float(b["count"][0])
    mean = (m * a["mean"] + n * b["mean"]) / (m + n)
    spread = m * (a["std"] ** 2 + (a["mean"] - mean) ** 2) + n * (b["std"] ** 2 + (b["mean"] - mean) ** 2)
    return {
        "min": np.minimum(a["min"], b["min"]),
        "max": np.maximum(a["max"], b["max"]),
        "mean": mean,
        "std": np.sqrt(spread / (m + n)),
        "count": a["count"] + b["count"],
        **{q: (m * a[q] + n * b[q]) / (m + n) for q in QUANTILES},
    }


def to_json(stats: Mapping[str, Stats]) -> dict[str, Any]:
    """``stats.json``."""
    return {f: {k: np.atleast_1d(v).tolist() for k, v in s.items()} for f, s in stats.items()}


def from_json(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, Stats]:
    """``stats.json`` back."""
    return {f: {k: np.asarray(v) for k, v in s.items()} for f, s in raw.items()}

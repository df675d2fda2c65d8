"""Linear normalisation to [-1, 1] (supplement, "Actions and proprioception").

Legend: D vector width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from hostbot.data.stats import FeatureStats
from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class NormalizeConfig:
    """Which bounds become -1 and 1."""

    bounds: Literal["minmax", "quantile"] = "minmax"
    """The paper's minimum and maximum, or the 1 % and 99 % quantiles, which wild values do not stretch."""
    smallest_range: float = 1e-3
    """A dimension that moves less than this (an arm that rests) is centred and not stretched to noise."""


@dataclass(frozen=True)
class Normalizer:
    """The map between a feature's own units and [-1, 1]; the two directions are exact inverses."""

    centre: Float[np.ndarray, " D"]
    half_range: Float[np.ndarray, " D"]

    @classmethod
    def from_stats(cls, stats: FeatureStats, config: NormalizeConfig) -> Normalizer:
        """A normaliser from statistics."""
        low, high = (stats.min, stats.max) if config.bounds == "minmax" else (stats.q01, stats.q99)
        low_, high_ = np.array(low), np.array(high)
        half = np.maximum(high_ - low_, config.smallest_range) / 2
        return cls((low_ + high_) / 2, half)

    def normalize(self, values: Float[np.ndarray, "*B D"]) -> Float[np.ndarray, "*B D"]:
        """Own units to [-1, 1]; values outside the bounds come out beyond ±1."""
        self._check(values)
        return ((values - self.centre) / self.half_range).astype(values.dtype)

    def denormalize(self, values: Float[np.ndarray, "*B D"]) -> Float[np.ndarray, "*B D"]:
        """[-1, 1] back to own units."""
        self._check(values)
        return (values * self.half_range + self.centre).astype(values.dtype)

    def clipped_share(self, values: Float[np.ndarray, "*B D"]) -> Float[np.ndarray, " D"]:
        """Per dimension, the share of values that clipping to [-1, 1] would change."""
        outside = np.abs(self.normalize(values.astype(np.float64))) > 1 + 1e-6
        return outside.reshape(-1, values.shape[-1]).mean(0)

    def _check(self, values: np.ndarray) -> None:
        if values.shape[-1] != len(self.centre):
            raise BadInput(
                f"the statistics have {len(self.centre)} dimensions, the values {values.shape[-1]}"
            )

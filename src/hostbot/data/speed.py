"""Speed augmentation: play a timeline faster or slower by a factor (supplement, "Temporal structure").

The paper scales its frame interval by a factor in [0.5, 2]; here the same factor retimes a whole timeline,
for the demonstration and the robot alike. Legend: N source frames, M frames after retiming.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from hostbot.types import BadInput, Event


@dataclass(frozen=True, kw_only=True)
class SpeedConfig:
    """The range the factor is drawn from, uniformly as in the paper."""

    low: float = 0.5
    high: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise BadInput(f"speed factors must satisfy 0 < low <= high, got {self.low} and {self.high}")


def draw_factor(config: SpeedConfig, rng: np.random.Generator) -> float:
    """A speed factor; 2 plays twice as fast."""
    return float(rng.uniform(config.low, config.high))


def retime(num_frames: int, factor: float) -> Int[np.ndarray, " M"]:
    """The source frame shown at each new frame; both ends are kept, and the order never turns back."""
    if num_frames < 1 or not factor > 0:
        raise BadInput(
            f"retiming needs at least one frame and a factor above 0, got {num_frames} and {factor}"
        )
    num_new = max(min(num_frames, 2), round((num_frames - 1) / factor) + 1)
    return np.round(np.linspace(0, num_frames - 1, num_new)).astype(np.int64)


def retime_events(events: tuple[Event, ...], indices: Int[np.ndarray, " M"]) -> tuple[Event, ...]:
    """Events at the first new frame that shows their source frame or a later one."""
    frames = np.searchsorted(indices, [event.frame for event in events])
    last = len(indices) - 1
    return tuple(Event(name=e.name, frame=min(int(f), last)) for e, f in zip(events, frames, strict=True))

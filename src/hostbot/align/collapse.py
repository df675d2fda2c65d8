"""Has the encoder collapsed? Two ways to please the losses without looking: all frames alike, or a clock.

A clock embeds when in its video a frame is and not what it shows, so one curve over time fits the videos of every
task alike. Both are measured on videos of several tasks and told in a sentence.

Legend: K steps of a video, d embedding width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from hostbot.types import BadInput

_BINS = 10


@dataclass(frozen=True, kw_only=True)
class CollapseConfig:
    """From where on it counts as collapse."""

    alike: float = 0.98
    """Mean cosine of a video's frames with each other."""
    clock: float = 0.9
    """Share of all variance, over tasks and time, that time alone explains."""


@dataclass(frozen=True, kw_only=True)
class Collapse:
    """What was found, and the sentence about it; empty where all is well."""

    alike: float
    clock: float
    sentence: str


def alikeness(video: Float[np.ndarray, "K d"]) -> float:
    """Mean cosine of the frames of one video with each other, those with themselves left out."""
    num = len(video)
    if num < 2:
        return 1.0
    return float((np.square(video.sum(0)).sum() - num) / (num * (num - 1)))


def clock_share(videos: Sequence[Float[np.ndarray, "K d"]]) -> float:
    """Share of the variance of all frames that the mean over videos at the same relative time explains."""
    times = np.concatenate([np.linspace(0, 1, len(v)) for v in videos])
    points = np.concatenate(videos)
    place = np.minimum((times * _BINS).astype(int), _BINS - 1)
    total = np.square(points - points.mean(0)).sum()
    if total <= 1e-12:
        return 0.0
    left = sum(
        np.square(points[place == b] - points[place == b].mean(0)).sum()
        for b in range(_BINS)
        if (place == b).any()
    )
    return float(1 - left / total)


def look_for_collapse(
    videos: Sequence[Float[np.ndarray, "K d"]], tasks: Sequence[str], config: CollapseConfig
) -> Collapse:
    """Look at embedded videos of at least two tasks."""
    if len(set(tasks)) < 2 or len(videos) != len(tasks):
        raise BadInput(f"videos of two tasks at least are needed, got {len(videos)} of {len(set(tasks))}")
    alike, clock = float(np.mean([alikeness(v) for v in videos])), clock_share(videos)
    sentence = ""
    if alike > config.alike:
        sentence = (
            f"The encoder has collapsed: frames of one video have a mean cosine of {alike:.3f}, all look alike to it; "
            "lower the learning rate or the weight of the path cost, or train longer."
        )
    elif clock > config.clock:
        sentence = (
            f"The encoder has become a clock: time alone explains {clock:.0%} of its embeddings of different tasks; "
            "train on more tasks and paces, or shorten what it sees of a frame's neighbours."
        )
    return Collapse(alike=alike, clock=clock, sentence=sentence)

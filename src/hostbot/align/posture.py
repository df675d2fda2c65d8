"""What hands do at a moment, whoever's they are: learned where it is known, told of every frame.

The paper starts from an encoder that has seen millions of hands; one from nothing has to be told what a hand is. So
for the weights that ship, and for them alone, a few numbers that the renderer knows are learned besides: how high hands
are and where they are heading, how far open, whether they touch anything. Both bodies have them. They are what any
dataset of hand poses holds: nothing of them says how far a task has come, or which moment of another video is alike.

Legend: T steps, V views, H hands, F frames of all videos, M pictures, P numbers of a posture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from hostbot.types import BadInput

POSTURE = ("rising", "crossing", "speed", "opening up", "height", "opening", "touching", "stirring")
"""Where the hand that moves is heading, up and across; how fast at most; how fast hands open; the lowest hand's height;
the narrower opening; whether any thing is touched; how fast a thing moves at most."""
MOTION = ("across", "down", "far")
"""How the hand that moves most moves in the picture of the last view: learned besides, compared nowhere."""
GLIMPSES = 2
"""Places in a picture that are looked at closely: one for each hand."""
_SPEED, _HEIGHT, _OPENING = 0.16, 0.05, 0.03
"""One of each counts as much as the others: metres a second, metres, metres."""
_STILL = 0.05
"""Metres a second below which a hand is heading nowhere."""
_MEAN = (0.01, 0.46, 0.48, 0.0, 1.79, 1.42, 0.51, 0.22)
_SPREAD = (0.52, 0.44, 0.41, 0.49, 0.99, 0.59, 0.50, 0.37)
"""Of each number, over the bench's training tasks."""
WEIGHTS = (2.0, 2.0, 0.8, 1.2, 4.0, 0.5, 0.5, 0.1)
"""How much each counts when frames are compared: found on training tasks (benchmarks/align_postures.py)."""
_SEEN = 4.0
"""A quarter of half a picture counts as much as the others."""
WIDEST = 1.1
"""Radians, found with the weights: what lies farther out lies no farther away."""


def motion(hands: Float[np.ndarray, "T 20"], rate_hz: float) -> Float32[np.ndarray, "T 6"]:
    """Where the hand that moves is heading, how fast at most, how jaws open, its height, the narrower opening.

    Nobody's pace counts: people are slower or faster from one motion to the next, and how fast is no part of a moment.
    """
    places, openings = np.stack([hands[:, :3], hands[:, 10:13]], 1), hands[:, [9, 19]]
    velocity = np.gradient(places, 1 / rate_hz, axis=0)
    share = np.square(velocity).sum(2) + 1e-6
    speed = np.sqrt(np.square(velocity).sum((1, 2)))
    steady = np.hypot(speed, _STILL)
    share /= share.sum(1, keepdims=True)
    scaled = [
        (share * velocity[:, :, 2]).sum(1) / steady,
        (share * np.linalg.norm(velocity[:, :, :2], axis=2)).sum(1) / steady,
        np.tanh(speed / _SPEED),
        np.gradient(openings, 1 / rate_hz, axis=0).sum(1) / _SPEED,
        places[:, :, 2].min(1) / _HEIGHT,
        openings.min(1) / _OPENING,
    ]
    return np.stack(scaled, 1).astype(np.float32)


def posture(
    hands: Float[np.ndarray, "T 20"],
    touching: Bool[np.ndarray, " T"],
    things: Float[np.ndarray, "T n 3"],
    rate_hz: float,
) -> Float32[np.ndarray, "T P"]:
    """Every step's posture, each number about as wide as the others."""
    speed = np.linalg.norm(np.gradient(things, 1 / rate_hz, axis=0), axis=2)
    stirring = np.tanh(speed.max(1, initial=0.0) / _SPEED)
    values = np.concatenate([motion(hands, rate_hz), touching[:, None], stirring[:, None]], 1)
    return ((values - np.array(_MEAN)) / np.array(_SPREAD)).astype(np.float32)


def on_circles(
    told: Float[Tensor, "*n P"], weights: Sequence[float] = WEIGHTS, widest: float = WIDEST
) -> Float[Tensor, "*n 2P"]:
    """A point of the unit sphere: each number as an angle on a circle of its own, so that far is far, no more."""
    angles = told.clamp(-widest, widest)
    radii = (told.new_tensor(weights) / sum(weights)).sqrt()
    return torch.cat([radii * angles.cos(), radii * angles.sin()], -1)


def motion_seen(
    spots: Float[np.ndarray, "F V H 2"], lengths: Int[np.ndarray, " E"], reach: int = 2
) -> Float32[np.ndarray, "F 3"]:
    """How far the hand that moves most gets in the last view, from so many frames before to after; no side counts."""
    ends = np.repeat(np.cumsum(lengths), lengths)
    row = np.arange(len(spots))
    before, after = (
        np.maximum(row - reach, ends - np.repeat(lengths, lengths)),
        np.minimum(row + reach, ends - 1),
    )
    ways = spots[after, -1] - spots[before, -1]
    most = ways[row, np.linalg.norm(ways, axis=2).argmax(1)]
    told = np.stack([np.abs(most[:, 0]), most[:, 1], np.linalg.norm(most, axis=1)], 1)
    return (_SEEN * told).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """What is known of a video's steps besides its pictures."""

    posture: Float32[np.ndarray, "T P"]
    spots: Float32[np.ndarray, "T V H 2"]
    """Where each hand is in each view: right and down, from -1 to 1."""

    def __post_init__(self) -> None:
        steps, numbers = self.posture.shape
        if numbers != len(POSTURE) or len(self.spots) != steps or self.spots.shape[2:] != (GLIMPSES, 2):
            raise BadInput(
                f"a video's annotations are [T, {len(POSTURE)}] and [T, V, {GLIMPSES}, 2], "
                f"got {self.posture.shape} and {self.spots.shape}"
            )


def in_order(spots: Float[Tensor, "*n H 2"]) -> Float[Tensor, "*n H 2"]:
    """Places inside the picture, the one further left first: no picture says whose hand it is."""
    order = spots[..., 0].argsort(-1)[..., None].expand(spots.shape)
    return spots.gather(-2, order).clamp(-1, 1)

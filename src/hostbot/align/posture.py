"""What hands do at a moment, whoever's they are: learned where it is known, told of every frame.

The paper starts from an encoder that has seen millions of hands; one from nothing has to be told what a hand is. So
for weights of ``benchmarks/align_train.py``, and for them alone, a few numbers that the renderer knows are learned
besides: how high hands are and where they are heading, how far open, whether they touch anything. Both bodies have
them. They are what any dataset of hand poses holds: nothing of them says how far a task has come, or which moment of
another video is alike.

Legend: B videos, T steps, V views, G glimpses, H hands, P numbers of a posture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from hostbot.types import BadInput

POSTURE = ("rising", "crossing", "speed", "opening up", "height", "opening", "touching", "stirring")
"""Where the hand that moves is heading, up and across; how fast at most; how fast hands open; the lowest hand's height;
the narrower opening; whether any thing is touched; how fast a thing moves at most."""
GLIMPSES = 2
"""Places in a picture that are looked at closely: one for each hand."""
_SPEED, _HEIGHT, _OPENING = 0.16, 0.05, 0.03
"""One of each counts as much as the others: metres a second, metres, metres."""
_STILL = 0.05
"""Metres a second below which a hand is heading nowhere."""
_MEAN = (0.01, 0.46, 0.48, 0.0, 1.79, 1.42, 0.51, 0.22)
_SPREAD = (0.52, 0.44, 0.41, 0.49, 0.99, 0.59, 0.50, 0.37)
"""Of each number, over the bench's training tasks."""
_WEIGHTS = (2.0, 1.0, 0.5, 2.0, 2.0, 1.0, 1.0, 0.5)
"""How much each counts when frames are compared: found on training tasks, like the share of all of them together."""
_WIDEST = 2.0
"""Radians: twice as much is not yet near again."""


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


def on_circles(told: Float[Tensor, "*n P"]) -> Float[Tensor, "*n 2P"]:
    """A point of the unit sphere: each number as an angle on a circle of its own, so that far is far, no more."""
    angles = told.clamp(-_WIDEST, _WIDEST)
    radii = (told.new_tensor(_WEIGHTS) / sum(_WEIGHTS)).sqrt()
    return torch.cat([radii * angles.cos(), radii * angles.sin()], -1)


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


def seen_spots(
    spots: Float[Tensor, "*n V H 2"],
    mirror: Float[Tensor, "*n V"],
    scale: Float[Tensor, "*n V"],
    centre: Float[Tensor, "*n V 2"],
) -> Float[Tensor, "*n V H 2"]:
    """Where hands are in pictures that were mirrored and cropped, the one further left first: no picture says whose."""
    factor = torch.stack([scale * mirror, scale], -1)[..., None, :]
    moved = (spots - centre[..., None, :]) / factor
    order = moved[..., 0].argsort(-1)[..., None].expand(moved.shape)
    return moved.gather(-2, order).clamp(-1, 1)


def posture_loss(
    told: Float[Tensor, "B T P"], wanted: Float[Tensor, "B T P"], there: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Mean squared error over steps that are there."""
    return (told.float() - wanted).square().mean(-1)[there].mean()


def spots_loss(
    found: Float[Tensor, "B T V G 2"], wanted: Float[Tensor, "B T V H 2"], seen: Bool[Tensor, "B T V"]
) -> Float[Tensor, ""]:
    """Mean squared distance over pictures that are there, in halves of a side."""
    return (found.float() - wanted).square().sum(-1).mean(-1)[seen].mean()

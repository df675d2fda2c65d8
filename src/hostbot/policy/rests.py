"""Pauses of a demonstration, cut short: a robot that follows does not wait where a person did.

A window holds a few seconds of a video. While a person rests, a robot goes on, and where the rest is as long as what
the window holds ahead, the robot gets to where it cannot be found.

Legend: V views, T frames, h w pixels, p points along a side, K frames that are kept.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32, Int, UInt8
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

_FINE, _CELLS = 32, 8
"""Points along a view's side, in which a camera's noise is averaged, and cells, in one of which what moves is much."""
_STILL = 2.0
"""Levels of 255 by which the points of no cell differ on average while nothing moves."""


def without_rests(frames: UInt8[np.ndarray, "V T h w 3"], most: int) -> Int[np.ndarray, " K"]:
    """The frames that are kept: ``most`` of every rest, all others, and the last.

    A rest is measured from the frame it begins with, so that slow motion is thinned at most, not cut out.
    """
    seen = _seen(frames)
    kept, since, rested = [0], 0, 0
    for frame in range(1, len(seen)):
        if _moved(seen[since], seen[frame]) < _STILL:
            rested += 1
        else:
            since, rested = frame, 0
        if rested <= most or frame == len(seen) - 1:
            kept.append(frame)
    return np.array(kept, dtype=np.int64)


def _seen(frames: UInt8[np.ndarray, "V T h w 3"]) -> Float32[Tensor, "T V p p"]:
    """What every frame looks like, coarsely and without colours."""
    grey = (torch.from_numpy(frame.astype(np.float32).mean(axis=-1)) for frame in frames.swapaxes(0, 1))
    return torch.stack([adaptive_avg_pool2d(one, _FINE) for one in grey])


def _moved(one: Float32[Tensor, "V p p"], other: Float32[Tensor, "V p p"]) -> float:
    """How much the cell changed that changed most."""
    return float(adaptive_avg_pool2d((one - other).abs(), _CELLS).max())

"""Frames that are already decoded, brought to the model's size exactly as a reader would have."""

from __future__ import annotations

import av
import numpy as np

from hostbot.types import BadInput, Frames
from hostbot.video.colour import Converter, lay_into
from hostbot.video.fit import Fit, Size, place


def fit_frames(frames: Frames, size: Size, fit: Fit = "letterbox") -> Frames:
    """uint8 RGB frames at another size, letterboxed unless told otherwise; the same size costs nothing."""
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8:
        raise BadInput(f"frames are uint8 of shape (T, h, w, 3), got {frames.dtype} of {frames.shape}")
    placement = place((frames.shape[1], frames.shape[2]), size, fit)
    if placement.output == frames.shape[1:3]:
        return frames
    converter = Converter()
    out = np.zeros((len(frames), *placement.output, 3), np.uint8)
    for image, frame in zip(out, frames, strict=True):
        picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
        lay_into(image, converter.rgb(picture, placement.scaled, None), placement)
    return out

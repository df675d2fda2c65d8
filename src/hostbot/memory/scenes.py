"""Scenes by the alignment module's frame encoder, which knows a person's view and the robot's as one space.

Legend: B scenes, d embedding width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32

from hostbot.align.aligner import Aligner
from hostbot.types import Image
from hostbot.video import fit_frames


class AlignedScenes:
    """The embedding of a single frame, eq:embedding, with any aligner."""

    def __init__(self, aligner: Aligner) -> None:
        self._aligner = aligner
        self.identity = f"aligner-{aligner.identity}"

    def embed_scene(self, images: Sequence[Image]) -> Float32[np.ndarray, "B d"]:
        """One vector a picture, each a video of one frame."""
        size = (self._aligner.size, self._aligner.size)
        fitted = [fit_frames(image[None], size) for image in images]
        points = np.concatenate([self._aligner.embed({"scene": frames}) for frames in fitted])
        return self._aligner.looks(points)

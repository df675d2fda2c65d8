"""Frames in memory are fitted exactly as a reader fits the same frames from disk."""

import numpy as np
import pytest
from PIL import Image

from hostbot.types import BadInput
from hostbot.video import FolderReader, fit_frames


@pytest.mark.parametrize("fit", ["letterbox", "crop", "stretch"])
def test_the_same_as_reading_them_at_that_size(tmp_path, fit):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (3, 30, 42, 3), np.uint8)
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(tmp_path / f"{number}.png")
    with FolderReader(tmp_path, fps=10) as reader:
        wanted = reader.frames(range(3), (16, 24), fit)
    assert np.array_equal(fit_frames(frames, (16, 24), fit), wanted)


def test_frames_of_the_right_size_are_left_alone():
    frames = np.zeros((2, 16, 16, 3), np.uint8)
    assert fit_frames(frames, (16, 16)) is frames


def test_what_is_no_frame():
    with pytest.raises(BadInput, match="float64"):
        fit_frames(np.zeros((2, 16, 16, 3)), (8, 8))

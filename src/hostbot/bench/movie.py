"""A trial as a film: the human video where the robot thinks it is, the robot, what it foresaw, and a progress bar.

Legend: T frames, h w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hostbot.bench.results import Finished
from hostbot.policy.session import Decision
from hostbot.sim.demonstrator import VIEW
from hostbot.types import ActionChunk, Frames, Image
from hostbot.video import VideoWriter, fit_frames

SIDE, BAR, GAP = 192, 10, 4
BACKGROUND, DONE, DOUBT = (245, 245, 242), (46, 125, 80), (196, 120, 40)
Imagine = Callable[[Decision], Mapping[str, Frames]]


def panel(picture: Image | None) -> Image:
    """A picture at the film's size, or a blank one."""
    if picture is None:
        return np.full((SIDE, SIDE, 3), 225, np.uint8)
    return fit_frames(np.asarray(picture)[None], (SIDE, SIDE))[0]


def compose(pictures: Sequence[Image | None], progress: float, confidence: float) -> Image:
    """Panels side by side over a bar; the bar's colour tells confidence."""
    width = len(pictures) * SIDE + (len(pictures) - 1) * GAP
    canvas = np.full((SIDE + BAR + GAP, width, 3), BACKGROUND, np.uint8)
    for place, picture in enumerate(pictures):
        left = place * (SIDE + GAP)
        canvas[:SIDE, left : left + SIDE] = panel(picture)
    if math.isfinite(progress):
        sure = 1.0 if not math.isfinite(confidence) else min(max(confidence, 0.0), 1.0)
        colour = sure * np.array(DONE) + (1 - sure) * np.array(DOUBT)
        canvas[-BAR:, : round(progress * width)] = colour.astype(np.uint8)
    return canvas


def foreseen(chunk: ActionChunk, imagine: Imagine | None, view: str = VIEW) -> Frames | None:
    """What a chunk predicted of one view."""
    if imagine is None or not isinstance(chunk, Decision):
        return None
    return imagine(chunk).get(view)


def write_movie(path: Path, finished: Finished, imagine: Imagine | None = None, fps: float = 16.0) -> None:
    """Human | robot | predicted future, in step."""
    row, film = finished.row, finished.row.film
    assert film is not None
    human = film.views.get(VIEW) if row.trial.shown != "none" else None
    chunks = row.chunks
    ahead = [foreseen(chunk, imagine) for _, chunk in chunks]
    height, width = SIDE + BAR + GAP, 3 * SIDE + 2 * GAP
    with VideoWriter(path, (height, width), fps) as writer:
        at = 0
        for frame, picture in enumerate(finished.pictures):
            while at + 1 < len(chunks) and chunks[at + 1][0] <= frame:
                at += 1
            begun, chunk = chunks[at]
            writer.write(
                compose(
                    [
                        _human(human, chunk, frame - begun),
                        picture,
                        _ahead(ahead[at], frame - begun, len(chunk)),
                    ],
                    chunk.progress,
                    chunk.confidence,
                )
            )


def _human(frames: Frames | None, chunk: ActionChunk, step: int) -> Image | None:
    """Where the robot thought to be, and on from there as the chunk is carried out."""
    if frames is None:
        return None
    progress = chunk.progress if math.isfinite(chunk.progress) else 0.0
    return frames[min(round(progress * (len(frames) - 1)) + step, len(frames) - 1)]


def _ahead(frames: Frames | None, step: int, steps: int) -> Image | None:
    """The predicted frame next to come: predictions are evenly spaced over the chunk."""
    if frames is None:
        return None
    return frames[min(step * len(frames) // steps, len(frames) - 1)]

"""A trial as a film: the human video where the robot thinks it is, the robot, what it foresaw, and a progress bar.

Legend: T frames, h w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image as Picture

from hostbot.bench.results import Finished
from hostbot.policy.session import Decision
from hostbot.sim.demonstrator import VIEW
from hostbot.types import ActionChunk, Frames, Image
from hostbot.video import VideoWriter, fit_frames

SIDE, BAR, GAP = 192, 10, 4
BACKGROUND, DONE, DOUBT = (245, 245, 242), (46, 125, 80), (196, 120, 40)
Imagine = Callable[[Decision], Mapping[str, Frames]]


def panel(picture: Image | None, side: int = SIDE) -> Image:
    """A picture at the film's size, or a blank one."""
    if picture is None:
        return np.full((side, side, 3), 225, np.uint8)
    return fit_frames(np.asarray(picture)[None], (side, side))[0]


def compose(pictures: Sequence[Image | None], progress: float, confidence: float, side: int = SIDE) -> Image:
    """Panels side by side over a bar; the bar's colour tells confidence."""
    width = len(pictures) * side + (len(pictures) - 1) * GAP
    canvas = np.full((side + BAR + GAP, width, 3), BACKGROUND, np.uint8)
    for place, picture in enumerate(pictures):
        left = place * (side + GAP)
        canvas[:side, left : left + side] = panel(picture, side)
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


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One control step as three pictures: what the person did, what the robot did, what it foresaw."""

    human: Image | None
    robot: Image
    foreseen: Image | None
    decision: ActionChunk
    step: int
    """Of the decision's chunk."""


def moments(
    human: Frames | None,
    robot: Sequence[Image],
    chunks: Sequence[tuple[int, ActionChunk]],
    imagine: Imagine | None,
) -> Iterator[Moment]:
    """A trial step by step; chunks carry the frame they were decided at."""
    at, ahead = 0, foreseen(chunks[0][1], imagine) if chunks else None
    for frame, picture in enumerate(robot):
        while at + 1 < len(chunks) and chunks[at + 1][0] <= frame:
            at += 1
            ahead = foreseen(chunks[at][1], imagine)
        begun, chunk = chunks[at]
        yield Moment(
            human=_human(human, chunk, frame - begun),
            robot=picture,
            foreseen=_ahead(ahead, frame - begun, len(chunk)),
            decision=chunk,
            step=min(frame - begun, len(chunk) - 1),
        )


def write_moments(path: Path, shown: Iterable[Moment], fps: float = 16.0, side: int = SIDE) -> None:
    """Human | robot | predicted future, in step, over a bar that says where in the video the robot thinks it is."""
    with VideoWriter(path, (side + BAR + GAP, 3 * side + 2 * GAP), fps) as writer:
        for one in shown:
            panels = [one.human, one.robot, one.foreseen]
            writer.write(compose(panels, one.decision.progress, one.decision.confidence, side))


def write_sheet(path: Path, shown: Sequence[Moment], columns: int = 6, side: int = SIDE) -> None:
    """A few moments as a picture: the person above, the robot below, and under it what it foresaw."""
    chosen = [shown[round(i)] for i in np.linspace(0, len(shown) - 1, columns)]
    rows = [[one.human for one in chosen], [one.robot for one in chosen], [one.foreseen for one in chosen]]
    step = side + GAP
    sheet = np.full((3 * step - GAP, columns * step - GAP, 3), BACKGROUND, np.uint8)
    for row, pictures in enumerate(rows):
        for column, picture in enumerate(pictures):
            sheet[row * step : row * step + side, column * step : column * step + side] = panel(picture, side)
    Picture.fromarray(sheet).save(path)


def write_movie(path: Path, finished: Finished, imagine: Imagine | None = None, fps: float = 16.0) -> None:
    """A trial of an evaluation as a film."""
    row, film = finished.row, finished.row.film
    assert film is not None
    human = film.views.get(VIEW) if row.trial.shown != "none" else None
    write_moments(path, moments(human, finished.pictures, row.chunks, imagine), fps)


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

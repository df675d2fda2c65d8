"""Embed what videos and datasets hold: the frames the encoder wants, decoded at its size.

Legend: K steps of a video, d embedding width.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int

from hostbot.align.aligner import Aligner, Alignment
from hostbot.align.maps import correspondence
from hostbot.align.steps import expand, moving, step_frames, thinned
from hostbot.types import BadInput, Correspondence, EpisodeSource

MIN_FRAMES = 2


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """A video's steps on the sphere."""

    points: Float32[np.ndarray, "K d"]
    steps: Int[np.ndarray, " K"]
    """Which frames they are."""
    times_s: Float64[np.ndarray, " n"]
    """When each of the video's frames appears."""

    @property
    def num_frames(self) -> int:
        """Of the whole video."""
        return len(self.times_s)


def embed_video(aligner: Aligner, path: Path) -> Embedded:
    """A file, read once from front to back; memory holds its steps at the encoder's size and no more."""
    from hostbot.video import open_video, resample_times  # episodes in memory need no decoder

    config, side = aligner.config, aligner.size
    with open_video(path, threads=min(4, os.cpu_count() or 1)) as reader:
        if len(reader) < MIN_FRAMES:
            raise BadInput(
                f"{path} has {len(reader)} frame; a correspondence needs videos of at least {MIN_FRAMES}"
            )
        shown = reader.indices_at(resample_times(reader.info.duration_s, config.rate_hz))
        steps = thinned(np.unique(np.append(shown, len(reader) - 1)), config.max_steps)
        frames = np.stack(list(reader.stream(steps.tolist(), (side, side))))
        times = reader.times_s
    return Embedded(points=aligner.embed({"video": frames}), steps=steps, times_s=times)


def embed_episode(
    aligner: Aligner, source: EpisodeSource, index: int, *, backwards: bool = False
) -> Embedded:
    """An episode of a dataset, all its views; played backwards where asked, which changes what moves how."""
    info, config = source.episode(index), aligner.config
    steps = step_frames(info.length, source.fps, config.rate_hz, config.max_steps)
    size = (aligner.size, aligner.size)
    views = {view: source.frames(index, view, steps.tolist(), size) for view in source.views}
    if backwards:
        steps = info.length - 1 - steps[::-1]
        views = {view: np.ascontiguousarray(frames[::-1]) for view, frames in views.items()}
    return Embedded(points=aligner.embed(views), steps=steps, times_s=np.arange(info.length) / source.fps)


def align_whole(aligner: Aligner, demo: Embedded, robot: Embedded) -> Alignment:
    """The correspondence of all frames of two videos, rests left out; confidence is of the videos as they are."""
    config, alike = aligner.config, aligner.align(demo.points, robot.points)
    a, b = (moving(video.points, config.rest) for video in (demo, robot))
    match = config.match if config.begin is None else replace(config.match, begin=config.begin)
    found = correspondence(torch.from_numpy(demo.points[a]), torch.from_numpy(robot.points[b]), match)
    maps = expand(found, demo.steps[a], robot.steps[b], demo.num_frames, robot.num_frames)
    return Alignment(found=maps, confidence=alike.confidence)


def played_in_step(found: Correspondence) -> Iterator[tuple[int, int]]:
    """(demo frame, robot frame) of a video that plays both together: whichever has more to show makes the other wait.

    Neither steps back and no frame of either is left out.
    """
    shown = -1
    for robot, demo in enumerate(found.robot_to_demo.tolist()):
        yield from ((frame, robot) for frame in range(min(shown + 1, demo), demo + 1))
        shown = demo
    yield from ((frame, robot) for frame in range(shown + 1, len(found.demo_to_robot)))

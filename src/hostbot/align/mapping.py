"""What ``hostbot align map`` leaves: the frame map as JSON and CSV, and a video that plays both in step.

Legend: A the first video (the demonstration), B the second (the robot's).
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hostbot.align.aligner import Alignment
from hostbot.align.videos import Embedded, played_in_step
from hostbot.types import BadInput, Frames
from hostbot.video import Reader, VideoWriter, open_video

_BAR = 8
"""Rows of the bar below the pictures that shows progress, green where the match is sure."""


def map_values(a: Path, b: Path, first: Embedded, second: Embedded, found: Alignment) -> dict[str, Any]:
    """The map as JSON values; frames count from 0."""
    maps = found.found
    videos = {
        name: {"path": str(path), "frames": video.num_frames, "seconds": np.round(video.times_s, 4).tolist()}
        for name, path, video in (("a", a, first), ("b", b, second))
    }
    return {
        **videos,
        "confidence": round(found.confidence, 4),
        "path_cost": round(maps.cost, 4),
        "a_to_b": maps.demo_to_robot.tolist(),
        "b_to_a": maps.robot_to_demo.tolist(),
        "a_confidence": np.round(maps.demo_confidence, 4).tolist(),
        "b_confidence": np.round(maps.robot_confidence, 4).tolist(),
    }


def write_csv(path: Path, values: dict[str, Any]) -> None:
    """A row a frame of B: when it is, and where in A."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["b_frame", "b_seconds", "a_frame", "a_seconds", "confidence"])
    for frame, (matched, sure) in enumerate(zip(values["b_to_a"], values["b_confidence"], strict=True)):
        times = (values["b"]["seconds"][frame], values["a"]["seconds"][matched])
        table.writerow([frame, f"{times[0]:.4f}", matched, f"{times[1]:.4f}", sure])
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_text(text.getvalue())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_side_by_side(
    a: Path, b: Path, found: Alignment, out: Path, height: int = 240, tick: Callable[[], None] = lambda: None
) -> int:
    """Play both in step, A left and B right, at A's rate; says how many frames were written."""
    shown = list(played_in_step(found.found))
    threads = min(4, os.cpu_count() or 1)
    with open_video(a, threads=threads) as left, open_video(b, threads=threads) as right:
        panels = _panel(left, height), _panel(right, height)
        width = panels[0][1] + panels[1][1]
        streams = (
            left.stream([i for i, _ in shown], panels[0]),
            right.stream([j for _, j in shown], panels[1]),
        )
        fps = min(60.0, max(1.0, len(left) / left.info.duration_s))
        with VideoWriter(out, (height + _BAR, width), fps) as writer:
            for (_, j), one, two in zip(shown, *streams, strict=True):
                sure = found.found.robot_confidence[j]
                writer.write(_joined(one, two, (j + 1) / len(right), float(sure)))
                tick()
    return len(shown)


def _panel(reader: Reader, height: int) -> tuple[int, int]:
    """The picture's own shape at this height, even and not absurdly wide."""
    if height < 16 or height % 2:
        raise BadInput(f"a panel's height must be even and at least 16, got {height}")
    rows, columns = reader.info.size
    return height, min(4 * height, max(2, 2 * round(height * columns / rows / 2)))


def _joined(one: Frames, two: Frames, share: float, sure: float) -> Frames:
    pictures = np.concatenate([one, two], 1)
    bar = np.full((_BAR, pictures.shape[1], 3), 40, np.uint8)
    bar[:, : round(share * pictures.shape[1])] = (round(220 * (1 - sure)), round(60 + 140 * sure), 60)
    return np.concatenate([pictures, bar])

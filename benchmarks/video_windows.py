"""Milliseconds a random window of an mp4, as training reads them: video_windows.py [clip.mp4]."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from hostbot.video import Size, VideoReader, VideoWriter

WINDOWS = {"1 frame": (1, 1), "33 frames stride 1": (33, 1), "9 frames stride 4": (9, 4)}


def make_clip(path: Path, num_frames: int = 600) -> Path:
    noise = np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    with VideoWriter(path, (480, 640), 30) as writer:
        for index in range(num_frames):
            writer.write(np.roll(noise, 3 * index, axis=1))
    return path


def milliseconds(reader: VideoReader, count: int, stride: int, size: Size | None, repeats: int = 40) -> float:
    rng = random.Random(0)
    starts = [rng.randrange(len(reader) - count * stride) for _ in range(repeats)]
    begun = time.perf_counter()
    for start in starts:
        reader.frames(range(start, start + count * stride, stride), size)
    return (time.perf_counter() - begun) / repeats * 1e3


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else make_clip(Path(folder) / "clip.mp4")
        begun = time.perf_counter()
        with VideoReader(path) as reader:
            print(f"open: {(time.perf_counter() - begun) * 1e3:.1f} ms, {reader.info}")
            for size in (None, (224, 224)):
                for name, (count, stride) in WINDOWS.items():
                    shown = "full size" if size is None else f"{size[1]}x{size[0]}"
                    print(f"{name:>20} at {shown}: {milliseconds(reader, count, stride, size):6.1f} ms")


if __name__ == "__main__":
    main()

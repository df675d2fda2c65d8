"""How fast ``hostbot align map`` is on a CPU, end to end and part by part, in frames of input a second."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import measure
import numpy as np
import torch

from hostbot.align.aligner import Aligner, AlignerConfig, load_aligner
from hostbot.align.mapping import write_side_by_side
from hostbot.align.small import SmallConfig, SmallFrameEncoder
from hostbot.align.videos import align_whole, embed_video
from hostbot.video import VideoWriter

SHAPES = {"bench": (96, 96, 16, 100), "480p": (480, 640, 30, 300), "1080p": (1080, 1920, 30, 300)}


def write_clip(path: Path, height: int, width: int, fps: int, frames: int, pace: int) -> None:
    """A textured scene that moves as a hand-held camera does, with a block that crosses it."""
    rng = np.random.default_rng(0)
    scene = rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    side = height // 4
    with VideoWriter(path, (height, width), fps) as writer:
        for index in range(frames):
            frame = np.roll(scene, index * pace // 2, 1)
            left = index * pace % (width - side)
            frame[side : 2 * side, left : left + side] = (230, 40, 40)
            writer.write(frame)


def timed(aligner: Aligner, folder: Path, shape: tuple[int, int, int, int]) -> dict[str, float]:
    paths = [folder / "a.mp4", folder / "b.mp4"]
    for path, pace in zip(paths, (3, 4), strict=True):
        write_clip(path, *shape, pace)
    frames = 2 * shape[3]
    begin = time.perf_counter()
    first, second = (embed_video(aligner, path) for path in paths)
    embedded = time.perf_counter()
    found = align_whole(aligner, first, second)
    aligned = time.perf_counter()
    write_side_by_side(*paths, found, folder / "out.mp4")
    written = time.perf_counter()
    return {
        "input_frames": frames,
        "frames_per_second": round(frames / (written - begin), 1),
        "decode_and_embed_s": round(embedded - begin, 3),
        "align_s": round(aligned - embedded, 3),
        "write_video_s": round(written - aligned, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--random", action="store_true", help="random weights instead of the shipped ones")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    aligner = load_aligner() if not arguments.random else Aligner(
        SmallFrameEncoder(SmallConfig()), AlignerConfig(encoder=SmallConfig())
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        timed(aligner, Path(scratch), SHAPES["bench"])  # compiles the matching
        rows = {name: timed(aligner, Path(scratch), shape) for name, shape in SHAPES.items()}
    result = {
        "hardware": measure.hardware(torch.device("cpu")),
        "commit": measure.commit(),
        "load_average": os.getloadavg()[0],
        "shapes": {name: f"{h}x{w} at {fps} Hz, {n} frames each" for name, (h, w, fps, n) in SHAPES.items()},
        **rows,
    }
    measure.save(arguments.out, "align_map-cpu", result)


if __name__ == "__main__":
    main()

"""Random windows from mp4: hostbot, torchcodec and lerobot on the same files, in turn, in one process.

    tests/oracle/setup.sh
    LD_LIBRARY_PATH=.venv-oracle/ffmpeg PYTHONPATH=src .venv-oracle/bin/python benchmarks/data_loading.py

torchcodec runs on the FFmpeg libraries PyAV brings, so that what differs is seeking, calls and copies.
Each decoder has one thread and keeps its files open. ``lerobot`` is LeRobotDataset with delta_timestamps on
its default backend, which also makes float32 of every pixel. A ratio above 1 says hostbot is that many times
faster, below 1 that it is slower.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/oracle"))

import shim
import torch
import torchcodec
from torchcodec.decoders import VideoDecoder

from hostbot.data.store import Dataset, open_dataset
from hostbot.data.write import DatasetWriter

shim.lerobot_dataset.decode_video_frames = shim.lerobots_own_decode
VIEWS = ("left_wrist", "right_wrist", "third_person")
WINDOWS = ((33, 1), (9, 4))
SIZES = ((480, 640), (96, 96))
Load = Callable[[int, list[int]], object]


def scene(rng: np.random.Generator, count: int, size: tuple[int, int]) -> np.ndarray:
    """A textured background with sensor noise and three moving blobs."""
    h, w = size
    y, x = np.mgrid[:h, :w].astype(np.float32) / max(h, w)
    base = 110 + 60 * np.sin(x * rng.uniform(9, 30) + 5 * y) + 25 * np.sin(y * rng.uniform(20, 60))
    frames = np.empty((count, h, w, 3), np.uint8)
    phase = rng.uniform(0, 6, (3, 2))
    for t in range(count):
        image = np.repeat(base[..., None], 3, axis=2) + rng.normal(0, 2, (h, w, 1))
        for b in range(3):
            cx, cy = 0.5 + 0.35 * np.sin(phase[b] + t * 0.03 * (b + 1))
            image[..., b] += 120 * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 0.01)
        frames[t] = np.clip(image, 0, 255)
    return frames


def make(root: Path, size: tuple[int, int], episodes: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with DatasetWriter(root, fps=30, features={"action": 20}, views=dict.fromkeys(VIEWS, size)) as writer:
        for _ in range(episodes):
            views = {view: scene(rng, length, size) for view in VIEWS}
            writer.add_episode({"action": rng.normal(size=(length, 20)).astype(np.float32)}, views, "move")


def hostbot_loader(dataset: Dataset) -> Load:
    return lambda episode, wanted: [dataset.frames(episode, view, wanted) for view in VIEWS]


def torchcodec_loader(dataset: Dataset) -> Load:
    decoders: dict[str, VideoDecoder] = {}

    def load(episode: int, wanted: list[int]) -> object:
        out = []
        for view in VIEWS:
            key = f"observation.images.{view}"
            relative = dataset._videos.relative(key, episode)
            if relative not in decoders:
                decoders[relative] = VideoDecoder(str(dataset.files.path(relative)), num_ffmpeg_threads=1)
            first = int(dataset.index.videos[key].start[episode])
            frames = decoders[relative].get_frames_at([first + i for i in wanted])
            out.append(frames.data.permute(0, 2, 3, 1).numpy())
        return out

    return load


def lerobot_loader(root: Path, dataset: Dataset, count: int, stride: int) -> Load:
    delta = {f"observation.images.{view}": [i * stride / 30 for i in range(count)] for view in VIEWS}
    theirs = shim.LeRobotDataset("local/benchmark", root=root, delta_timestamps=delta)
    return lambda episode, wanted: theirs[int(dataset.index.first[episode]) + wanted[0]]


def compare(root: Path, count: int, stride: int, windows: int, seed: int) -> dict[str, object]:
    dataset, rng = open_dataset(root), np.random.default_rng(seed)
    loaders = {
        "hostbot": hostbot_loader(dataset),
        "torchcodec": torchcodec_loader(dataset),
        "lerobot": lerobot_loader(root, dataset, count, stride),
    }
    spent: dict[str, list[float]] = {name: [] for name in loaders}
    order = list(loaders)
    for n in range(-2, windows):
        episode = int(rng.integers(len(dataset)))
        start = int(rng.integers(dataset.episode(episode).length - (count - 1) * stride))
        wanted = list(range(start, start + count * stride, stride))
        for name in order[n % 3 :] + order[: n % 3]:
            begin = time.perf_counter()
            loaders[name](episode, wanted)
            if n >= 0:
                spent[name].append(time.perf_counter() - begin)
    same = np.abs(
        np.stack(loaders["hostbot"](episode, wanted)).astype(int)  # type: ignore[call-overload]
        - np.stack(loaders["torchcodec"](episode, wanted)).astype(int)  # type: ignore[call-overload]
    )
    median = {name: float(np.median(times)) for name, times in spent.items()}
    return {
        "frames": count,
        "stride": stride,
        "windows": windows,
        "median_ms": {name: round(1000 * m, 2) for name, m in median.items()},
        "frames_per_second": {name: round(len(VIEWS) * count / m) for name, m in median.items()},
        "ratio_to_torchcodec": round(median["torchcodec"] / median["hostbot"], 2),
        "ratio_to_lerobot": round(median["lerobot"] / median["hostbot"], 2),
        "largest_pixel_difference_to_torchcodec": int(same.max()),
    }


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    return done.stdout.strip()


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--windows", type=int, default=40)
    parser.add_argument("--episodes", type=int, default=6)
    parser.add_argument("--length", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/data_loading.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            root = Path(folder) / f"{size[0]}x{size[1]}"
            make(root, size, options.episodes, options.length, options.seed)
            for count, stride in WINDOWS:
                row = {"size": list(size), "views": len(VIEWS)}
                row |= compare(root, count, stride, options.windows, options.seed)
                print(json.dumps(row), flush=True)
                results.append(row)
    report = {
        "benchmark": "random windows from LeRobot v3.0 mp4 (h264, gop 30), all three views of a window",
        "command": "LD_LIBRARY_PATH=.venv-oracle/ffmpeg PYTHONPATH=src .venv-oracle/bin/python "
        + " ".join(["benchmarks/data_loading.py", *sys.argv[1:]]),
        "commit": commit(),
        "seed": options.seed,
        "hardware": {
            "cpu": processor(),
            "cores": os.cpu_count(),
            "load": [round(x, 1) for x in os.getloadavg()],
        },
        "versions": {"av": av.__version__, "torchcodec": torchcodec.__version__, "torch": torch.__version__},
        "results": results,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

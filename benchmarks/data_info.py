"""How long `hostbot data info --json` takes, and how much memory, as a dataset grows.

    python benchmarks/data_info.py --episodes 20 200 2000

Datasets are written by hostbot itself (three views of 32x32, 12 frames an episode, five tasks) and described in a
process of its own, as a user would; start-up of Python is included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from hostbot.config import provenance, write_json
from hostbot.data.write import DatasetWriter
from hostbot.types import bimanual

VIEWS = ("left_wrist", "right_wrist", "third_person")
MEASURE = """
import sys
from hostbot.cli import main
code = main(["data", "info", sys.argv[1], "--json"])
# Not getrusage: its peak is inherited from the process that started this one.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(code)
"""


def write(root: Path, num_episodes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = np.concatenate([rng.normal(size=(12, 20))], axis=1).astype(np.float32)
    frames = rng.integers(0, 255, (12, 32, 32, 3), dtype=np.uint8)
    features = {"observation.state": 20, "action": 20}
    views = dict.fromkeys(VIEWS, (32, 32))
    with DatasetWriter(root, fps=16, features=features, views=views, embodiment=bimanual(16)) as writer:
        for number in range(num_episodes):
            rows = {"observation.state": state, "action": state}
            writer.add_episode(rows, dict.fromkeys(VIEWS, frames), f"task {number % 5}")


def describe(root: Path, repeats: int) -> dict[str, float]:
    seconds, kilobytes = [], []
    for _ in range(repeats):
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(root)], capture_output=True, text=True, check=True
        )
        seconds.append(time.perf_counter() - begin)
        kilobytes.append(int(done.stderr.split()[-1]))
    found = json.loads(done.stdout)
    return {
        "episodes": found["num_episodes"],
        "frames": found["num_frames"],
        "bytes": found["num_bytes"],
        "median_s": round(statistics.median(seconds), 3),
        "slowest_s": round(max(seconds), 3),
        "peak_mb": round(statistics.median(kilobytes) / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, nargs="+", default=[20, 200, 2000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for num_episodes in args.episodes:
            root = Path(folder) / str(num_episodes)
            write(root, num_episodes, args.seed)
            rows.append(describe(root, args.repeats))
            print(rows[-1], flush=True)
    load = [round(x, 1) for x in os.getloadavg()]
    args.out.mkdir(parents=True, exist_ok=True)
    result = {
        "benchmark": "hostbot data info --json",
        "seed": args.seed,
        "load": load,
        "results": rows,
        **provenance(),
    }
    write_json(args.out / "data_info.json", result)


if __name__ == "__main__":
    main()

"""What recording an episode takes, simulation, pictures and writing together, in one process.

python benchmarks/recording.py                        # every twelfth training task, both bodies, sketches and drills
python benchmarks/recording.py --against OLD/src      # another checkout beside it, turn about, in one run
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import measure
import torch

_ONE = """
import json, tempfile, time
from pathlib import Path
from hostbot.bench.record import RecordConfig, _record_one, _writer
from hostbot.sim.catalogue import split

names, found = split().train[::12], {}
kinds = {"robot": RecordConfig(), "human": RecordConfig()}
if hasattr(RecordConfig, "sketch"):
    kinds["straying"] = RecordConfig(stray=1.0)
    kinds["sketch"] = RecordConfig(stray=1.0, sketch=True)
if hasattr(RecordConfig, "drills"):
    kinds["drill"] = kinds["human drill"] = RecordConfig(stray=1.0, sketch=True, drills=True)
if hasattr(RecordConfig, "raw"):
    kinds["straying, raw"] = RecordConfig(stray=1.0, raw=64)
    kinds["human, raw"] = RecordConfig(raw=64)
for kind, config in kinds.items():
    body, drills = "human" if "human" in kind else "robot", "drill" in kind
    wanted = [(name, 10_001 + drills * k) for k, name in enumerate(names)]
    with tempfile.TemporaryDirectory() as folder, _writer(Path(folder) / "part", body, config) as writer:
        _record_one(writer, 0, body, names[0], 10_000, config)
        begin = time.perf_counter()
        frames = sum(_record_one(writer, 0, body, name, seed, config).frames for name, seed in wanted)
        taken = 1e3 * (time.perf_counter() - begin) / len(names)
    found[kind] = {"episodes": len(names), "frames": frames, "ms_an_episode": round(taken, 1)}
print(json.dumps(found))
"""


def time_one(source: Path) -> dict[str, Any]:
    environment = {"MUJOCO_GL": "egl", **os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, "-c", _ONE], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="the src folder of another checkout")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    here = Path(__file__).parents[1] / "src"
    sources = {"now": here} | ({"before": args.against} if args.against else {})
    runs = [{name: time_one(source) for name, source in sources.items()} for _ in range(args.rounds)]
    result = {
        "benchmark": "recording",
        "commit": measure.commit(),
        "hardware": measure.hardware(torch.device("cpu")),
        "rounds": runs,
    }
    if args.against:
        result["before_over_now"] = {
            body: round(
                sum(r["before"][body]["ms_an_episode"] for r in runs)
                / sum(r["now"][body]["ms_an_episode"] for r in runs),
                2,
            )
            for body in ("robot", "human")
        }
    measure.save(args.out, "recording-cpu" if args.against else "recording-kinds-cpu", result)


if __name__ == "__main__":
    main()

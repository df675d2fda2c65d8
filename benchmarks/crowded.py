"""The tiny policy on a machine that others use too: a cycle in one thread and in two, and a garbage collection.

Beside it as many processes compute as there are cores. Weights are untrained: speed does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from first_action import untrained
from measure import commit, hardware, save

WORK = """
import gc, json, sys, time
from pathlib import Path
import numpy as np
from hostbot.policy.policy import Policy, PolicyConfig
from hostbot.serve.warm import spare_collector
from hostbot.types import Demonstration, Observation
policy = Policy.load(Path(sys.argv[1]), config=PolicyConfig(batch_sizes=(1,)))
rng = np.random.default_rng(0)
demo = Demonstration(views={"third_person": rng.integers(0, 255, (160, 64, 64, 3), np.uint8)}, fps=16.0)
state = np.tile(np.array([0.3, 0.1, 0.2, 1, 0, 0, 0, -1, 0, 0.05], np.float32), 2)
views = {view: rng.integers(0, 255, (96, 96, 3), np.uint8) for view in policy.embodiment.views}
begin = time.perf_counter()
session = policy.start(policy.acquire(demo, "x"))
spent = {"acquire_s": time.perf_counter() - begin, "cycles_s": []}
for _ in range(int(sys.argv[2])):
    begin = time.perf_counter()
    policy.step(session, Observation(views=views, state=state))
    spent["cycles_s"].append(time.perf_counter() - begin)
for name in ("collection_cpu_ms", "collection_after_freeze_cpu_ms"):
    gc.collect()
    begin = time.thread_time()
    gc.collect()
    spent[name] = 1e3 * (time.thread_time() - begin)
    spare_collector()
print(json.dumps(spent))
"""


def measured(policy: Path, threads: int, cycles: int, crowd: int) -> dict[str, float]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(crowd)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", WORK, str(policy), str(cycles)],
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    finally:
        for other in others:
            other.kill()
            other.wait()
    found = json.loads(done.stdout)
    cycles_s = sorted(found.pop("cycles_s"))
    return {k: round(v, 3) for k, v in {**found, "cycle_s": cycles_s[len(cycles_s) // 2]}.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--cycles", type=int, default=3)
    arguments = parser.parse_args()
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        untrained(Path(folder) / "policy")
        rows = {
            f"{threads} threads, {crowd} others": measured(
                Path(folder) / "policy", threads, arguments.cycles, crowd
            )
            for crowd in (0, cores)
            for threads in (1, 2)
        }
    result = {
        "hardware": hardware(torch.device("cpu")), "commit": commit(), "seed": 0,
        "load_average": os.getloadavg()[0], "rows": rows,
    }  # fmt: skip
    save(arguments.out, "crowded", result)


if __name__ == "__main__":
    main()

"""How long an evaluation takes: untrained weights never succeed, so that every trial runs to its end.

python benchmarks/evaluation.py --trials 20 --workers 16          # 50 tasks x 20 trials
python benchmarks/evaluation.py --policy RUN/policy               # the same with trained weights
python benchmarks/evaluation.py --tasks 2 --trials 2 --workers 2  # a look, on a laptop
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import commit, hardware, random_weights, save

from hostbot.bench.model import Model
from hostbot.bench.report import digest, report
from hostbot.bench.results import RolloutConfig, read_results
from hostbot.bench.rollout import Rollout
from hostbot.bench.suites import SuiteConfig
from hostbot.data.stats import ACTION, STATE, StatsConfig, compute_statistics
from hostbot.data.store import open_dataset
from hostbot.data.write import DatasetWriter
from hostbot.model.host import HostModel
from hostbot.model.text import HashedWords
from hostbot.model.vae import LatentCodec, tiny_vae
from hostbot.policy.bundle import PolicySpec
from hostbot.policy.policy import Policy, PolicyConfig
from hostbot.presets import tiny
from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig
from hostbot.sim.episode import robot_episode


def untrained(folder: Path, device: str, sizes: tuple[int, ...]) -> Policy:
    """The tiny preset with drawn weights, and statistics of eight executions of the expert."""
    preset = tiny()
    robot = preset.data.embodiment
    writer = DatasetWriter(
        folder / "robot", fps=16, features={STATE: 20, ACTION: 20}, views={}, embodiment=robot
    )
    with writer:
        for seed in range(8):
            one = task(split().train[29 * seed])
            made = robot_episode(one, seed, EnvConfig(views=())).trajectory
            writer.add_episode({STATE: made.state, ACTION: made.action}, {}, one.instructions[0], made.events)
    config = StatsConfig(horizon=preset.data.horizon)
    statistics = compute_statistics(open_dataset(folder / "robot"), config)
    torch.manual_seed(0)
    codec, words = LatentCodec(tiny_vae(), device), HashedWords()
    spec = PolicySpec(
        name="untrained tiny",
        embodiment=robot,
        image_size=preset.data.image_size,
        video_stride=preset.data.video_stride,
        text_encoder=words.identity,
        codec=codec.identity,
    )
    model = HostModel(preset.model).to(device)
    random_weights(model)
    return Policy(model, codec, words, spec, statistics, PolicyConfig(batch_sizes=sizes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, help="trained weights instead of drawn ones")
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--videos", type=int, default=4)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--wave", type=int, default=32)
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if flags.policy is None:
            policy = untrained(folder, flags.device, (flags.wave,))
        else:
            policy = Policy.load(
                flags.policy, device=flags.device, config=PolicyConfig(batch_sizes=(flags.wave,))
            )
        config = RolloutConfig(
            suite=SuiteConfig(tasks=split().novel[: flags.tasks], trials=flags.trials, videos=flags.videos),
            wave=flags.wave,
            workers=flags.workers,
            in_flight=flags.in_flight,
        )
        model = Model(policy)
        spent = {"deciding": 0.0, "acquiring": 0.0}
        act, begin = model.act, model.begin

        def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any) -> Any:
                mark = time.perf_counter()
                out = call(*arguments)
                spent[name] += time.perf_counter() - mark
                return out

            return run

        model.act, model.begin = timed("deciding", act), timed("acquiring", begin)  # type: ignore[method-assign]
        begun, cycles = time.perf_counter(), 0
        for number, finished in enumerate(Rollout(model, config, policy.spec.image_size).run(folder / "out")):
            cycles += finished.result.cycles
            if number % 50 == 0:
                print(f"{number} trials, {time.perf_counter() - begun:.0f} s", flush=True)
        seconds = time.perf_counter() - begun
        found = report(list(read_results(folder / "out").values()))
    save(
        flags.out,
        f"evaluation-{torch.device(flags.device).type}" + ("" if flags.policy is None else "-trained"),
        {
            "benchmark": "evaluation",
            "commit": commit(),
            "command": " ".join(["python", "benchmarks/evaluation.py", *sys.argv[1:]]),
            "hardware": hardware(torch.device(flags.device)),
            "policy": policy.spec.name if flags.policy is None else policy.fingerprint(),
            "tasks": flags.tasks,
            "trials": found.all.n,
            "successes": found.all.successes,
            "workers": flags.workers,
            "wave": flags.wave,
            "in_flight": flags.in_flight,
            "seconds": round(seconds, 1),
            "trials_per_second": round(found.all.n / seconds, 2),
            "robot_seconds_per_second": round(found.all.n * 14 / seconds, 1),
            "cycles": cycles,
            "seconds_deciding": round(spent["deciding"], 1),
            "seconds_acquiring": round(spent["acquiring"], 1),
            "digest": digest(found),
        },
    )


if __name__ == "__main__":
    main()

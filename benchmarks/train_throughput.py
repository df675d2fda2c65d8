"""How many samples a second the training loop really learns from: data, loop, guard and log included.

    python benchmarks/train_throughput.py --preset tiny --batches 512 1024 --shared 1 4
    python benchmarks/train_throughput.py --preset tiny --stage match --optimiser muon --graphs --profile
    python benchmarks/train_throughput.py --preset wan5b --batches 16 --micro 8 --shared 1 4 --places disk device

Samples are random numbers of the preset's sizes in a store as `hostbot train samples` writes it; everything else is
what `hostbot train policy` runs. ``data_wait`` is the share of time the loop waits for its batches. FLOPs count each
product once forward and twice backward, tokens without gradient once, recomputation not at all; the card's rate is
that of a large matrix product measured in the same process.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from train_step import forward_tflop

from hostbot.couple import num_latents
from hostbot.data.batches import DrawConfig, Mixture, Pool
from hostbot.data.plan import Plan, Rows, Takes
from hostbot.data.samples import Origin, Store, create_store
from hostbot.data.stats import Statistics
from hostbot.model.checkpoint import empty_model
from hostbot.presets import PRESETS, Config, sampling, training, weighting
from hostbot.train.distributed import World
from hostbot.train.graphs import graphs_checked
from hostbot.train.loop import Trainer
from hostbot.train.stages import Policy, PolicyStage

LENGTH = 150
"""Demonstration frames, at either rate."""


def synthetic_store(folder: Path, config: Config, num_rows: int, num_takes: int) -> Store:
    """A store of random numbers."""
    rng, data, grid = np.random.default_rng(0), config.data, config.model.grid
    couple = sampling(config).couple
    views, dim = grid.num_views, data.embodiment.dim
    latents = num_latents(LENGTH, couple)
    takes = Takes(
        body=np.zeros(num_takes, np.int32),
        episode=np.arange(num_takes, dtype=np.int32),
        version=np.zeros(num_takes, np.int32),
        length=np.full(num_takes, LENGTH, np.int32),
        latents=np.full(num_takes, latents, np.int32),
        first=np.arange(num_takes, dtype=np.int64) * latents,
        present=np.ones((num_takes, views), bool),
    )
    take, q = np.sort(rng.integers(0, num_takes, num_rows)), rng.integers(0, LENGTH, num_rows)
    q = q[np.lexsort((q, take))]
    numbers = np.zeros(num_rows, np.int32)
    rows = Rows(
        take=take.astype(np.int32),
        q=q.astype(np.int32),
        episode=numbers,
        version=numbers,
        frames=np.zeros((num_rows, 5), np.int32),
        state=rng.normal(size=(num_rows, dim)).astype(np.float32),
        action=rng.normal(size=(num_rows, data.horizon, dim)).astype(np.float32),
        text=numbers,
        decision=rng.random(num_rows) < 0.2,
        point=rng.random((num_rows, views, 2)).astype(np.float32),
        seen=rng.random((num_rows, views)) < 0.7,
    )
    plan = Plan(takes=takes, rows=rows, texts=("do it",), num_pairs=num_takes, num_refused=0)
    origin = Origin(fingerprints={}, latents="random", labels="random", part="train")
    channels, _, height, width = grid.latents(1)
    nothing = Statistics(
        format=1,
        fingerprint="",
        num_episodes=0,
        num_frames=0,
        num_removed=0,
        horizon=data.horizon,
        embodiment=None,
        features={},
    )
    store = create_store(folder, plan, sampling(config), origin, nothing, (channels, height, width), 1)
    block = (
        rng.normal(size=(64, height, width, channels)).astype(np.float16).reshape(64, channels, height, width)
    )
    for array in (store.demo, store.clip.reshape(-1, channels, height, width)):
        for low in range(0, len(array), 64):
            array[low : low + 64] = block[: len(array) - low]
    store.done[:] = 1
    return store


def time_run(
    policy: Policy, store: Store, config: Config, batch: int, micro: int, shared: int, place: str, args: Any
) -> dict[str, Any]:
    device = next(policy.parameters()).device
    model = config.model
    texts = torch.randn(1, model.text_length, model.video.text_dim)
    pool = Pool(store, texts, device, place == "device")
    draw = DrawConfig(micro=micro, shared=shared, demo_dropout=args.demo_dropout, one_view=0.0)
    policy.shared = shared
    stage = PolicyStage(module=policy, samples=Mixture(pools=[pool], weights=[1.0]), draw=draw, seed=0)
    base = replace(training(config.name, args.stage), ema=None if config.name == "wan5b" else 0.999)
    if args.optimiser is not None:
        base = replace(base, optim=replace(base.optim, kind=args.optimiser))
    settings = replace(base, steps=10**9, batch=batch, micro=micro, log_every=10**9, save_every=10**9)
    if device.type == "cpu":
        settings = replace(settings, precision="float32")
    world = World(mode="single", rank=0, size=1, device=device)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = Trainer(stage=stage, config=settings, run=Path(scratch), world=world, call=policy)
        if args.graphs:
            trainer.learner = graphs_checked(stage, settings, world, print)
        for _ in range(args.warmup):
            trainer._one_step(None)
        trainer._speed()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        seconds = timed(trainer, args.steps, device)
        found = {"samples_per_s": round(args.steps * batch / seconds, 2), **trainer._speed()}
        found["samples_per_s"] = round(args.steps * batch / seconds, 2)
        found["step_ms"] = round(1e3 * seconds / args.steps, 2)
        if trainer.learner is not None:  # beside it, in the same run
            trainer.run_ahead = True
            timed(trainer, args.warmup, device)
            ahead = timed(trainer, args.steps, device)
            found["run_ahead"] = {
                "samples_per_s": round(args.steps * batch / ahead, 2), "times_as_fast": round(seconds / ahead, 2)
            }  # fmt: skip
        if args.profile:
            found["profile"] = profile(trainer)
        del trainer
    return found


def timed(trainer: Trainer[Any], steps: int, device: torch.device) -> float:
    """Seconds that so many steps take, the card's work included."""
    begin = time.perf_counter()
    for _ in range(steps):
        trainer._one_step(None)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def profile(trainer: Trainer[Any], steps: int = 4) -> dict[str, Any]:
    """Where a step's time goes: how long the card works, in how many kernels, and in which ones longest."""
    on_card = torch.cuda.is_available()
    kinds = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * on_card
    with torch.profiler.profile(activities=kinds) as watched:
        for _ in range(steps):
            trainer._one_step(None)
    kernels = [e for e in watched.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    if not on_card:
        kernels = [e for e in watched.events() if e.cpu_parent is None]
    spent: dict[str, list[float]] = {}
    for event in kernels:
        spent.setdefault(event.name[:90], []).append(event.time_range.elapsed_us() / 1e3 / steps)
    ordered = sorted(spent.items(), key=lambda item: -sum(item[1]))
    return {
        "busy_ms": round(sum(map(sum, spent.values())), 2),
        "kernels": round(sum(map(len, spent.values())) / steps),
        "longest": [
            {"name": name, "ms": round(sum(times), 3), "times": round(len(times) / steps, 1)}
            for name, times in ordered[:25]
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=sorted(PRESETS), default="tiny")
    parser.add_argument("--batches", type=int, nargs="+", default=[512])
    parser.add_argument("--micro", type=int, help="samples of a micro-batch; the whole batch if not said")
    parser.add_argument("--shared", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--places", nargs="+", choices=["device", "disk"], default=["device"])
    parser.add_argument("--demo-dropout", type=float, default=0.0)
    parser.add_argument("--checkpointing", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=torch.cuda.is_available())
    parser.add_argument("--stage", choices=["1", "match"], default="1")
    parser.add_argument("--optimiser", choices=["adamw", "muon"])
    parser.add_argument("--graphs", action="store_true", help="replay a step's passes as CUDA graphs")
    parser.add_argument("--profile", action="store_true", help="also tell where a step's time goes")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--takes", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = PRESETS[args.preset]()
    rate = measure.ceilings(device)["tflops"]
    gc.collect()
    torch._dynamo.config.recompile_limit = 64
    model = empty_model(config.model, torch.float32, device)
    measure.random_weights(model)
    base = training(args.preset, "1")
    model.checkpointing = base.checkpointing if args.checkpointing is None else args.checkpointing
    if args.compile:
        model.compile_layers()
    policy = Policy(model, weighting(args.preset, args.stage)).to(device)
    name = f"train-throughput-{args.preset}" + ("-match" if args.stage == "match" else "")
    name += "-graphs" if args.graphs else ""
    result: dict[str, Any] = {
        "benchmark": "train_throughput",
        "preset": args.preset,
        "commit": measure.commit(),
        "hardware": measure.hardware(device),
        "measured_tflops": rate,
        "compiled": args.compile,
        "stage": args.stage,
        "graphs": args.graphs,
        "optimiser": args.optimiser or base.optim.kind,
        "checkpointing": model.checkpointing,
        "demo_dropout": args.demo_dropout,
        "parameters": sum(p.numel() for p in model.parameters()),
        "runs": [],
    }
    with tempfile.TemporaryDirectory() as scratch:
        store = synthetic_store(Path(scratch) / "store", config, args.rows, args.takes)
        for place in args.places:
            for batch in args.batches:
                for shared in args.shared:
                    entry: dict[str, Any] = {"batch": batch, "shared": shared, "place": place}
                    micro = args.micro or batch
                    try:
                        entry |= time_run(policy, store, config, batch, micro, shared, place, args)
                    except torch.OutOfMemoryError as error:
                        result["runs"].append(entry | {"failed": str(error)[:200]})
                        torch.cuda.empty_cache()
                        continue
                    flop = 0.0
                    for demo, share in ((True, 1 - args.demo_dropout), (False, args.demo_dropout)):
                        learning, clean = forward_tflop(config.model, demo, shared)
                        flop += share * (3 * learning + clean)
                    if args.stage == "match":  # those products are not computed
                        result["runs"].append(entry)
                        measure.save(args.out, name, result, quiet=True)
                        continue
                    entry["tflop_per_sample"] = round(flop, 4)
                    entry["of_measured_rate"] = round(entry["samples_per_s"] * flop / rate, 3)
                    result["runs"].append(entry)
                    measure.save(args.out, name, result, quiet=True)
    measure.save(args.out, name, result)


if __name__ == "__main__":
    main()

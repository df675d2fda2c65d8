"""How long one cycle of the cascade takes, stage by stage, against the card's limits and the naive way.

    python benchmarks/cascade.py --preset wan5b --out benchmarks/results
    python benchmarks/cascade.py --preset tiny --cycles 20

Stages: demo_observation (the window and the observation in one pass, the first localisation step with them; or
demo and observation apart, where the window was cached ahead), p, o (clean p rides in its first step), clean_o, a;
the VAE apart. ``cycle_ms`` is a whole cycle with its window, ``cycle_ms_window_watched_ahead`` one whose window was
watched while the robot moved, as a server does it (``Policy.prepare``). Weights are random: speed does not depend on
their values. Results are written after each part, the most important first.
"""

from __future__ import annotations

import argparse
import gc
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import measure
import torch
from agreement import agreement, half_precision_cosine
from models import PRESETS, TOLD, build, inputs

from hostbot.model.experts import ExpertConfig
from hostbot.model.fp8 import quantise_
from hostbot.model.host import Context, HostConfig, HostModel
from hostbot.model.kernels import FOLDED_KEYS, usable
from hostbot.model.kernels.ways import way_in_words
from hostbot.model.layers import gate_rows
from hostbot.policy.cascade import Cascade
from hostbot.policy.contract import CascadeConfig
from hostbot.policy.naive import uncached


def block_weights(config: ExpertConfig, folded: bool = False) -> int:
    """Weights one pass through an expert's blocks reads; cross-attention keys are cached, its values maybe folded."""
    dim, inner = config.dim, config.inner_dim
    told = config.num_heads * FOLDED_KEYS if folded else inner
    layer = 4 * dim * inner + dim * (inner + told) + 2 * dim * config.ffn_dim + dim * config.num_heads
    return config.num_layers * layer


def passes(config: HostConfig, cascade: CascadeConfig) -> dict[str, list[tuple[int, ExpertConfig, int, int]]]:
    """Each stage as passes: (how many, expert, tokens, keys they see); 0: tokens that ride in the pass before."""
    grid = config.grid
    frame, demo = grid.frame_tokens, grid.demo_latents * grid.frame_tokens
    context, num_p = demo + frame, cascade.num_localisations
    future = context + 1 + grid.future_latents * frame
    num_o = grid.future_latents * frame
    return {
        "demo": [(1, config.video, demo, demo)],
        "demo_observation": [
            (1, config.video, frame + num_p, context + num_p),
            (0, config.video, demo, demo),
        ],
        "observation": [(1, config.video, frame + num_p, context + num_p)],
        "p": [(cascade.steps_p - 1, config.video, num_p, context + num_p)],
        "clean_p": [(1, config.video, 1, context + 1)],
        "o": [(1, config.video, 1 + num_o, future), (cascade.steps_o - 1, config.video, num_o, future)],
        "clean_o": [(1, config.video, num_o, future)],
        "a": [(cascade.steps_a, config.action, config.horizon, future + config.horizon)],
    }


def work(
    config: HostConfig, cascade: CascadeConfig, bytes_each: int, folded: bool
) -> dict[str, tuple[float, float]]:
    """TFLOP and GB that each stage cannot avoid: every weight and key once a pass, every product once."""
    found = {}
    for name, parts in passes(config, cascade).items():
        tflop = gbytes = 0.0
        for count, expert, tokens, keys in parts:
            weights = block_weights(expert, folded)
            attended = (
                keys + min(TOLD + 1, config.text_length) + 1
            )  # one key for all padding, one for the state
            attention = 4 * expert.num_layers * tokens * attended * expert.inner_dim
            cached = 2 * expert.num_layers * attended * expert.inner_dim
            tflop += max(1, count) * (2 * weights * tokens + attention) / 1e12
            gbytes += count * bytes_each * (weights + cached) / 1e9
        found[name] = (tflop, gbytes)
    return found


def ways(config: HostConfig, cascade: CascadeConfig, device: torch.device) -> dict[str, str]:
    """Which product each pass of few rows uses, by its rows, outputs and inputs."""
    found = {}
    future = config.grid.future_latents * config.grid.frame_tokens
    rows = {cascade.num_localisations: config.video, future: config.video, config.horizon: config.action}
    for num_rows, expert in rows.items():
        dim, inner, ffn = expert.dim, expert.inner_dim, expert.ffn_dim
        gates = gate_rows(expert.num_heads)
        for shape in ((3 * inner + gates, dim), (dim, inner), (inner, dim), (ffn, dim), (dim, ffn)):
            found["x".join(map(str, (num_rows, *shape)))] = way_in_words(num_rows, *shape, device)
    return found


def time_cycles(
    cascade: Cascade, context: Context, cycles: int
) -> tuple[dict[str, list[float]], list[float], list[float]]:
    """Each stage's and each whole cycle's milliseconds; the whole is wall time, its window included."""
    g = torch.Generator(cascade.device).manual_seed(1)
    stages: dict[str, list[float]] = {}
    for number in range(max(4, cycles // 20)):
        noise, ahead = cascade.draw(g), number % 4 == 0
        took = {"demo": cascade.watch(context.demo, timed=True)} if ahead else {}
        if not ahead:
            cascade.watch(context.demo, now=False)
        took |= cascade.act(context.observation, context.proprio, noise, timed=True).timing_ms
        for name, ms in took.items():
            stages.setdefault(name, []).append(ms)
    whole, ahead = [], []
    for _ in range(cycles):
        noise = cascade.draw(g)

        def act(noise: Any = noise) -> None:
            cascade.act(context.observation, context.proprio, noise)

        def cycle(act: Any = act) -> None:
            cascade.watch(context.demo, now=False)
            act()

        whole.append(measure.wall_ms(cycle, cascade.device))
        cascade.watch(context.demo)
        ahead.append(measure.wall_ms(act, cascade.device))
    return stages, whole, ahead


def run_variant(model: HostModel, context: Context, config: CascadeConfig, cycles: int) -> dict[str, Any]:
    cuda = context.observation.device.type == "cuda"
    gc.collect()  # the last variant's graphs and caches
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    cascade = Cascade(model, config)
    cascade.instruct(context.text)
    time_cycles(cascade, context, 3)
    warm_up = time.perf_counter() - start
    stages, whole, ahead = time_cycles(cascade, context, cycles)
    result: dict[str, Any] = {"cycle_ms": measure.percentiles(whole), "warm_up_s": round(warm_up, 1)}
    result["cycle_ms_window_watched_ahead"] = measure.percentiles(ahead)
    result["stages_ms"] = {name: measure.percentiles(values) for name, values in stages.items()}
    if cuda:
        result["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return result


def against_limits(
    variant: dict[str, Any], config: HostConfig, cascade: CascadeConfig, limits: Any, dtype: Any, folded: bool
) -> None:
    """Add to each stage what it must do and the least time that takes."""
    total = 0.0
    for name, (tflop, gbytes) in work(config, cascade, dtype.itemsize, folded).items():
        if name not in variant["stages_ms"]:
            continue
        ideal = max(1e3 * tflop / limits["tflops"], gbytes / limits["tbytes_per_s"])
        total += (
            ideal if name not in ("demo", "observation") else 0
        )  # one pass where nothing was cached ahead
        stage = variant["stages_ms"][name]
        stage |= {
            "tflop": round(tflop, 4),
            "gb": round(gbytes, 3),
            "limit_ms": round(ideal, 3),
            "of_limit": round(ideal / stage["p50"], 3),
        }
    variant["limit_ms"] = round(total, 2)


def time_vae(config: HostConfig, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Encode of an observation and of a window by a VAE of Wan2.2's (or tiny's) shape, random weights."""
    try:
        from hostbot.model.vae import LatentCodec, tiny_vae, wan22_vae
    except ImportError as error:
        return {"not_measured": f"needs diffusers: {error}"}
    wide = config.grid.latent_channels == 48
    codec = LatentCodec(wan22_vae() if wide else tiny_vae(), device=device, dtype=dtype)
    size = config.grid.view_height * codec.spatial, config.grid.view_width * codec.spatial
    found = {}
    for name, frames in (("observation", 1), ("demo_window", 4 * (config.grid.demo_latents - 1) + 1)):
        video = torch.randint(
            0, 255, (config.grid.num_views, frames, *size, 3), dtype=torch.uint8, device=device
        )
        times = [measure.wall_ms(lambda v=video: codec.encode_views(v), device) for _ in range(8)]
        found[name] = measure.percentiles(times[3:])
    return found


def naive(model: HostModel, context: Context, config: CascadeConfig, cycles: int) -> list[float]:
    """Whole-sequence eager cycles."""
    draw = Cascade(model, replace(config, graphs=False, compile="off", num_localisations=1)).draw
    device = context.observation.device
    g = torch.Generator(device).manual_seed(2)
    warm = replace(config, steps_p=1, steps_o=1, steps_a=1)
    uncached(model, context, draw(g), warm)
    return [measure.wall_ms(lambda: uncached(model, context, draw(g), config), device) for _ in range(cycles)]


def kernels(model: HostModel, context: Context, config: CascadeConfig) -> list[dict[str, Any]]:
    """Where a cycle's device time goes: the kernels that take most of it."""
    cascade = Cascade(model, config)
    cascade.instruct(context.text)
    noise = cascade.draw(torch.Generator(cascade.device).manual_seed(1))

    def cycle() -> None:
        cascade.watch(context.demo, now=False)
        cascade.act(context.observation, context.proprio, noise)
        torch.cuda.synchronize()

    cycle()
    cycle()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        cycle()
    rows = sorted(profile.key_averages(), key=lambda row: -row.device_time_total)[:25]
    return [
        {"kernel": row.key[:90], "calls": row.count, "ms": round(row.device_time_total / 1e3, 2)}
        for row in rows
    ]


def file_of(result: dict[str, Any]) -> str:
    """Figures with options do not replace those without."""
    return f"cascade-{result['preset']}" + ("-options" if result["options"] else "")


def attempt(result: dict[str, Any], name: str, fn: Callable[[], Any], out: Path) -> Any:
    """Run one part and keep its result, or what went wrong: the other parts' figures are not lost with it."""
    print(f"{name} ...", flush=True)
    try:
        result[name] = fn()
    except Exception as error:  # the figures so far are worth more than the traceback alone
        result[name] = {"failed": f"{type(error).__name__}: {error}"[:400]}
        traceback.print_exc()
    measure.save(out, file_of(result), result, quiet=True)
    return result[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=sorted(PRESETS), default="tiny")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--naive-cycles", type=int, default=3)
    modes = ["off", "default", "max-autotune-no-cudagraphs"]
    parser.add_argument("--compile", default="off", choices=modes, help="for passes that run on no kernels")
    parser.add_argument("--plain", action="store_true", help="also time plain torch under graphs")
    parser.add_argument("--profile", action="store_true", help="also say which kernels take the time")
    parser.add_argument("--options", action="store_true", help="also time what trades accuracy for speed")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    config, fast = PRESETS[args.preset](), CascadeConfig(compile=args.compile)
    # Speed does not depend on how a model was trained; this lets the visual stage be skipped where asked.
    config = replace(config, flow=replace(config.flow, unseen_future=0.5))
    result: dict[str, Any] = {
        "benchmark": "cascade",
        "preset": args.preset,
        "options": args.options,
        "commit": measure.commit(),
        "hardware": measure.hardware(device),
        "dtype": str(dtype),
        "tokens_per_frame": config.grid.frame_tokens,
        "demo_latents": config.grid.demo_latents,
        "steps": [fast.steps_p, fast.steps_o, fast.steps_a],
        "localisation_samples": fast.num_localisations,
        "instruction_tokens": min(TOLD, config.text_length),
        "cycles": args.cycles,
    }
    limits = attempt(result, "ceilings", lambda: measure.ceilings(device), args.out)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    model, context = build(config, device, dtype), inputs(config, device)
    result["parameters"] = sum(p.numel() for p in model.parameters())

    def variant(cascade: CascadeConfig, cycles: int) -> dict[str, Any]:
        found = run_variant(model, context, cascade, cycles)
        against_limits(found, config, cascade, limits, dtype, folded=cascade.kernels and usable(model))
        return found

    def long_instruction() -> dict[str, Any]:
        """No padding, which one key could stand for."""
        told = config.text_length
        found = run_variant(model, inputs(config, device, told), fast, few)
        return {"instruction_tokens": told, "cycle_ms": found["cycle_ms"]}

    # The figures that matter most come first, and each is kept as soon as it is there.
    few = max(3, args.cycles // 10)
    main_variant = "kernels" if usable(model) else "plain" if args.compile == "off" else "compiled"
    variants = {main_variant: (fast, args.cycles)}
    if main_variant == "kernels":
        result["products"] = ways(config, fast, device)
    if args.plain and main_variant != "plain":
        variants["plain"] = (replace(fast, kernels=False, compile="off"), few)
    attempt(result, main_variant, lambda: variant(*variants[main_variant]), args.out)
    attempt(result, "with_a_long_instruction", long_instruction, args.out)
    attempt(
        result,
        "naive_ms",
        lambda: measure.percentiles(naive(model, context, fast, args.naive_cycles)),
        args.out,
    )
    attempt(result, "relative_difference_to", lambda: agreement(model, context, fast), args.out)
    for name in list(variants)[1:]:
        attempt(result, name, lambda name=name: variant(*variants[name]), args.out)
    for name in variants:
        if "cycle_ms" in result[name] and "p50" in result["naive_ms"]:
            ratio = result["naive_ms"]["p50"] / result[name]["cycle_ms"]["p50"]
            result[name]["speed_up_over_naive"] = round(ratio, 2)
    if device.type == "cuda" and args.profile:
        attempt(result, "top_kernels", lambda: kernels(model, context, fast), args.out)
    if args.options:
        fewer = replace(fast, steps_p=4, steps_o=10, steps_a=10)
        attempt(result, "option_steps_4_10_10", lambda: variant(fewer, few), args.out)
        attempt(result, "option_skip_future", lambda: variant(replace(fast, skip_future=True), few), args.out)
        attempt(
            result, "one_localisation", lambda: variant(replace(fast, num_localisations=1), few), args.out
        )
        quantise_(model)
        attempt(result, "option_fp8", lambda: variant(fast, few), args.out)
    del model
    attempt(result, "vae_ms", lambda: time_vae(config, device, dtype), args.out)
    attempt(result, "bfloat16_cosine_to_float32", lambda: half_precision_cosine(config, context), args.out)
    measure.save(args.out, file_of(result), result)


if __name__ == "__main__":
    main()

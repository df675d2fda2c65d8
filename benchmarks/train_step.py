"""How fast a full-parameter AdamW step runs, and what share of the card's measured matrix rate it reaches.

    python benchmarks/train_step.py --preset wan5b --plain 2 4 --checkpointed 16 --out benchmarks/results
    python benchmarks/train_step.py --preset tiny --plain 4 --checkpointed 4

Weights, gradients and moments are float32, products bfloat16 (autocast); latents and text come cached, so no
VAE runs. "model" FLOPs count each product once forward and twice backward, tokens without gradient once, and
nothing for recomputation; "hardware" FLOPs add the recomputed forward where blocks are checkpointed.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path
from typing import Any

import measure
import torch
from cascade import block_weights
from models import PRESETS

from hostbot.model.checkpoint import empty_model
from hostbot.model.host import Context, HostConfig, HostModel, Targets


def batch_of(config: HostConfig, size: int, device: torch.device, demo: bool) -> tuple[Context, Targets]:
    g = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(size, *shape, generator=g, device=device)

    grid = config.grid
    context = Context(
        observation=normal(*grid.latents(1)),
        proprio=normal(config.state_dim),
        text=normal(config.text_length, config.video.text_dim),
        demo=normal(*grid.latents(grid.demo_latents)) if demo else None,
    )
    targets = Targets(
        p=normal().clamp(-1, 1),
        o=normal(*grid.latents(grid.future_latents)),
        a=normal(config.horizon, config.action_dim),
    )
    return context, targets


def forward_tflop(config: HostConfig, demo: bool, shared: int = 1) -> tuple[float, float]:
    """One sample's forward: tokens that learn, and clean tokens, which are run without gradient.

    A demonstration that several samples share counts for each of them as its share.
    """
    grid, text = config.grid, config.text_length + 1
    frame, num_demo = grid.frame_tokens, grid.demo_latents * grid.frame_tokens if demo else 0
    context, future = num_demo + frame, grid.future_latents * frame
    video, action = config.video, config.action

    def tokens(expert: Any, count: int, keys: float) -> float:
        attention = 4 * expert.num_layers * count * (keys + text) * expert.inner_dim
        return (2 * block_weights(expert) * count + attention) / 1e12

    def cross_keys(expert: Any) -> float:
        return 2 * expert.num_layers * 2 * expert.dim * expert.inner_dim * text / 1e12

    learning = tokens(video, num_demo, num_demo) / shared + tokens(video, frame, context)
    learning += tokens(video, 1, context + 1) + tokens(video, future, context + 1 + future)
    learning += tokens(action, config.horizon, context + 1 + future + config.horizon)
    learning += cross_keys(video) + cross_keys(action)
    clean = tokens(video, 1, context + 1) + tokens(video, future, context + 1 + future)
    return learning, clean


def time_steps(
    model: HostModel, optimiser: torch.optim.Optimizer, size: int, demo: bool, steps: int
) -> dict[str, Any]:
    device = next(model.parameters()).device
    context, targets = batch_of(model.config, size, device, demo)
    g = torch.Generator(device).manual_seed(1)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss = model.loss(context, targets, g).total
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    step()
    step()
    times = [measure.wall_ms(step, device) for _ in range(steps)]
    found: dict[str, Any] = {"batch": size, "step_ms": measure.percentiles(times)}
    if device.type == "cuda":
        found["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=sorted(PRESETS), default="tiny")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--plain", type=int, nargs="*", default=[], help="batch sizes without checkpointing")
    parser.add_argument(
        "--checkpointed", type=int, nargs="*", default=[], help="batch sizes with checkpointing"
    )
    parser.add_argument(
        "--no-demo", type=int, nargs="*", default=[], help="checkpointed, demonstration dropped"
    )
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=torch.cuda.is_available())
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = PRESETS[args.preset]()
    result: dict[str, Any] = {
        "benchmark": "train_step",
        "preset": args.preset,
        "commit": measure.commit(),
        "hardware": measure.hardware(device),
        "compiled": args.compile,
        "ceilings": measure.ceilings(device),
        "runs": [],
    }
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    torch._dynamo.config.recompile_limit = 64
    model = empty_model(config, torch.float32, device)
    measure.random_weights(model)
    if args.compile:
        model.compile_layers()
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=1e-2, fused=device.type == "cuda"
    )
    result["parameters"] = sum(p.numel() for p in model.parameters())
    runs = [(size, False, True) for size in args.plain] + [(size, True, True) for size in args.checkpointed]
    for size, checkpointing, demo in runs + [(size, True, False) for size in args.no_demo]:
        model.checkpointing = checkpointing
        learning, clean = forward_tflop(config, demo)
        model_tflop, extra = 3 * learning + clean, (learning + clean if checkpointing else 0.0)
        try:
            found = time_steps(model, optimiser, size, demo, args.steps)
        except torch.OutOfMemoryError as error:
            result["runs"].append({"batch": size, "checkpointing": checkpointing, "failed": str(error)[:200]})
            optimiser.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            continue
        rate = size * model_tflop / found["step_ms"]["p50"] * 1e3
        found |= {
            "checkpointing": checkpointing,
            "demo": demo,
            "samples_per_s": round(1e3 * size / found["step_ms"]["p50"], 2),
            "tflop_per_sample": round(model_tflop, 3),
            "model_tflops": round(rate, 2),
            "of_measured_rate": round(rate / result["ceilings"]["tflops"], 3),
            "hardware_of_measured_rate": round(
                rate * (1 + extra / model_tflop) / result["ceilings"]["tflops"], 3
            ),
        }
        result["runs"].append(found)
        measure.save(args.out, f"train-step-{args.preset}", result)
    measure.save(args.out, f"train-step-{args.preset}", result)


if __name__ == "__main__":
    main()

"""Which cut of each kernel makes a cascade pass fastest at paper size: tried one after the other, in the pass itself.

    python benchmarks/kernels.py --out benchmarks/results

A kernel alone tells little: what it reads was fetched by the one before it, and it is read by the one after. So a
pass of a few layers (more weights than any cache holds) is timed in a graph with every cut of every kernel in turn,
and the fastest is kept. What comes out is what ``kernels/product.py`` and ``kernels/attention.py`` hold as theirs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import measure
import torch
from cascade import build, inputs

from hostbot.model.fused import fused_pass
from hostbot.model.host import HostConfig
from hostbot.model.kernels import attention, launch, product
from hostbot.model.kernels.attention import Cut
from hostbot.model.kernels.product import Tiling
from hostbot.model.sizes import wan5b_model
from hostbot.policy.cascade import Cascade
from hostbot.policy.contract import CascadeConfig

FAR = 1e9
"""Microseconds of what does not run."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One entry of a table of cuts, and what may stand there."""

    name: str
    table: dict[Any, Any]
    key: Any
    candidates: Sequence[Any]


def few_layers(config: HostConfig, num_layers: int) -> HostConfig:
    video, action = (replace(expert, num_layers=num_layers) for expert in (config.video, config.action))
    return replace(config, video=video, action=action)


def passes(cascade: Cascade) -> dict[str, Callable[[], object]]:
    """One pass of each kind, over the cascade's own buffers."""
    model, grid = cascade.model, cascade.model.config.grid
    context = (grid.demo_latents + 1) * grid.frame_tokens
    future = context + 1 + grid.future_latents * grid.frame_tokens
    video, action = (model.video, cascade._video_keys), (model.action, cascade._action_keys)
    parts = {
        "o": (*video, cascade._stream(context + 1, [model.future_rope()]), cascade._mod_o[-1]),
        "p": (*video, cascade._localisation_stream(context, []), cascade._mod_p[-1]),
        "a": (*action, cascade._stream(future, [model.action_rope()]), cascade._mod_a[-1]),
        "demo": (*video, cascade._stream(0, [model.demo_rope(None)], "none"), cascade._mod_clean),
    }

    def one(name: str) -> Callable[[], object]:
        expert, keys, stream, mod = parts[name]
        x = torch.randn(1, sum(stream.widths), expert.config.dim, device=cascade.device)
        cache = (cascade._keys, cascade._values, keys, cascade._arrived)
        return lambda: fused_pass(expert, x.clone(), stream, mod, *cache)

    return {name: one(name) for name in parts}


def microseconds(call: Callable[[], object], replays: int = 4) -> float:
    """The least time a graph of one call takes."""
    for _ in range(2):
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(replays):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end))
    return min(times[1:])


def shared(tiling: Tiling, outputs: int, inputs: int, goals: Sequence[int]) -> Iterator[Tiling]:
    """A tiling with as many shares of K as bring about ``goals`` tiles."""
    tiles, most = -(-outputs // tiling.outputs), max(1, inputs // tiling.inputs // 2)
    for shares in sorted({min(most, 8, max(1, round(goal / tiles))) for goal in goals}):
        yield replace(tiling, shares=shares)


def product_choices(rows: int, shapes: Sequence[tuple[int, int, bool]]) -> Iterator[Choice]:
    """The cuts of one pass's products; those followed by a GELU cannot be shared out."""
    wide = [(128, 64, 4, 5), (64, 64, 4, 4), (128, 128, 8, 3)]
    narrow = [(128, 128, 4, 4), (128, 64, 4, 6), (64, 128, 4, 5), (64, 256, 4, 3), (64, 64, 4, 8), (32, 256, 4, 5)]
    for outputs, inputs, may_share in shapes:
        tilings = [Tiling(outputs=n, inputs=k, warps=w, stages=s) for n, k, w, s in (wide if rows > 32 else narrow)]
        goals = (120, 190) if rows > 32 else (66, 132, 200)
        own = [t for tiling in tilings for t in (shared(tiling, outputs, inputs, goals) if may_share else [tiling])]
        several = [n for n in (2, 3, 4, 6, 7, 8) if inputs % (64 * n) == 0]
        library = [1, *several] if may_share and rows > 32 else [1]
        name = f"{rows}x{outputs}x{inputs}"
        yield Choice(
            name=name,
            table=product.MEASURED,
            key=(sum(product._widths(rows)), outputs, inputs),
            candidates=[*library, *own],
        )


def attention_choices(few: int) -> Iterator[Choice]:
    cuts = {
        16: ([(16, 64, 4, 4), (16, 128, 4, 2), (16, 64, 4, 2)], ((3, 5, 6, 7, 8), (1, 2, 3))),
        32: ([(32, 64, 4, 4), (32, 128, 4, 2), (16, 64, 4, 4), (16, 128, 4, 2)], ((2, 3, 5, 6, 8), (1, 2, 3))),
        160: ([(64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 2), (32, 128, 4, 2)], ((1, 2, 3), (1, 2))),
        0: ([(128, 128, 8, 2), (64, 64, 4, 3), (128, 64, 8, 3)], ((1,), (1,))),
    }
    blocks, shares = cuts[few]
    for long, numbers in zip((True, False), shares, strict=True):
        candidates = [
            Cut(queries=q, keys=k, warps=w, stages=s, shares=n) for q, k, w, s in blocks for n in numbers
        ]
        yield Choice(
            name=f"attention {few} {'long' if long else 'short'}",
            table=attention.MEASURED,
            key=(few, long),
            candidates=candidates,
        )


def choices(config: HostConfig) -> dict[str, list[Choice]]:
    """What is to be tried in each pass, the heaviest first."""

    def shapes(expert: Any) -> list[tuple[int, int, bool]]:
        dim, inner, ffn = expert.dim, expert.inner_dim, expert.ffn_dim
        fused = 3 * inner + -(-expert.num_heads // 16) * 16
        return [(dim, ffn, True), (ffn, dim, False), (fused, dim, True), *{(dim, inner, True), (inner, dim, True)}]

    frame = config.grid.frame_tokens
    return {
        "o": [*attention_choices(160), *product_choices(frame, shapes(config.video))],
        "p": [*attention_choices(16), *product_choices(8, shapes(config.video))],
        "a": [*attention_choices(32), *product_choices(config.horizon, shapes(config.action))],
        "demo": [*attention_choices(0)],
    }


def try_all(choice: Choice, call: Callable[[], object], timed: Callable[..., float]) -> list[tuple[float, Any]]:
    """Every candidate's time for the pass, least first; the best is left in the table."""
    found = []
    for candidate in choice.candidates:
        choice.table[choice.key] = candidate
        try:
            found.append((round(timed(call), 1), candidate))
        except Exception as error:  # a cut that does not fit is no reason to lose the others
            print(f"  {choice.name} {candidate}: {type(error).__name__} {error}"[:200], flush=True)
            found.append((FAR, candidate))
    found.sort(key=lambda row: row[0])
    choice.table[choice.key] = found[0][1]
    return found


def shown(candidate: Any) -> Any:
    return candidate if isinstance(candidate, int) else asdict(candidate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--layers", type=int, default=8)
    args = parser.parse_args()
    device = torch.device("cuda")
    config = few_layers(wan5b_model(), args.layers)
    cascade, context = Cascade(build(config, device, torch.bfloat16), CascadeConfig()), inputs(config, device)
    cascade.instruct(context.text)
    cascade.watch(context.demo)
    result: dict[str, Any] = {
        "benchmark": "kernels",
        "commit": measure.commit(),
        "hardware": measure.hardware(device),
        "layers": args.layers,
        "passes": {},
    }
    with torch.inference_mode():
        for name, call in passes(cascade).items():
            rows = {"before_us": round(microseconds(call), 1), "choices": {}}
            for choice in choices(config)[name]:
                found = try_all(choice, call, microseconds)
                rows["choices"][choice.name] = [{"pass_us": us, "cut": shown(cut)} for us, cut in found]
                print(name, choice.name, *found[:3], f"... {found[-1][0]}", flush=True)
            rows["after_us"] = round(microseconds(call), 1)
            for most in (0, 12, 40):
                launch.MOST_AHEAD, kept = most * 2**20, launch.MOST_AHEAD
                rows[f"fetched_ahead_{most}_mib_us"] = round(microseconds(call), 1)
                launch.MOST_AHEAD = kept
            launch.overlap = False
            rows["without_overlap_us"] = round(microseconds(call), 1)
            launch.overlap = True
            result["passes"][name] = rows
            print(name, {k: v for k, v in rows.items() if k != "choices"}, flush=True)
            measure.save(args.out, "kernels-wan5b", result, quiet=True)


if __name__ == "__main__":
    main()

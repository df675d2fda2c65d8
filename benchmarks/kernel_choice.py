"""Which cut of each kernel makes a cascade pass fastest at paper size: tried one after the other, in the pass itself.

    python benchmarks/kernel_choice.py --out benchmarks/results

A kernel alone tells little: what it reads was fetched by the one before it, and it is read by the one after. So a
pass of a few layers (more weights than any cache holds) is timed in a graph with every cut of every kernel in turn,
and the fastest is kept. What comes out is what ``kernels/h200.json`` holds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import measure
import torch
from kernel_cuts import ATTENTIONS, CUT, HOPPER, HOPPERS, PRODUCTS, TILING
from models import build, inputs

from hostbot.model.experts import ExpertConfig
from hostbot.model.host import HostConfig
from hostbot.model.kernels import attention, cuts, hopper, launch, ways
from hostbot.model.kernels.attention import Cut
from hostbot.model.kernels.hopper import HopperTiling
from hostbot.model.kernels.ways import Tiling
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
    rows: int = 0
    """Of a product."""


def few_layers(config: HostConfig, num_layers: int) -> HostConfig:
    video, action = (replace(expert, num_layers=num_layers) for expert in (config.video, config.action))
    return replace(config, video=video, action=action)


def passes(cascade: Cascade) -> dict[str, Callable[[], object]]:
    """One pass of each kind, over the cascade's own buffers."""
    model, grid, levels, of = cascade.model, cascade.model.config.grid, cascade.stages.levels, cascade.passes
    context = (grid.demo_latents + 1) * grid.frame_tokens
    future = context + 1 + grid.future_latents * grid.frame_tokens
    window = [model.demo_rope(None), model.observation_rope()]
    parts = {
        "o": (of.video, of.stream(context + 1, [model.future_rope()]), levels.o[-1]),
        "p": (of.video, of.localisation_stream(context, []), levels.p[-1]),
        "a": (of.action, of.stream(future, [model.action_rope()]), levels.a[-1]),
        "window": (of.video, of.localisation_stream(0, window, len(window[0])), levels.first_p_with_demo),
    }

    def one(name: str) -> Callable[[], object]:
        run, stream, mod = parts[name]
        x = torch.randn(1, sum(stream.widths), mod.shape[-1], device=cascade.device)
        return lambda: run(x.clone(), stream, mod)

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


def product_choices(rows: int, expert: ExpertConfig) -> Iterator[Choice]:
    """What each of one pass's products is tried with: what stands in the table first."""
    for (outputs, inner), tried in PRODUCTS[rows, expert.dim].items():
        key = (sum(ways.widths(rows)), outputs, inner)
        candidates = [ways.MEASURED[key]]
        candidates += [
            cut if isinstance(cut, int) else Tiling(**dict(zip(TILING, cut, strict=True))) for cut in tried
        ]
        for cut in HOPPERS[rows, expert.dim].get((outputs, inner), []):
            half = outputs > inner // 8  # so few numbers are no traffic, and end in a state that is float32
            way = HopperTiling(**dict(zip(HOPPER, cut, strict=False)), half=half)
            if way.fits(rows, outputs, inner):
                candidates.append(way)
        candidates = list(dict.fromkeys(candidates))
        yield Choice(
            name=f"{rows}x{outputs}x{inner}", table=ways.MEASURED, key=key, candidates=candidates, rows=rows
        )


def compile_ahead(config: HostConfig, tried: Mapping[str, Sequence[Choice]]) -> None:
    """All Hopper products at once: one after the other they would take minutes."""
    activated = {(expert.ffn_dim, expert.dim) for expert in (config.video, config.action)}
    wanted = {
        (way, hopper._tokens(choice.rows), choice.key[1:] in activated, launch.overlap)
        for choices in tried.values()
        for choice in choices
        for way in choice.candidates
        if isinstance(way, HopperTiling)
    }
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: hopper.machine_code(*job), wanted))


def attention_choices(few: int) -> Iterator[Choice]:
    """Of the cache, and of an instruction with its padding (those of one that fills all are not tried here)."""
    for name, short in (("long", 0), ("short", attention.SHORT[0])):
        candidates = [Cut(**dict(zip(CUT, cut, strict=False))) for cut in ATTENTIONS[few, short]]
        key = few, short
        yield Choice(name=f"attention {few} {name}", table=attention.MEASURED, key=key, candidates=candidates)


def choices(config: HostConfig) -> dict[str, list[Choice]]:
    """What is to be tried in each pass."""
    return {
        "o": [*attention_choices(160), *product_choices(147, config.video)],
        "p": [*attention_choices(16), *product_choices(8, config.video)],
        "a": [*attention_choices(32), *product_choices(32, config.action)],
        "window": [*attention_choices(0)],
    }


def try_all(
    choice: Choice, call: Callable[[], object], timed: Callable[..., float]
) -> list[tuple[float, Any]]:
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


def written(key: Any) -> dict[str, Any]:
    """A product's row: the way for any card, and the Hopper one where that is faster."""
    way = ways.MEASURED[key]
    plain = ways.ELSEWHERE[key] if isinstance(way, HopperTiling) else way
    row = {"library_shares": plain} if isinstance(plain, int) else {"tiling": asdict(plain)}
    return row | ({"hopper": asdict(way)} if isinstance(way, HopperTiling) else {})


def table() -> dict[str, Any]:
    """The tables as they stand, as ``kernels/cuts.py`` reads them."""
    return {
        "products": [
            {"rows": m, "outputs": n, "inputs": k} | written((m, n, k)) for m, n, k in ways.MEASURED
        ],
        "attentions": [
            {"queries": few, "keys": short, "cut": asdict(cut)}
            for (few, short), cut in attention.MEASURED.items()
        ],
    }


def tune(name: str, call: Callable[[], object], tried: Sequence[Choice]) -> dict[str, Any]:
    rows: dict[str, Any] = {"before_us": round(microseconds(call), 1), "choices": {}}
    for choice in tried:
        found = try_all(choice, call, microseconds)
        rows["choices"][choice.name] = [{"pass_us": us, "cut": shown(cut)} for us, cut in found]
        print(
            name, choice.name, *((us, shown(cut)) for us, cut in found[:3]), f"... {found[-1][0]}", flush=True
        )
    rows["after_us"] = round(microseconds(call), 1)
    launch.overlap = False
    rows["without_overlap_us"] = round(microseconds(call), 1)
    launch.overlap = True
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="keep what was found beside the kernels")
    args = parser.parse_args()
    device = torch.device("cuda")
    config = few_layers(wan5b_model(), args.layers)
    cascade, context = Cascade(build(config, device, torch.bfloat16), CascadeConfig()), inputs(config, device)
    cascade.instruct(context.text)
    cascade.watch(context.demo)
    about = {"commit": measure.commit(), "hardware": measure.hardware(device)}
    result: dict[str, Any] = {"benchmark": "kernels", **about, "layers": args.layers, "passes": {}}
    tried = choices(config)
    compile_ahead(config, tried)
    with torch.inference_mode():
        for name, call in passes(cascade).items():
            rows = tune(name, call, tried[name])
            result["passes"][name] = rows
            print(name, {k: v for k, v in rows.items() if k != "choices"}, flush=True)
            measure.save(args.out, "kernels-wan5b", result, quiet=True)
    if args.write:
        cuts.PATH.write_text(json.dumps(about | table(), indent=1) + "\n")


if __name__ == "__main__":
    main()

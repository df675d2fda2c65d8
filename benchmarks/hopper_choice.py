"""Which Hopper cuts are kept: the fastest in a pass of eight layers, if the whole cascade is faster with them.

Everything is timed before anything is profiled: once a profiler ran in a process, every kernel of it takes longer
(passes of a run that did it the other way round took 7 to 10 % longer than elsewhere). Two tables are compared by
replaying their graphs in turn.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import measure
import torch
from hopper_cuts import PASSES, SHAPES
from kernel_choice import Choice, attention_choices, few_layers, microseconds, passes, shown, table, try_all
from models import build, inputs

from hostbot.model.host import HostModel
from hostbot.model.kernels import attention, cuts, ways
from hostbot.model.kernels.hopper import HopperTiling
from hostbot.model.sizes import wan5b_model
from hostbot.policy.cascade import Cascade
from hostbot.policy.contract import CascadeConfig

Tables = tuple[dict[Any, Any], dict[Any, Any]]
PASS_DIFFERENCE, CYCLE_DIFFERENCE = 0.01, 0.01
"""Of a pass's norm, and of a cycle's largest value: rounding alone made 0.002 and 0.0016."""


def tables() -> Tables:
    """A copy of what is in use."""
    return dict(ways.MEASURED), dict(attention.MEASURED)


@contextmanager
def using(chosen: Tables) -> Iterator[None]:
    """These ways for a while."""
    before = tables()
    put(chosen)
    try:
        yield
    finally:
        put(before)


def put(chosen: Tables) -> None:
    ways.MEASURED.update(chosen[0])
    attention.MEASURED.update(chosen[1])


def candidates(
    rows: Sequence[dict[str, Any]], num_rows: int, outputs: int, inputs: int, count: int
) -> list[HopperTiling]:
    """The fastest right cuts of a product, some of them with few shares: someone must add these up."""
    of = [
        r
        for r in rows
        if (r["rows"], r["outputs"], r["inputs"]) == (num_rows, outputs, inputs)
        and r.get("right")
        and "us" in r
        and r["overlap"]
        and not r["packed"]
        and isinstance(r["way"], dict)
        and "w_stages" in r["way"]
    ]
    of.sort(key=lambda r: r["us"])
    few = sorted(of, key=lambda r: r["us"] + 0.4 * (r["way"]["shares"] - 1) * (1 if r["way"]["half"] else 2))
    best = [r["way"] for r in (*few[:count], *of[: max(1, count // 2)])]
    return [HopperTiling(**way) for i, way in enumerate(best) if way not in best[:i]]


def choices(rows: Sequence[dict[str, Any]], name: str) -> Iterator[Choice]:
    """What is tried in a pass: each product's best cuts, and how attention is cut."""
    num_rows = PASSES[name]
    for outputs, inner in SHAPES[num_rows]:
        key = (sum(ways.widths(num_rows)), outputs, inner)
        tried = [ways.MEASURED[key], *candidates(rows, num_rows, outputs, inner, 3)]
        label = f"{num_rows}x{outputs}x{inner}"
        yield Choice(name=label, table=ways.MEASURED, key=key, candidates=tried)
    few = next(most for most in attention.FEW if num_rows <= most)
    for choice in attention_choices(few):
        yield replace(choice, candidates=[attention.MEASURED[choice.key], *choice.candidates])


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    for _ in range(2):
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def in_turn(call: Callable[[], object], compared: dict[str, Tables], rounds: int = 40) -> dict[str, float]:
    """Median microseconds of one call under each of several tables, replayed in turn."""
    graphs = {}
    for name, chosen in compared.items():
        with using(chosen):
            graphs[name] = captured(call)
    times: dict[str, list[float]] = {name: [] for name in compared}
    for _ in range(rounds):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(1e3 * begin.elapsed_time(end))
    return {name: round(statistics.median(values[5:]), 1) for name, values in times.items()}


class EightLayers:
    """A pass of each kind through eight layers."""

    def __init__(self) -> None:
        config, device = few_layers(wan5b_model(), 8), torch.device("cuda")
        cascade = Cascade(build(config, device, torch.bfloat16), CascadeConfig())
        context = inputs(config, device)
        cascade.instruct(context.text)
        cascade.watch(context.demo)
        self.calls = passes(cascade)

    def choose(self, rows: Sequence[dict[str, Any]], name: str, say: Callable[[str], None]) -> dict[str, Any]:
        """A pass with the ways as they stand and with the best of what was found, which stay if faster."""
        call, before, tried = self.calls[name], tables(), {}
        was = self.out(name)
        for choice in choices(rows, name):
            timed = try_all(choice, call, lambda call: microseconds(call, replays=16))
            tried[choice.name] = [{"pass_us": us, "cut": shown(cut)} for us, cut in timed]
            say(f"{name} {choice.name} " + " | ".join(f"{us} {told(cut)}" for us, cut in timed))
        now, again = self.out(name), self.out(name)
        apart, same = ((now - was).norm() / was.norm()).item(), torch.equal(now, again)
        us = in_turn(call, {"before": before, "after": tables()})
        kept = same and apart < PASS_DIFFERENCE and us["after"] < us["before"]
        if not kept:
            put(before)
        found = {"before_us": us["before"], "after_us": us["after"], "difference": apart, "same": same}
        say(f"{name} {found} {'kept' if kept else 'left as it was'}")
        return {"choices": tried, **found, "kept": kept}

    def out(self, name: str) -> torch.Tensor:
        found = self.calls[name]()
        assert isinstance(found, torch.Tensor)
        return found.clone()


@torch.inference_mode()
def choose(rows: Sequence[dict[str, Any]], out: Path, path: Path, cycles: int, write: bool) -> None:
    """Passes, then the whole cascade, then what is kept; last the profiles, which slow down what follows them."""
    about = {"commit": measure.commit(), "hardware": measure.hardware(torch.device("cuda"))}
    layers, first = EightLayers(), tables()
    result: dict[str, Any] = {**about, "passes": {}}
    with path.open("a", buffering=1) as lines:

        def say(text: str) -> None:
            print(text, flush=True)
            lines.write(json.dumps({"said": text}) + "\n")

        def save() -> None:
            measure.save(out, "hopper-passes", result | {"table": table()}, quiet=True)

        for name in PASSES:
            result["passes"][name] = layers.choose(rows, name, say)
            save()
        model = build(wan5b_model(), torch.device("cuda"), torch.bfloat16)
        result["cascade"] = in_cycles(model, first, tables(), cycles, say)
        result["kept"] = keep(about, result["cascade"], out, write)
        say(result["kept"])
        save()
        for name in PASSES:
            for when, chosen in {"before": first, "after": tables()}.items():
                with using(chosen):
                    found = result["passes"][name][f"{when}_kernels"] = profiled(layers.calls[name])
                say(f"{name} {when}\n  " + "\n  ".join(map(brief, found)))
            save()


def in_cycles(
    model: HostModel, before: Tables, after: Tables, cycles: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """The whole cascade under both tables in turn: how long, stage by stage, and how far apart."""
    device = next(model.parameters()).device
    context = inputs(model.config, device)
    made: dict[str, Cascade] = {}
    outs: dict[str, Any] = {}
    same = True
    noise = None
    for name, chosen in {"before": before, "after": after}.items():
        with using(chosen):  # a first cycle captures its graphs
            cascade = made[name] = Cascade(model, CascadeConfig())
            cascade.instruct(context.text)
            noise = noise or cascade.draw(torch.Generator(device).manual_seed(9))
            for number in range(3):
                cascade.watch(context.demo, now=False)
                out = cascade.act(context.observation, context.proprio, noise)
                now = {"p": out.p_samples.clone(), "o": out.o.clone(), "a": out.a.clone()}
                if number:
                    same &= all(torch.equal(now[k], outs[name][k]) for k in now)
                outs[name] = now
        say(f"cascade {name}: ready")
    assert noise is not None
    whole: dict[str, list[float]] = {name: [] for name in made}
    stages: dict[str, dict[str, list[float]]] = {name: {} for name in made}
    for number in range(cycles):
        for name, cascade in made.items():

            def cycle(cascade: Cascade = cascade) -> None:
                cascade.watch(context.demo, now=False)
                cascade.act(context.observation, context.proprio, noise)

            whole[name].append(measure.wall_ms(cycle, device))
            if number % 5 == 0:
                cascade.watch(context.demo, now=False)
                took = cascade.act(context.observation, context.proprio, noise, timed=True).timing_ms
                for stage, ms in took.items():
                    stages[name].setdefault(stage, []).append(ms)
    apart = {
        k: ((outs["after"][k] - y).abs().max() / y.abs().max()).item() for k, y in outs["before"].items()
    }
    result: dict[str, Any] = {"cycles": cycles, "difference": apart, "replays_equal": same}
    for name in made:
        result[name] = {
            "cycle_ms": measure.percentiles(whole[name]),
            "stages_ms": {stage: measure.percentiles(ms)["p50"] for stage, ms in stages[name].items()},
        }
    result["confirmed"] = confirmed(result)
    say(json.dumps(result))
    return result


def confirmed(cascade: dict[str, Any]) -> bool:
    """Whether a whole cascade was right and faster with what was found."""
    right = cascade["replays_equal"] and max(cascade["difference"].values()) < CYCLE_DIFFERENCE
    return right and cascade["after"]["cycle_ms"]["p50"] < cascade["before"]["cycle_ms"]["p50"]


def keep(about: dict[str, Any], cascade: dict[str, Any], out: Path, write: bool) -> str:
    """The table as found into ``out``; beside the kernels only if asked and confirmed. Says what was done."""
    text = json.dumps(about | table(), indent=1) + "\n"
    (out / cuts.PATH.name).write_text(text)
    if not write:
        return f"{cuts.PATH.name} is left as it was (no --write); what was found is in {out}"
    if not cascade.get("confirmed"):
        return f"{cuts.PATH.name} is left as it was: the whole cascade did not confirm what was found"
    cuts.PATH.write_text(text)
    return f"{cuts.PATH} has what was found"


def told(cut: Any) -> str:
    if isinstance(cut, int):
        return f"library x{cut}"
    return "/".join(str(int(value)) for value in asdict(cut).values()) + (
        "" if isinstance(cut, HopperTiling) else " triton"
    )


def brief(row: dict[str, Any]) -> str:
    return f"{row['calls']} x {row['us']} us, gap {row['gap_us']}: {row['kernel'][:40]}"


def profiled(call: Callable[[], object]) -> list[dict[str, Any]]:
    """The kernels of one replayed pass: how often, how long, and how long until the next begins after they end."""
    graph = captured(call)
    graph.replay()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        graph.replay()
        torch.cuda.synchronize()
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda e: e.time_range.start)
    rows: dict[str, list[tuple[float, float]]] = {}
    for event, following in zip(events, [*events[1:], events[-1]], strict=True):
        span = event.time_range
        gap = following.time_range.start - span.end if following is not event else 0
        rows.setdefault(event.name[:60], []).append((span.end - span.start, gap))
    found = [
        {
            "kernel": name,
            "calls": len(times),
            "us": round(sum(t for t, _ in times) / len(times), 2),
            "gap_us": round(sum(g for _, g in times) / len(times), 2),
        }
        for name, times in rows.items()
    ]
    return sorted(found, key=lambda row: -row["us"] * row["calls"])

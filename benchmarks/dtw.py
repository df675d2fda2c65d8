"""Smooth DTW, forward and backward, against a plain loop, torch anti-diagonals and the packages there are.

    pip install -r requirements/bench.txt      # tslearn, pysdtw: without them they are left out, and it says so
    python benchmarks/dtw.py                   # CPU, 2 threads: batch 8, T = N in 64 .. 512
    python benchmarks/dtw.py --device cuda     # 64 pairs of 512 x 512, checked against the CPU's float64

Every way is given the same cost in float32. Repetitions take turns, and the least of each counts: another process can
only add to a time.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dtw_ways
import measure
import torch
from torch import Tensor

from hostbot.align.dtw import logits, path_cost
from hostbot.align.losses import alignment_loss
from hostbot.config import provenance

Call = Callable[[], object]


def costs(batch: int, size: int, device: torch.device) -> Tensor:
    """Costs of the range the paper's temperatures give, with a cheap band along the diagonal."""
    g = torch.Generator().manual_seed(size)
    at = torch.arange(size)
    off = (at[:, None] - at).abs() / size
    return (40 * off + 5 * torch.rand(batch, size, size, generator=g)).to(device)


def backward(way: dtw_ways.Way, cost: Tensor) -> Call:
    leaf = cost.clone().requires_grad_()

    def call() -> Tensor | None:
        leaf.grad = None
        way(leaf).mean().backward()
        return leaf.grad

    return call


def whole_loss(batch: int, size: int, device: torch.device) -> Call:
    """Cost from embeddings, R and E both ways, beta, both losses; forward and backward."""
    g = torch.Generator().manual_seed(size)
    pair = [
        torch.nn.functional.normalize(torch.randn(batch, size, 128, generator=g), dim=-1) for _ in range(2)
    ]
    leaves = [x.to(device).requires_grad_() for x in pair]

    def call() -> None:
        for leaf in leaves:
            leaf.grad = None
        alignment_loss(*leaves).total.backward()

    return call


def matching(cost: Tensor) -> Tensor:
    """R(T,N) and, so that a gradient has to pass through R and E both, the logits of beta."""
    z, last = logits(cost)
    return last + 1e-3 * z.mean((1, 2))


def take_turns(calls: dict[str, Call], repeats: dict[str, int], device: torch.device) -> dict[str, float]:
    """Least milliseconds of each call."""
    best = dict.fromkeys(calls, float("inf"))
    for name, call in calls.items():
        if repeats[name] > 1:
            call()  # compiles, fills the allocator
    for turn in range(max(repeats.values())):
        for name, call in calls.items():
            if turn < repeats[name]:
                best[name] = min(best[name], measure.wall_ms(call, device))
    return {name: round(ms, 3) for name, ms in best.items()}


def on_cpu(args: argparse.Namespace) -> dict[str, Any]:
    device = torch.device("cpu")
    found, missing = dtw_ways.packages("cpu")
    rows = []
    for size in args.sizes:
        cost = costs(args.batch, size, device)
        ways = {
            "hostbot": path_cost,
            "hostbot R, E": matching,
            **found,
            "torch diagonals": dtw_ways.diagonals,
        }
        calls = {name: backward(way, cost) for name, way in ways.items()}
        calls["hostbot whole loss"] = whole_loss(args.batch, size, device)
        repeats = dict.fromkeys(calls, args.repeats) | {"torch diagonals": max(3, args.repeats // 10)}
        if size <= args.loop_until:
            calls["torch loop"], repeats["torch loop"] = backward(dtw_ways.loop, cost), 1
        rows.append({"size": size, "ms": take_turns(calls, repeats, device)})
        ours = rows[-1]["ms"]["hostbot"]
        rows[-1]["times_faster"] = {
            name: round(ms / ours, 1) for name, ms in rows[-1]["ms"].items() if "hostbot" not in name
        }
        print(rows[-1], flush=True)
    return {"batch": args.batch, "rows": rows, "left_out": missing, "agreement": agreement(device)}


def agreement(device: torch.device) -> dict[str, float]:
    """Largest difference from the plain loop, which autograd differentiates, in float64."""
    cost = costs(3, 24, device).double()
    (value, grad), (wanted, slope) = (
        (way(cost), backward(way, cost)()) for way in (path_cost, dtw_ways.loop)
    )
    assert grad is not None
    assert slope is not None
    return {"value": (value - wanted).abs().max().item(), "gradient": (grad - slope).abs().max().item()}


def exactness(batch: int, size: int, device: torch.device) -> dict[str, float]:
    """The float32 kernels on the device against the CPU's float64: largest difference over the largest value."""
    cost = costs(batch, size, torch.device("cpu"))
    found = {}
    for name, way in (("path", path_cost), ("path, R, E", matching)):
        wide = way(cost.double()), backward(way, cost.double())()
        ours = way(cost.to(device)), backward(way, cost.to(device))()
        for what, a, b in zip(("value", "gradient"), wide, ours, strict=True):
            assert a is not None
            assert b is not None
            found[f"{name}: {what}"] = ((a - b.double().cpu()).abs().max() / a.abs().max()).item()
    return found


def queued_ms(call: Call, count: int = 20) -> float:
    """Milliseconds of device time a call takes when the next is already queued."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / count


def tuned(cost: Tensor) -> list[dict[str, Any]]:
    """The path cost, forward and backward, for each way to lay a table over threads."""
    from hostbot.align import _cuda

    kept, rows = (_cuda.CHUNK, _cuda.ELEMENTS), []
    for chunk in (16, 32):
        for elements in (1, 2, 4):
            _cuda.CHUNK, _cuda.ELEMENTS = chunk, elements
            row: dict[str, Any] = {"chunk": chunk, "lanes_a_thread": elements}
            try:
                for name, way in (("path", path_cost), ("R, E", matching)):
                    call, leaf = backward(way, cost), cost.clone().requires_grad_()
                    call()
                    row[f"{name} ms"] = round(min(queued_ms(call) for _ in range(3)), 4)
                    forward = min(queued_ms(lambda w=way, x=leaf: w(x)) for _ in range(3))
                    row[f"{name} forward ms"] = round(forward, 4)
            except Exception as reason:  # too many registers for this layout
                row["failed"] = f"{type(reason).__name__}: {str(reason)[:200]}"
            rows.append(row)
            print(row, flush=True)
    _cuda.CHUNK, _cuda.ELEMENTS = kept
    return rows


def on_cuda(args: argparse.Namespace) -> dict[str, Any]:
    device = torch.device("cuda")
    start = time.perf_counter()
    result: dict[str, Any] = {"batch": args.batch, "exactness": {}}
    for size in (33, 512, 1024):
        result["exactness"][size] = exactness(4, size, device)
        print(size, result["exactness"][size], flush=True)
    found, missing = dtw_ways.packages("cuda")
    rows = []
    for size in args.sizes:
        cost = costs(args.batch, size, device)
        calls = {
            name: backward(way, cost)
            for name, way in {"hostbot": path_cost, "hostbot R, E": matching}.items()
        }
        calls["hostbot whole loss"] = whole_loss(args.batch, size, device)
        for name, way in found.items():
            calls[name] = backward(way, cost)
            try:
                calls[name]()
            except Exception as reason:  # it may import and yet not run on this card
                missing[name] = f"{type(reason).__name__}: {str(reason)[:300]}"
                del calls[name]
        waited = take_turns(calls, dict.fromkeys(calls, args.repeats), device)
        queued = {name: round(min(queued_ms(call) for _ in range(5)), 4) for name, call in calls.items()}
        rows.append({"size": size, "ms": waited, "ms_queued": queued})
        print(rows[-1], flush=True)
    result |= {"rows": rows, "left_out": missing}
    if args.tune:
        result["layouts"] = tuned(costs(args.batch, args.sizes[-1], device))
    return result | {"seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+", help="T = N: 64 to 512 on a CPU, 512 on a GPU")
    parser.add_argument("--batch", type=int, help="pairs at a time: 8 on a CPU, 64 on a GPU")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument(
        "--loop-until", type=int, default=512, help="largest size for the plain loop (minutes)"
    )
    parser.add_argument("--tune", action="store_true", help="GPU: try every layout")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = str(args.threads)
    torch.set_num_threads(args.threads)
    cuda = args.device == "cuda"
    args.batch = args.batch or (64 if cuda else 8)
    args.sizes = args.sizes or ([512] if cuda else [64, 128, 256, 512])
    result = on_cuda(args) if cuda else on_cpu(args)
    about = provenance() | {"measured_on": measure.hardware(torch.device(args.device))}
    about["commit"] = about["commit"] or measure.commit()
    load = [round(x, 1) for x in os.getloadavg()]
    name = "dtw-h200" if cuda else "dtw-cpu"
    measure.save(args.out, name, {**about, "load": load, "repeats": args.repeats, **result})


if __name__ == "__main__":
    main()

"""How long each kernel of a cascade pass takes at paper size, cut in many ways, against the library's and the limit.

    python benchmarks/kernels.py --out benchmarks/results

A product is timed with the kernel that reads its result, as in a pass, in a graph over enough weights that none is
still in a cache. "limit" is the weight's bytes over the measured copy bandwidth. The fastest cuts are what
``kernels/product.py`` and ``kernels/attention.py`` keep as theirs.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import measure
import torch

from hostbot.model.kernels import launch
from hostbot.model.kernels.attention import Cut, Sight, attention_of
from hostbot.model.kernels.heads import place_heads
from hostbot.model.kernels.norm import Addend, Modulated, Row, add_and_norm
from hostbot.model.kernels.product import Tiling, tiled

CARD = not launch.INTERPRETED
DEVICE, HALF = ("cuda", torch.bfloat16) if CARD else ("cpu", torch.float16)
HEADS = (24, 128)


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product of a pass and what reads it."""

    rows: int
    outputs: int
    inputs: int
    reader: str


PRODUCTS = [
    *(
        Product(rows=rows, outputs=n, inputs=k, reader=reader)
        for rows in (147, 8)
        for n, k, reader in (
            (9248, 3072, "heads"),
            (3072, 3072, "norm"),
            (14336, 3072, "gelu"),
            (3072, 14336, "norm"),
        )
    ),
    Product(rows=32, outputs=9248, inputs=1024, reader="heads"),
    Product(rows=32, outputs=1024, inputs=3072, reader="norm"),
    Product(rows=32, outputs=3072, inputs=1024, reader="queries"),
    Product(rows=32, outputs=4096, inputs=1024, reader="gelu"),
    Product(rows=32, outputs=1024, inputs=4096, reader="norm"),
    Product(rows=1, outputs=6144, inputs=3072, reader="context"),
]
WIDE = [(64, 64, 4, 4), (64, 64, 4, 6), (64, 128, 4, 3), (128, 64, 4, 5), (128, 64, 8, 4), (128, 64, 8, 5)]
WIDE += [(128, 128, 8, 3), (256, 64, 8, 4)]
NARROW = [(16, 256, 4, 4), (32, 128, 4, 6), (32, 256, 4, 4), (64, 64, 4, 8), (64, 128, 4, 5), (64, 256, 4, 3)]
NARROW += [(128, 64, 4, 6), (128, 128, 4, 4)]
CUTS = {
    16: [(16, 64, 4, 2), (16, 64, 4, 4), (16, 128, 4, 2), (16, 64, 2, 3)],
    32: [(32, 64, 4, 2), (32, 64, 4, 4), (32, 128, 4, 2), (16, 64, 4, 3)],
    160: [(64, 64, 4, 2), (64, 64, 4, 3), (64, 128, 4, 2), (32, 64, 4, 3), (32, 128, 4, 2), (128, 64, 8, 3)],
    2048: [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (64, 128, 4, 2)],
}
ATTENTIONS = [(147, 1324), (147, 513), (8, 1184), (8, 513), (32, 1356), (32, 513), (1029, 1029), (1029, 512)]


def normal(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=torch.float32).to(dtype)


def microseconds(calls: Sequence[Callable[[], object]], replays: int = 5) -> float:
    """Time a call takes in a graph of these calls, at the median of its replays."""
    if not CARD:
        for call in calls[:1]:
            call()
        return 0.0
    for call in calls[:2]:
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    for mark in marks[:-1]:
        mark.record()
        graph.replay()
    marks[-1].record()
    torch.cuda.synchronize()
    took = sorted(a.elapsed_time(b) for a, b in itertools.pairwise(marks))
    return round(1e3 * took[len(took) // 2] / len(calls), 2)


def reader_of(product: Product) -> Callable[[torch.Tensor], object]:
    """The kernel that reads a product's shares."""
    rows, outputs = product.rows, product.outputs
    bias = normal(outputs)
    if product.reader == "gelu":
        return lambda shares: None
    if product.reader == "norm":
        x, levels = normal(rows, outputs, dtype=torch.float32), normal(1, 6, outputs, dtype=torch.float32)
        row = Row(own=normal(outputs), level=levels[:, 0])
        norm = Modulated(shift=row, scale=row)
        return lambda shares: add_and_norm(
            x, Addend(shares=shares, bias=bias, gate=row), norm, rows, rows, 1e-6, HALF
        )
    inner = HEADS[0] * HEADS[1]
    weight, rope = normal(inner), normal(rows, HEADS[1] // 2, 2, dtype=torch.float32)
    cache = (normal(1, rows, *HEADS), normal(1, rows, *HEADS))
    parts = {
        "heads": (weight, weight, rope, cache),
        "queries": (weight, None, None, None),
        "context": (None, weight, None, cache),
    }[product.reader]
    return lambda shares: place_heads(shares, bias, *parts, HEADS, rows, 1e-6)


def tilings(product: Product) -> Iterator[Tiling]:
    """Cuts worth trying: enough tiles to fill the card, and steps enough in each to be worth starting."""
    for outputs, inputs, warps, stages in WIDE if product.rows > 32 else NARROW:
        tiling = Tiling(outputs=outputs, inputs=inputs, warps=warps, stages=stages)
        tiles, steps = -(-product.outputs // outputs), -(-product.inputs // inputs)
        if product.reader == "gelu":
            yield tiling
            continue
        most = max(1, steps // 2)
        for shares in sorted({min(most, max(1, round(goal / tiles))) for goal in (66, 128, 200, 264)}):
            yield replace(tiling, shares=shares)


def time_product(product: Product, bandwidth: float, most: int) -> dict[str, Any]:
    """All cuts of one product, best first, and the library's own with the same reader."""
    nbytes = 2 * product.outputs * product.inputs
    weights = [normal(product.outputs, product.inputs) for _ in range(min(most, max(3, 160 * 2**20 // nbytes)))]
    x, read, bias = normal(product.rows, product.inputs), reader_of(product), normal(product.outputs)
    gelu = bias if product.reader == "gelu" else None

    def own(tiling: Tiling, weight: torch.Tensor) -> None:
        dtype = HALF if gelu is not None else torch.float32
        out = torch.empty(tiling.shares, product.rows, product.outputs, device=DEVICE, dtype=dtype)
        tiled(x, weight, tiling, out, gelu)
        read(out)

    def library(weight: torch.Tensor) -> None:
        if gelu is not None:
            torch.ops.aten._addmm_activation(gelu, x, weight.T, use_gelu=True)
        else:
            read(torch.mm(x, weight.T)[None])

    found = []
    for tiling in tilings(product):
        try:
            us = microseconds([lambda t=tiling, w=w: own(t, w) for w in weights])
        except Exception as error:  # a cut that does not fit is no reason to lose the others
            found.append((float("inf"), tiling, f"{type(error).__name__}: {error}"[:120]))
            continue
        found.append((us, tiling, ""))
    found.sort(key=lambda row: row[0])
    return {
        **asdict(product),
        "limit_us": round(nbytes / bandwidth / 1e6, 2),
        "library_us": microseconds([lambda w=w: library(w) for w in weights]),
        "cuts": [{"us": us, **asdict(t), **({"failed": why} if why else {})} for us, t, why in found],
    }


def cuts(queries: int, keys: int) -> Iterator[Cut]:
    """Cuts of attention worth trying."""
    few = next(most for most in (16, 32, 160, 2048) if queries <= most)
    for block, width, warps, stages in CUTS[few]:
        tiles, most = 24 * -(-queries // block), -(-keys // width)
        goals = (72, 132, 200, 264) if queries <= 160 else (1,)
        for shares in sorted({min(most, max(1, round(goal / tiles))) for goal in goals}):
            yield Cut(queries=block, keys=width, shares=shares, warps=warps, stages=stages)


def time_attention(queries: int, keys: int, bandwidth: float, most: int) -> dict[str, Any]:
    """All cuts of one attention, best first, and torch's own with a gate after it."""
    nbytes = 2 * 2 * keys * HEADS[0] * HEADS[1]
    caches = [
        (normal(1, keys + 3, *HEADS), normal(1, keys + 3, *HEADS))
        for _ in range(min(most, max(4, 160 * 2**20 // nbytes)))
    ]
    q, gate = normal(queries, HEADS[0] * HEADS[1]), normal(queries, HEADS[0], dtype=torch.float32)
    arrived = torch.zeros(4096, device=DEVICE, dtype=torch.int32)
    sight = Sight(near=keys, far=keys)

    def library(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        parts = (y.transpose(1, 2) for y in (q.view(1, queries, *HEADS), k[:, :keys], v[:, :keys]))
        out = torch.nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2)
        return out * gate[None, ..., None].to(HALF)

    found = []
    for cut in cuts(queries, keys):
        try:
            us = microseconds([lambda c=cut, kv=kv: attention_of(q, *kv, gate, sight, arrived, c) for kv in caches])
        except Exception as error:  # as above
            found.append((float("inf"), cut, f"{type(error).__name__}: {error}"[:120]))
            continue
        found.append((us, cut, ""))
    found.sort(key=lambda row: row[0])
    return {
        "queries": queries,
        "num_keys": keys,
        "limit_us": round(nbytes / bandwidth / 1e6, 2),
        "library_us": microseconds([lambda kv=kv: library(*kv) for kv in caches]),
        "cuts": [{"us": us, **asdict(c), **({"failed": why} if why else {})} for us, c, why in found],
    }


def line(row: dict[str, Any]) -> str:
    """One result in a line."""
    cut = row["cuts"][0]
    name = f"{row['rows']}x{row['outputs']}x{row['inputs']}" if "rows" in row else f"{row['queries']}q {row['num_keys']}k"
    return f"{name:18s} limit {row['limit_us']:6.2f}  library {row['library_us']:6.2f}  own {cut['us']:6.2f}  {cut}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--most-weights", type=int, default=24, help="weights a graph goes through, at most")
    args = parser.parse_args()
    device = torch.device(DEVICE)
    limits = measure.ceilings(device)
    result: dict[str, Any] = {
        "benchmark": "kernels",
        "commit": measure.commit(),
        "hardware": measure.hardware(device),
        "ceilings": limits,
        "products": [],
        "attentions": [],
    }
    for product in PRODUCTS:
        result["products"].append(time_product(product, limits["tbytes_per_s"], args.most_weights))
        print(line(result["products"][-1]), flush=True)
    for queries, keys in ATTENTIONS:
        result["attentions"].append(time_attention(queries, keys, limits["tbytes_per_s"], args.most_weights))
        print(line(result["attentions"][-1]), flush=True)
        measure.save(args.out, "kernels-wan5b", result, quiet=True)


if __name__ == "__main__":
    main()

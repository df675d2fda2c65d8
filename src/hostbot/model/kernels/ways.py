"""Which way makes a product: the Triton kernel of ``product``, ``hopper.cu``, or the library. Needs no Triton itself.

Legend: M rows (tokens of a pass), K inputs, N outputs, P shares of K.

What was fastest on an H200 is a row of ``h200.json``. A row that names a Hopper way also names the one for cards that
cannot run it; the first time that one stands in for it there is a warning, and ``way_in_words`` says which it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from hostbot.model.kernels import cuts
from hostbot.model.kernels.hopper import HopperTiling, runs_on

MOST_ROWS = 160
"""Above this many rows arithmetic, not reading, takes the time, and the library's product is as good."""


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How a product is cut up."""

    outputs: int
    """Outputs of a tile."""
    inputs: int
    """Inputs of a step."""
    warps: int = 4
    stages: int = 4
    shares: int = 1
    early: int = 0
    """Inputs whose weights are read before the rows are there; a power of two, as many as a share has at least."""


def widths(rows: int) -> tuple[int, int]:
    """Rows as at most two powers of two: 147 is 128 + 32, which wastes a twelfth; 256 would waste three quarters."""
    if rows <= 128:
        return max(16, 1 << (rows - 1).bit_length()), 0
    return 128, 32


def fits(tiling: Tiling, inputs: int) -> bool:
    """Whether even the last share has as many inputs as are read early."""
    all_steps = -(-inputs // tiling.inputs)
    last = all_steps - (tiling.shares - 1) * -(-all_steps // tiling.shares)
    return tiling.early == 0 or last * tiling.inputs >= tiling.early


Way = Tiling | HopperTiling | int
"""How a product is made: by the Triton kernel, by ``hopper.cu``, or by the library in so many shares."""


Table = dict[tuple[int, int, int], Way]


def read_ways(rows: Iterable[Mapping[str, Any]]) -> tuple[Table, Table]:
    """The table's fastest ways, and those for cards on which the fastest does not run."""
    measured: Table = {}
    elsewhere: Table = {}
    for row in rows:
        key = (row["rows"], row["outputs"], row["inputs"])
        elsewhere[key] = Tiling(**row["tiling"]) if "tiling" in row else int(row["library_shares"])
        measured[key] = HopperTiling(**row["hopper"]) if "hopper" in row else elsewhere[key]
    return measured, elsewhere


MEASURED, ELSEWHERE = read_ways(cuts.read()["products"])
"""Fastest ways by rows rounded up, N and K; and those without ``hopper.cu``."""


def best_way(rows: int, outputs: int, inputs: int, may_share: bool, device: torch.device) -> Way:
    """What was measured for such a product, or a guess from it."""
    if rows > MOST_ROWS:
        return 1
    key = sum(widths(rows)), outputs, inputs
    way = MEASURED.get(key)
    if isinstance(way, HopperTiling) and not runs_on(device):
        _say_once(device)
        way = ELSEWHERE[key]
    if way is not None:
        return way
    block = Tiling(outputs=128, inputs=64, warps=8) if rows > 32 else Tiling(outputs=64, inputs=128)
    tiles = -(-outputs // block.outputs)
    shares = max(1, min(132 // tiles, inputs // 512)) if may_share else 1
    return replace(block, shares=shares)


@cache
def _say_once(device: torch.device) -> None:
    warnings.warn(
        f"{device} cannot run the Hopper product that was fastest on an H200: products are Triton's or the library's",
        stacklevel=4,
    )


def way_in_words(rows: int, outputs: int, inputs: int, device: torch.device) -> str:
    """Which product a device uses for a shape, for reports."""
    way = best_way(rows, outputs, inputs, True, device)
    if isinstance(way, int):
        return f"library in {way}"
    kind = "hopper" if isinstance(way, HopperTiling) else "triton"
    return f"{kind}, tiles of {way.outputs}, in {way.shares}"

"""Smooth DTW of a batch on a GPU: one launch forward and one backward, a program a table.

Legend: B pairs, T N padded lengths, n m the true ones, ``kept`` the table in the order of its anti-diagonals, from
which the backward sweep computes the derivatives again: that is off its critical path, memory is not.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from hostbot.align import _kernels

CHUNK = 16
"""Anti-diagonals read from memory at a time."""
ELEMENTS = 2
"""Lanes a thread has to itself, until there are 16 warps."""


def _options(rows: int, gamma: float) -> dict[str, Any]:
    """Lanes along the rows of a table, a power of two of them."""
    block = max(16, triton.next_power_of_2(rows))
    warps = min(16, max(1, block // (32 * ELEMENTS)))
    return {"RATE": 1.0 / gamma, "BLOCK": block, "CHUNK": CHUNK, "num_warps": warps, "num_stages": 1}


def _sweep(
    cost: Tensor, n: Tensor, m: Tensor, gamma: float, ends: int, table: bool, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """R, and E where there are two ends: [ends, B, T, N], its terminal values and what the gradient needs."""
    batch, rows, columns = cost.shape
    options, diagonals = _options(rows, gamma), rows + columns - 1
    out = torch.zeros(ends, *cost.shape, dtype=cost.dtype, device=cost.device) if table else cost
    kept = cost.new_empty((ends, batch, diagonals, options["BLOCK"]) if keep else (1,))
    scratch, last = cost.new_empty(ends, batch, 2 * CHUNK, options["BLOCK"]), cost.new_empty(ends, batch)
    numbers = columns, rows * columns, diagonals
    _kernels.sweep[(batch, ends)](
        cost, n, m, out, kept, scratch, last, *numbers, TABLE=table, KEEP=keep, **options
    )
    return out, last, kept


def _unsweep(
    seed: Tensor | None, last: Tensor, n: Tensor, m: Tensor, gamma: float, kept: Tensor, shape: torch.Size
) -> Tensor:
    """The cost's gradient a table: [ends, B, T, N]. A seed [1, B, T, N] serves both ends."""
    (ends, batch), (_, rows, columns) = last.shape, shape
    options, diagonals = _options(rows, gamma), rows + columns - 1
    grad = torch.zeros(ends, *shape, dtype=kept.dtype, device=kept.device)
    scratch = grad.new_empty(ends, batch, 2 * CHUNK, options["BLOCK"])
    given = grad if seed is None else seed.contiguous()
    numbers = columns, rows * columns, shape.numel() if len(given) == ends else 0, diagonals
    _kernels.unsweep[(batch, ends)](
        given, last.contiguous(), n, m, kept, scratch, grad, *numbers, SEED=seed is not None, **options
    )
    return grad


def _combine(x: Tensor, pair: Tensor, own: float, rate: float) -> Tensor:
    """(own x - pair[0] - pair[1]) rate, in one pass."""
    out = torch.empty_like(x)
    _kernels.combine[(triton.cdiv(x.numel(), 1024),)](x, pair, out, x.numel(), OWN=own, RATE=rate, BLOCK=1024)
    return out


def paths(cost: Tensor, n: Tensor, m: Tensor, gamma: float, grad: bool) -> tuple[Tensor, Tensor]:
    """R(n,m) of each pair, and what its gradient needs."""
    _, last, kept = _sweep(cost.contiguous(), n, m, gamma, ends=1, table=False, keep=grad)
    return last[0], kept


def unpaths(last: Tensor, n: Tensor, m: Tensor, gamma: float, kept: Tensor, shape: torch.Size) -> Tensor:
    """The cost's gradient from that of R(n,m)."""
    return _unsweep(None, last[None], n, m, gamma, kept, shape)[0]


def tables(cost: Tensor, n: Tensor, m: Tensor, gamma: float, grad: bool) -> tuple[Tensor, Tensor, Tensor]:
    """R, E, and what their gradients need."""
    out, _, kept = _sweep(cost.contiguous(), n, m, gamma, ends=2, table=True, keep=grad)
    return out[0], out[1], kept


def untables(R: Tensor, E: Tensor, n: Tensor, m: Tensor, gamma: float, kept: Tensor) -> Tensor:
    """The cost's gradient from those of R and E."""
    return _unsweep(torch.stack((R, E)), R.new_zeros(2, len(R)), n, m, gamma, kept, R.shape).sum(0)


def scores(
    cost: Tensor, n: Tensor, m: Tensor, gamma: float, own: float, grad: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(own c - R - E) / gamma, R(n,m), and what their gradients need."""
    cost = cost.contiguous()
    out, last, kept = _sweep(cost, n, m, gamma, ends=2, table=True, keep=grad)
    return _combine(cost, out, own, 1.0 / gamma), last[0].clone(), kept


def unscores(
    seed: Tensor, last: Tensor, n: Tensor, m: Tensor, gamma: float, own: float, kept: Tensor
) -> Tensor:
    """The cost's gradient from those of the scores and of R(n,m)."""
    seed = seed.contiguous()
    ends = torch.stack((-gamma * last, torch.zeros_like(last)))
    return _combine(seed, _unsweep(seed[None], ends, n, m, gamma, kept, seed.shape), own, 1.0 / gamma)

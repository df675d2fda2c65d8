"""Smooth DTW on a CPU: anti-diagonal sweeps compiled by numba, a batch shared out over torch's threads.

Legend: n m the lengths of one pair, s = i + j its anti-diagonal, R(i,j) the accumulated cost.
Cells of one anti-diagonal do not depend on each other, so that the compiler turns the loop over them into
vector instructions. Each cell keeps two of the three derivatives of its smooth minimum (``up`` and ``left``, in
the order of the sweep); the third is one minus their sum.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numba
import numpy as np
import torch
from numba import types
from numba.extending import intrinsic, overload

F = TypeVar("F", bound=Callable[..., Any])
BORDER = 1e9
LOG2E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.693145751953125, 1.428606765330187e-06
ROUND = 12582912.0
"""1.5 * 2**23: adding it to a small float32 leaves the nearest whole number in the low bits."""


def compiled(fn: F) -> F:
    """Compile at the first call, without the GIL; fused multiply-adds are the only liberty taken."""
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(fn)
    except RuntimeError:  # no folder to keep compiled code in
        return numba.njit(**options)(fn)


@intrinsic  # type: ignore[untyped-decorator]
def _bits(context: Any, x: Any) -> Any:
    """The bits of a float32 as an int32."""
    return types.int32(types.float32), lambda c, b, s, a: b.bitcast(a[0], c.get_value_type(types.int32))


@intrinsic  # type: ignore[untyped-decorator]
def _float(context: Any, x: Any) -> Any:
    """The float32 with these bits."""
    return types.float32(types.int32), lambda c, b, s, a: b.bitcast(a[0], c.get_value_type(types.float32))


def _exp(x: float) -> float:
    """exp(x) for x <= 0."""
    return math.exp(x)


@overload(_exp)  # type: ignore[untyped-decorator]
def _exp_of(x: Any) -> Any:
    def library(x: Any) -> Any:
        return math.exp(x)

    def polynomial(x: Any) -> Any:
        x = max(x, np.float32(-87.0))
        shifted = x * np.float32(LOG2E) + np.float32(ROUND)
        n = shifted - np.float32(ROUND)
        f = (x - n * np.float32(LN2_HIGH)) - n * np.float32(LN2_LOW)
        y = f * np.float32(1 / 720) + np.float32(1 / 120)
        y = y * f + np.float32(1 / 24)
        y = y * f + np.float32(1 / 6)
        y = y * f + np.float32(0.5)
        y = y * f + np.float32(1.0)
        y = y * f + np.float32(1.0)
        return _float(np.int32(_bits(y) + (_bits(shifted) << np.int32(23))))

    return polynomial if x == types.float32 else library


@compiled
def _diagonal(c: Any, above: Any, before: Any, corner: Any, gamma: Any, out: Any, up: Any, left: Any) -> None:
    """One anti-diagonal of eq:sdtw_forward with the derivatives p (1 - (a - mean) / gamma) of eq:smoothmin."""
    one, rate = type(gamma)(1.0), type(gamma)(1.0) / gamma
    for k in range(len(c)):
        a, b, d = above[k], before[k], corner[k]
        first = a < b
        low, high = (a, b) if first else (b, a)
        second = low < d
        least, other = (low, d) if second else (d, low)
        e_high, e_other = _exp((least - high) * rate), _exp((least - other) * rate)
        w = one / (one + e_high + e_other)
        p_high, p_other = w * e_high, w * e_other
        more = p_high * (high - least) + p_other * (other - least)
        out[k] = c[k] + (least + more)
        p_low = w if second else p_other
        d_low = p_low * (one - ((low - least) - more) * rate)
        d_high = p_high * (one - ((high - least) - more) * rate)
        up[k], left[k] = (d_low, d_high) if first else (d_high, d_low)


@compiled
def _sweep(cost: Any, gamma: Any, table: Any, up: Any, left: Any) -> Any:
    """R of one pair, its terminal value returned; ``table`` and the derivatives are written where not empty."""
    n, m = cost.shape
    rows = np.full((3, n + 1), cost.dtype.type(BORDER), cost.dtype)
    c, spare = np.empty(n, cost.dtype), np.empty((2, n), cost.dtype)
    start, kept = 0, len(up) > 0
    for s in range(n + m - 1):
        low, high = max(0, s - m + 1), min(n - 1, s) + 1
        size = high - low
        new, last, older = rows[s % 3], rows[(s + 2) % 3], rows[(s + 1) % 3]
        for k in range(size):
            c[k] = cost[low + k, s - low - k]
        u, v = (up[start : start + size], left[start : start + size]) if kept else (spare[0], spare[1])
        if s == 0:
            new[1], u[0], v[0] = c[0], 0, 0
        else:
            _diagonal(
                c[:size],
                last[low:high],
                last[low + 1 : high + 1],
                older[low:high],
                gamma,
                new[low + 1 : high + 1],
                u,
                v,
            )
        if table.size:
            for k in range(size):
                table[low + k, s - low - k] = new[low + 1 + k]
        start += size
    return rows[(n + m - 2) % 3][n]


@compiled
def _unsweep(seed: Any, last: Any, up: Any, left: Any, grad: Any) -> None:
    """Add to ``grad`` what ``seed`` (of the table) and ``last`` (of its terminal value) ask of the cost."""
    n, m = grad.shape
    ups, lefts = np.zeros((2, n + 2), grad.dtype), np.zeros((2, n + 2), grad.dtype)
    corners, g = np.zeros((3, n + 2), grad.dtype), np.zeros(n, grad.dtype)
    start = n * m
    for s in range(n + m - 2, -1, -1):
        low, high = max(0, s - m + 1), min(n - 1, s) + 1
        size = high - low
        start -= size
        g[:size] = 0
        if s == n + m - 2:
            g[0] = last
        if seed.size:
            for k in range(size):
                g[k] += seed[low + k, s - low - k]
        a, b, d = ups[(s + 1) % 2], lefts[(s + 1) % 2], corners[(s + 2) % 3]
        x, y, z = ups[s % 2], lefts[s % 2], corners[s % 3]
        for k in range(size):
            g[k] += a[low + k + 2] + b[low + k + 1] + d[low + k + 2]
        for k in range(size):
            x[low + k + 1] = g[k] * up[start + k]
            y[low + k + 1] = g[k] * left[start + k]
            z[low + k + 1] = g[k] - x[low + k + 1] - y[low + k + 1]
        for edge in (low, high + 1):
            x[edge] = y[edge] = z[edge] = 0
        for k in range(size):
            grad[low + k, s - low - k] += g[k]


@compiled
def _oriented(table: Any, n: int, m: int, reverse: bool) -> Any:
    """The valid part of a padded table, read from its other end where E is wanted."""
    part = table[:n, :m]
    return part[::-1, ::-1] if reverse else part[::1, ::1]


@compiled
def _forward(
    cost: Any, n: Any, m: Any, gamma: Any, reverse: bool, table: Any, up: Any, left: Any, last: Any
) -> None:
    for b in range(len(cost)):
        out = _oriented(table[b], n[b], m[b], reverse)
        last[b] = _sweep(_oriented(cost[b], n[b], m[b], reverse), gamma, out, up[b], left[b])


@compiled
def _backward(seed: Any, last: Any, n: Any, m: Any, reverse: bool, up: Any, left: Any, grad: Any) -> None:
    for b in range(len(grad)):
        out = _oriented(grad[b], n[b], m[b], reverse)
        _unsweep(_oriented(seed[b], n[b], m[b], reverse), last[b], up[b], left[b], out)


class Workers:
    """Threads that live as long as the process, made again after a fork."""

    pool: ThreadPoolExecutor | None = None

    @classmethod
    def forget(cls) -> None:
        """Threads do not survive a fork."""
        cls.pool = None

    @classmethod
    def each(cls, fn: Callable[[slice], object], batch: int) -> None:
        """Call ``fn`` on slices of the batch, as many at once as torch has threads."""
        num = min(batch, torch.get_num_threads())
        parts = [slice(batch * k // num, batch * (k + 1) // num) for k in range(num)]
        if num > 1 and cls.pool is None:
            cls.pool = ThreadPoolExecutor(os.cpu_count() or 1, "hostbot-dtw")
        others = [cls.pool.submit(fn, part) for part in parts[1:]] if cls.pool and num > 1 else []
        fn(parts[0])
        for other in others:
            other.result()


os.register_at_fork(after_in_child=Workers.forget)


def sweep(
    cost: torch.Tensor,
    n: torch.Tensor,
    m: torch.Tensor,
    gamma: float,
    *,
    reverse: bool,
    table: bool,
    grad: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Table (empty unless asked for), its terminal values and the derivatives a backward sweep needs."""
    batch, rows, columns = cost.shape
    out = cost.new_zeros((batch, rows, columns) if table else (batch, 0, 0))
    kept = cost.new_empty((2, batch, rows * columns if grad else 0))
    last = cost.new_empty(batch)
    arrays = [x.detach().numpy() for x in (cost.contiguous(), n, m, out, kept[0], kept[1], last)]
    rate = arrays[0].dtype.type(gamma)

    def run(part: slice) -> None:
        c, ns, ms, o, u, v, e = (x[part] for x in arrays)
        _forward(c, ns, ms, rate, reverse, o, u, v, e)

    Workers.each(run, batch)
    return out, last, kept


def unsweep(
    seed: torch.Tensor | None,
    last: torch.Tensor | None,
    n: torch.Tensor,
    m: torch.Tensor,
    kept: torch.Tensor,
    shape: torch.Size,
    *,
    reverse: bool,
) -> torch.Tensor:
    """The cost's gradient from those of the table and of its terminal values."""
    batch = shape[0]
    grad = kept.new_zeros(shape)
    seed = kept.new_empty((batch, 0, 0)) if seed is None else seed.contiguous()
    last = kept.new_zeros(batch) if last is None else last.contiguous()
    arrays = [x.detach().numpy() for x in (seed, last, n, m, kept[0], kept[1], grad)]

    def run(part: slice) -> None:
        s, e, ns, ms, u, v, g = (x[part] for x in arrays)
        _backward(s, e, ns, ms, reverse, u, v, g)

    Workers.each(run, batch)
    return grad

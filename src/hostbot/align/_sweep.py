"""Anti-diagonal sweeps over one cost table: eq:sdtw_forward and its exact derivative.

Legend: n m the lengths of one pair, s = i + j an anti-diagonal, R(i,j) the accumulated cost, ``above`` R(i-1,j),
``before`` R(i,j-1), ``corner`` R(i-1,j-1). Cells of an anti-diagonal do not depend on each other, so that the loop
over them becomes vector instructions. A table is swept in strips of rows, which keeps what a strip touches in the
nearest cache. Each cell keeps two derivatives of its smooth minimum in the order of the sweep, ``up`` and ``left``;
the third is one minus their sum. Anti-diagonals are rounded up to whole vectors: what the spare lanes hold is
overwritten or never read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from hostbot.align._compile import compiled, exp

BORDER = 1e9
STRIP = 256
LANES = 16
SPARE = 2 * LANES
"""Places that ``up`` and ``left`` have beyond n * m."""


@compiled
def skewed(table: Any) -> Any:
    """A view whose row s holds the anti-diagonal s: [s, i] is table[i, s - i]; only cells inside may be touched."""
    n, m = table.shape
    down, right = table.strides
    return as_strided(table, (n + m - 1, n), (right, down - right))


@compiled
def copy(source: Any, target: Any) -> None:
    """Element by element: one of the two is strided."""
    for k in range(len(target)):
        target[k] = source[k]


@compiled
def diagonal(c: Any, above: Any, before: Any, corner: Any, gamma: Any, out: Any, up: Any, left: Any) -> None:
    """R on one anti-diagonal and the derivatives p (1 - (a - mean) / gamma) of eq:smoothmin.

    Of the three exponentials that of the least is one. A NaN is sorted, never dropped, and so reaches the end.
    """
    one = type(gamma)(1.0)
    rate = one / gamma
    for k in range(len(c)):
        a, b, d = above[k], before[k], corner[k]
        first = a < b
        low, high = (a, b) if first else (b, a)
        second = low < d
        least, other = (low, d) if second else (d, low)
        e_high, e_other = exp((least - high) * rate), exp((least - other) * rate)
        w = one / (one + e_high + e_other)
        p_high, p_other = w * e_high, w * e_other
        more = p_high * (high - least) + p_other * (other - least)
        out[k] = c[k] + (least + more)
        p_low = w if second else p_other
        d_low = p_low * (one - ((low - least) - more) * rate)
        d_high = p_high * (one - ((high - least) - more) * rate)
        up[k], left[k] = (d_low, d_high) if first else (d_high, d_low)


@compiled
def strip(cost: Any, gamma: Any, edge: Any, table: Any, up: Any, left: Any) -> None:
    """R on a strip of rows; ``edge`` holds the row above it (one place on, the corner first) and gets its last row."""
    n, m = cost.shape
    rows = np.full((3, n + 1 + LANES), cost.dtype.type(BORDER), cost.dtype)
    c = np.zeros(n + LANES, cost.dtype)
    costs, tables, kept = skewed(cost), skewed(table), table.size > 0
    rows[1, 0] = edge[0]
    start = 0
    for s in range(n + m - 1):
        low, high = max(0, s - m + 1), min(n, s + 1)
        wide = (high - low + LANES - 1) // LANES * LANES
        end = low + wide
        new, last, older = rows[s % 3], rows[(s + 2) % 3], rows[(s + 1) % 3]
        if s < m:
            last[0] = edge[s + 1]
        copy(costs[s, low:high], c[: high - low])
        u, v = up[start : start + wide], left[start : start + wide]
        diagonal(
            c[:wide],
            last[low:end],
            last[low + 1 : end + 1],
            older[low:end],
            gamma,
            new[low + 1 : end + 1],
            u,
            v,
        )
        new[high + 1] = BORDER
        if kept:
            copy(new[low + 1 : high + 1], tables[s, low:high])
        if s >= n - 1:
            edge[s - n + 2] = new[n]
        start += high - low


@compiled
def sweep(cost: Any, gamma: Any, table: Any, up: Any, left: Any) -> Any:
    """R(n,m) of one pair; R goes to ``table`` unless that is empty, the derivatives to ``up`` and ``left``."""
    n, m = cost.shape
    edge = np.full(m + 1, cost.dtype.type(BORDER), cost.dtype)
    edge[0] = 0
    for i in range(0, n, STRIP):
        end = min(n, i + STRIP)
        u, v = up[i * m : end * m + LANES], left[i * m : end * m + LANES]
        strip(cost[i:end], gamma, edge, table[i:end], u, v)
        edge[0] = BORDER
    up[n * m : n * m + SPARE] = 0
    left[n * m : n * m + SPARE] = 0
    return edge[m]


@compiled
def undiagonal(
    seed: Any,
    below: Any,
    after: Any,
    beyond: Any,
    up: Any,
    left: Any,
    up2: Any,
    left2: Any,
    tiny: Any,
    out: Any,
) -> None:
    """What each cell of an anti-diagonal is asked for by itself and by its three successors."""
    one, zero = type(tiny)(1.0), type(tiny)(0.0)
    for k in range(len(seed)):
        g = seed[k] + below[k] * up[k] + after[k] * left[k] + beyond[k] * (one - up2[k] - left2[k])
        out[k] = zero if abs(g) < tiny else g  # denormal numbers would slow the rest of the table down


@compiled
def unstrip(seed: Any, last: Any, up: Any, left: Any, edge: Any, grad: Any) -> None:
    """The cost's gradient on a strip; ``edge`` holds what the rows below ask of its last row, and is passed up."""
    n, m = grad.shape
    rows, g = np.zeros((3, n + 2 + LANES), grad.dtype), np.zeros(n + LANES, grad.dtype)
    seeds, grads, seeded = skewed(seed), skewed(grad), seed.size > 0
    tiny, carry = grad.dtype.type(np.sqrt(np.finfo(grad.dtype).tiny)), grad.dtype.type(0)
    start = start1 = start2 = n * m
    low1 = low2 = n - 1
    for s in range(n + m - 2, -1, -1):
        low, high = max(0, s - m + 1), min(n, s + 1)
        wide = (high - low + LANES - 1) // LANES * LANES
        end = low + wide
        start -= high - low
        new, next1, next2 = rows[s % 3], rows[(s + 1) % 3], rows[(s + 2) % 3]
        if seeded:
            copy(seeds[s, low:high], g[: high - low])
        p, q = start1 + low - low1, start2 + low - low2 + 1
        undiagonal(
            g[:wide], next1[low + 2 : end + 2], next1[low + 1 : end + 1], next2[low + 2 : end + 2],
            up[p + 1 : p + 1 + wide], left[p : p + wide], up[q : q + wide], left[q : q + wide],
            tiny, new[low + 1 : end + 1],
        )  # fmt: skip
        if s >= n - 1:
            new[n] += edge[s - n + 1]
        if s == n + m - 2:
            new[n] += last
        new[low] = new[high + 1] = 0
        if s < m:
            edge[s] = new[1] * up[start] + carry
            carry = new[1] * (grad.dtype.type(1) - up[start] - left[start])
        copy(new[low + 1 : high + 1], grads[s, low:high])
        start1, start2, low1, low2 = start, start1, low, low1


@compiled
def unsweep(seed: Any, last: Any, up: Any, left: Any, grad: Any) -> None:
    """The cost's gradient from R's (``seed``, unless empty) and from that of R(n,m) (``last``)."""
    n, m = grad.shape
    edge = np.zeros(m, grad.dtype)
    for i in range((n - 1) // STRIP * STRIP, -1, -STRIP):
        end = min(n, i + STRIP)
        u, v = up[i * m : end * m + SPARE], left[i * m : end * m + SPARE]
        unstrip(seed[i:end], last, u, v, edge, grad[i:end])
        last = grad.dtype.type(0)

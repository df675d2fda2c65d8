"""Smooth DTW as Triton kernels: one program sweeps one table, R or E, along its anti-diagonals.

Legend: n m the lengths of one pair with n along the lanes, s = i + j an anti-diagonal, lane i holds row i.
The last anti-diagonal lives in registers; its neighbour comes by a gather through shared memory. Tables are read
and written in chunks of CHUNK anti-diagonals: a chunk's rows are loaded along their own direction, put aside in a
small scratch the cache holds, and read across, so that no access to memory is scattered.
"""

from __future__ import annotations

import triton
import triton.language as tl

BORDER = tl.constexpr(1e9)


@triton.jit
def _sorted(above, before, corner):
    """The least of three and the other two; a NaN is sorted, never dropped."""
    first = above < before
    low = tl.where(first, above, before)
    high = tl.where(first, before, above)
    second = low < corner
    return tl.where(second, low, corner), tl.where(second, corner, low), high, first, second


@triton.jit
def _weights(above, before, corner, RATE: tl.constexpr):
    """Smooth minimum, eq:smoothmin, less the least; its derivatives for ``above`` and ``before``; the least."""
    least, other, high, first, second = _sorted(above, before, corner)
    e_high = tl.exp((least - high) * RATE)
    e_other = tl.exp((least - other) * RATE)
    w = 1.0 / (1.0 + e_high + e_other)
    more = w * (e_high * (high - least) + e_other * (other - least))
    low = tl.where(second, least, other)
    d_low = w * tl.where(second, 1.0, e_other) * (1.0 - ((low - least) - more) * RATE)
    d_high = w * e_high * (1.0 - ((high - least) - more) * RATE)
    return least, more, tl.where(first, d_low, d_high), tl.where(first, d_high, d_low)


@triton.jit
def _lengths(lengths_n, lengths_m):
    """The lengths of this program's pair."""
    b = tl.program_id(0)
    return tl.load(lengths_n + b).to(tl.int32), tl.load(lengths_m + b).to(tl.int32)


@triton.jit
def _inside(s, i, n, m):
    return (i < n) & (s >= i) & (s - i < m)


@triton.jit
def _tile(s, n, m, columns, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """Where CHUNK anti-diagonals from ``s`` on lie in a table, in the scratch, and which of them do.

    Both are written so that the compiler sees what is contiguous: columns in the table, lanes in the scratch.
    """
    i = tl.arange(0, BLOCK)[:, None]
    k = tl.arange(0, CHUNK)[None, :]
    back = tl.program_id(1)
    sign = 1 - 2 * back
    first = back * (m - CHUNK) + sign * (s - i)
    offset = (back * (n - 1) + sign * i) * columns + first + k
    return offset, (back * (CHUNK - 1) + sign * k) * BLOCK + i, (i < n) & (first + k >= 0) & (first + k < m)


@triton.jit
def _fetch(table, s, n, m, columns, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """CHUNK anti-diagonals from ``s`` on, on their way from memory; zero outside."""
    offset, _, inside = _tile(s, n, m, columns, BLOCK, CHUNK)
    return tl.load(table + offset, mask=inside, other=0.0)


@triton.jit
def _put_aside(tile, scratch, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """Fetched anti-diagonals into the scratch, a row each."""
    _, aside, _ = _tile(0, 0, 0, 0, BLOCK, CHUNK)
    tl.debug_barrier()
    tl.store(scratch + aside, tile)
    tl.debug_barrier()


@triton.jit
def _write_out(table, scratch, s, n, m, columns, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """The scratch's rows back to CHUNK anti-diagonals from ``s`` on."""
    offset, aside, inside = _tile(s, n, m, columns, BLOCK, CHUNK)
    tl.debug_barrier()
    tile = tl.load(scratch + aside)
    tl.store(table + offset, tile, mask=inside)
    tl.debug_barrier()


@triton.jit
def sweep(
    cost, lengths_n, lengths_m, table, kept, scratch, last, columns, size, diagonals, RATE: tl.constexpr,
    BLOCK: tl.constexpr, CHUNK: tl.constexpr, TABLE: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """eq:sdtw_forward; program (b, 0) makes R of pair b and program (b, 1) its E."""
    n, m = _lengths(lengths_n, lengths_m)
    program = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    cost += tl.program_id(0).to(tl.int64) * size
    table += program * size
    kept += program * diagonals * BLOCK
    scratch += program * (2 * CHUNK * BLOCK)
    out = scratch + CHUNK * BLOCK
    i = tl.arange(0, BLOCK)
    border = tl.full((BLOCK,), BORDER, cost.dtype.element_ty)
    before = border
    corner = tl.where(i == 0, 0.0, border)
    end = border
    tile = _fetch(cost, 0, n, m, columns, BLOCK, CHUNK)
    for s0 in range(0, n + m - 1, CHUNK):
        _put_aside(tile, scratch, BLOCK, CHUNK)
        tile = _fetch(cost, s0 + CHUNK, n, m, columns, BLOCK, CHUNK)
        c = tl.load(scratch + i)
        for step in range(CHUNK):
            following = tl.load(scratch + tl.minimum(step + 1, CHUNK - 1) * BLOCK + i)
            above = tl.where(i == 0, border, tl.gather(before, tl.maximum(i - 1, 0), 0))
            least, more, _, _ = _weights(above, before, corner, RATE)
            inside = _inside(s0 + step, i, n, m)
            before = tl.where(inside, c + (least + more), border)
            end = tl.where(inside, before, end)
            if TABLE:
                tl.store(out + step * BLOCK + i, before)
            if KEEP:
                tl.store(kept + (s0 + step) * BLOCK + i, before, mask=inside)
            corner = above
            c = following
        if TABLE:
            _write_out(table, out, s0, n, m, columns, BLOCK, CHUNK)
    tl.store(last + program + i * 0, end, mask=i == n - 1)


@triton.jit
def _row(kept, s, i, n, m, BLOCK: tl.constexpr):
    """R on an anti-diagonal, the border outside."""
    return tl.load(kept + s * BLOCK + i, mask=(i >= 0) & _inside(s, i, n, m), other=BORDER)


@triton.jit
def unsweep(
    seed, last, lengths_n, lengths_m, kept, scratch, grad, columns, size, seed_size, diagonals,
    RATE: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, SEED: tl.constexpr,
):  # fmt: skip
    """The cost's gradient from those of the table (where SEED) and of its terminal value.

    R of earlier anti-diagonals is loaded a few steps before it is used: memory is farther away than a step lasts.
    """
    n, m = _lengths(lengths_n, lengths_m)
    program = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    seed += tl.program_id(1).to(tl.int64) * seed_size + tl.program_id(0).to(tl.int64) * size
    grad += program * size
    kept += program * diagonals * BLOCK
    scratch += program * (2 * CHUNK * BLOCK)
    out = scratch + CHUNK * BLOCK
    i = tl.arange(0, BLOCK)
    ends = n + m - 2
    top = ends // CHUNK * CHUNK + CHUNK - 1
    final = tl.where(i == n - 1, tl.load(last + program), 0.0)
    a1 = _row(kept, top - 1, i - 1, n, m, BLOCK)
    a2 = _row(kept, top - 2, i - 1, n, m, BLOCK)
    a3 = _row(kept, top - 3, i - 1, n, m, BLOCK)
    a4 = _row(kept, top - 4, i - 1, n, m, BLOCK)
    b1 = _row(kept, top - 1, i, n, m, BLOCK)
    b2 = _row(kept, top - 2, i, n, m, BLOCK)
    b3 = _row(kept, top - 3, i, n, m, BLOCK)
    left = tl.zeros((BLOCK,), grad.dtype.element_ty)  # asked of (i,j-1) by the last anti-diagonal
    corner = left  # of (i-1,j-1) by the last
    upper = left  # of (i-1,j) by the last and of (i-1,j-1) by the one before it, which is the same cell
    if SEED:
        tile = _fetch(seed, top - (CHUNK - 1), n, m, columns, BLOCK, CHUNK)
    for c0 in range(0, ends + 1, CHUNK):
        s0 = top - (CHUNK - 1) - c0
        if SEED:
            _put_aside(tile, scratch, BLOCK, CHUNK)
            tile = _fetch(seed, s0 - CHUNK, n, m, columns, BLOCK, CHUNK)
        for c1 in range(CHUNK):
            step = CHUNK - 1 - c1
            s = s0 + step
            a5 = _row(kept, s - 5, i - 1, n, m, BLOCK)
            b4 = _row(kept, s - 4, i, n, m, BLOCK)
            g = left + tl.where(i == BLOCK - 1, 0.0, tl.gather(upper, tl.minimum(i + 1, BLOCK - 1), 0))
            if SEED:
                g += tl.load(scratch + step * BLOCK + i)
            g = tl.where(_inside(s, i, n, m), tl.where(s == ends, g + final, g), 0.0)
            tl.store(out + step * BLOCK + i, g)
            _, _, d_above, d_before = _weights(a1, b1, a2, RATE)
            left = g * d_before
            upper = g * d_above + corner
            corner = g - g * d_above - left
            a1, a2, a3, a4 = a2, a3, a4, a5
            b1, b2, b3 = b2, b3, b4
        _write_out(grad, out, s0, n, m, columns, BLOCK, CHUNK)


@triton.jit
def combine(x, pair, out, size, OWN: tl.constexpr, RATE: tl.constexpr, BLOCK: tl.constexpr):
    """(own x - pair[0] - pair[1]) rate: the logits of beta from c, R and E, and the way back."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    first = tl.load(pair + at, mask=inside)
    second = tl.load(pair + size + at, mask=inside)
    tl.store(out + at, (OWN * tl.load(x + at, mask=inside) - first - second) * RATE, mask=inside)

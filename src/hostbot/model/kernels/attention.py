"""Attention of few queries over many keys: keys are cut into shares, so that the whole card reads them.

Legend: B samples, S queries, T keys, h heads, d head width.

Whoever finishes a share last adds up all of them, in their order, so that results never depend on who that was.
"""

# mypy: allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32, Int32
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from hostbot.model.kernels import launch
from hostbot.model.kernels.launch import begin, fetch, ready


@dataclass(frozen=True, kw_only=True)
class Sight:
    """Which keys each query sees: the first ``num_first`` those before ``near``, the others those before ``far``."""

    near: int
    far: int
    num_first: int = 0
    own: int = -1
    """Where the first query's own key lies, which it sees in any case, as the next does the next; -1: no such key."""

    @property
    def num_keys(self) -> int:
        """Keys that somebody may see, not counting own ones."""
        return max(self.near if self.num_first else 0, self.far)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How queries and keys are cut up."""

    queries: int
    keys: int
    shares: int = 1
    warps: int = 4
    stages: int = 2


@triton.jit
def _step(q, keys, values, n, acc, top, total, scale, limit, own, MASKED: tl.constexpr):
    scores = tl.dot(q, keys.T) * scale
    if MASKED:
        seen = (n[None, :] < limit[:, None]) | (n[None, :] == own[:, None])
        scores = tl.where(seen, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, axis=1))
    base = tl.where(new_top == float("-inf"), 0.0, new_top) if MASKED else new_top  # a row may have seen nothing yet
    weights = tl.exp2(scores - base[:, None])
    shrunk = tl.exp2(top - base)
    acc = tl.dot(weights.to(values.dtype), values, acc * shrunk[:, None])
    return acc, new_top, total * shrunk + tl.sum(weights, axis=1)


@triton.jit
def _finish(acc, total, opening, out, sample, head, m, S, WIDTH: tl.constexpr, HEADS: tl.constexpr):
    rows = sample.to(tl.int64) * S + m
    result = acc * (opening / total)[:, None]
    d = tl.arange(0, WIDTH)
    places = out + (rows[:, None] * HEADS + head) * WIDTH + d[None, :]
    tl.store(places, result.to(out.dtype.element_ty), mask=m[:, None] < S)


@triton.jit
def _attention_kernel(
    q,
    k_tiles,
    v_tiles,
    gate,
    out,
    partial,
    tops,
    totals,
    arrived,
    S,
    T,
    num_keys,
    num_first,
    near,
    far,
    own_start,
    scale,
    ahead,
    ahead_bytes,
    also,
    also_bytes,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MOST_SHARES: tl.constexpr,
    GATED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    block = tl.program_id(0)
    sample = tl.program_id(1) // HEADS
    head = tl.program_id(1) % HEADS
    share = tl.program_id(2)
    num_blocks = tl.cdiv(num_keys, BLOCK_N)
    shares = tl.num_programs(2)
    blocks = tl.cdiv(num_blocks, shares)
    start = share * blocks
    end = tl.minimum(start + blocks, num_blocks)
    if OVERLAP:
        begin()
        index = (share * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + block
        count = tl.num_programs(0) * tl.num_programs(1) * shares
        fetch(ahead, ahead_bytes, also, also_bytes, index, count)
        ready()
    m = block * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, WIDTH)
    rows = sample.to(tl.int64) * S + m
    queries = tl.load(
        q + (rows[:, None] * HEADS + head) * WIDTH + d[None, :], mask=m[:, None] < S, other=0.0
    )
    opening = tl.full([BLOCK_M], 1.0, dtype=tl.float32)
    if GATED:
        opening = tl.load(gate + rows * HEADS + head, mask=m < S, other=0.0)
    limit = tl.where(m < num_first, near, far)
    own = tl.where(own_start >= 0, own_start + m, -1)
    acc = tl.zeros([BLOCK_M, WIDTH], dtype=tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    all_see = tl.minimum(near, far) // BLOCK_N
    for index in range(start, tl.minimum(end, all_see)):
        place = [sample * T + index * BLOCK_N, head * WIDTH]
        n = index * BLOCK_N + tl.arange(0, BLOCK_N)
        keys, values = k_tiles.load(place), v_tiles.load(place)
        acc, top, total = _step(queries, keys, values, n, acc, top, total, scale, limit, own, False)
    for index in range(tl.maximum(start, all_see), end):
        place = [sample * T + index * BLOCK_N, head * WIDTH]
        n = index * BLOCK_N + tl.arange(0, BLOCK_N)
        keys, values = k_tiles.load(place), v_tiles.load(place)
        acc, top, total = _step(queries, keys, values, n, acc, top, total, scale, limit, own, True)
    if MOST_SHARES == 1:
        _finish(acc, total, opening, out, sample, head, m, S, WIDTH, HEADS)
    else:
        tile = tl.program_id(1) * tl.num_programs(0) + block
        r = tl.arange(0, BLOCK_M)
        first = tile.to(tl.int64) * shares * BLOCK_M
        mine = first + share * BLOCK_M + r
        tl.store(partial + mine[:, None] * WIDTH + d[None, :], acc)
        tl.store(tops + mine, top)
        tl.store(totals + mine, total)
        tl.debug_barrier()  # all of this share is written before its arrival is told
        if tl.atomic_add(arrived + tile, 1, sem="acq_rel") == shares - 1:
            # Everything is asked for at once: a loop would wait for each share in turn.
            each = tl.arange(0, MOST_SHARES)[:, None]
            theirs = first + each * BLOCK_M + r[None, :]
            all_tops = tl.load(tops + theirs, mask=each < shares, other=float("-inf"), cache_modifier=".cg")
            all_totals = tl.load(totals + theirs, mask=each < shares, other=0.0, cache_modifier=".cg")
            top = tl.max(all_tops, axis=0)
            total = tl.sum(all_totals * tl.exp2(all_tops - top[None, :]), axis=0)
            acc = tl.zeros([BLOCK_M, WIDTH], dtype=tl.float32)
            for other in tl.static_range(MOST_SHARES):
                places = first + other * BLOCK_M + r
                there = (r < BLOCK_M) & (other < shares)
                weight = tl.exp2(tl.load(tops + places, mask=there, other=float("-inf"), cache_modifier=".cg") - top)
                rows_of = partial + places[:, None] * WIDTH + d[None, :]
                part = tl.load(rows_of, mask=there[:, None], other=0.0, cache_modifier=".cg")
                acc += part * weight[:, None]
            tl.store(arrived + tile, 0)
            _finish(acc, total, opening, out, sample, head, m, S, WIDTH, HEADS)


FEW = (16, 32, 160)
LONG = 768
MEASURED: dict[tuple[int, bool], Cut] = {}
"""Fastest on an H200 (``benchmarks/kernels.py``) by queries rounded up to one of ``FEW``, and more than ``LONG`` keys."""


def best_cut(num_queries: int, num_keys: int, tiles_a_block: int) -> Cut:
    """What was measured for such attention, or a guess from it."""
    few = next((most for most in FEW if num_queries <= most), 0)
    if (few, num_keys > LONG) in MEASURED:
        return MEASURED[few, num_keys > LONG]
    if not few:
        return Cut(queries=128, keys=128, warps=8)
    queries = min(64, few)
    tiles = tiles_a_block * triton.cdiv(num_queries, queries)
    return Cut(queries=queries, keys=64, shares=max(1, min(8, 160 // tiles, num_keys // 256)), stages=3)


def attention_of(
    q: Float[Tensor, "M i"],
    k: Float[Tensor, "B T h d"],
    v: Float[Tensor, "B T h d"],
    gate: Float32[Tensor, "M h"] | None,
    sight: Sight,
    arrived: Int32[Tensor, " n"],
    cut: Cut | None = None,
    ahead: Sequence[Tensor] = (),
) -> Float[Tensor, "M i"]:
    """Softmax attention, each head's result scaled by its gate; ``arrived`` is all zeros, and is left so."""
    batch, length, heads, width = k.shape
    num_queries = len(q) // batch
    num_keys = max(sight.num_keys, sight.own + num_queries if sight.own >= 0 else 0)
    cut = cut or best_cut(num_queries, num_keys, batch * heads)
    blocks = triton.cdiv(num_queries, cut.queries)
    tiles = blocks * batch * heads
    assert len(arrived) >= tiles, (len(arrived), tiles)
    room = (tiles * cut.shares * cut.queries) if cut.shares > 1 else 0
    partial, tops, totals = (
        torch.empty(room * n, device=q.device, dtype=torch.float32) for n in (width, 1, 1)
    )
    out = torch.empty_like(q)
    _attention_kernel[(blocks, batch * heads, cut.shares)](
        q,
        TensorDescriptor.from_tensor(k.view(-1, heads * width), [cut.keys, width]),
        TensorDescriptor.from_tensor(v.view(-1, heads * width), [cut.keys, width]),
        gate,
        out,
        partial,
        tops,
        totals,
        arrived,
        num_queries,
        length,
        num_keys,
        sight.num_first,
        sight.near if sight.num_first else sight.far,
        sight.far,
        sight.own,
        math.log2(math.e) / math.sqrt(width),
        HEADS=heads,
        WIDTH=width,
        BLOCK_M=cut.queries,
        BLOCK_N=cut.keys,
        MOST_SHARES=triton.next_power_of_2(cut.shares),
        GATED=gate is not None,
        num_warps=cut.warps,
        num_stages=cut.stages,
        **launch.options(ahead),
    )
    return out

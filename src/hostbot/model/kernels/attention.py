"""Attention of few queries over many keys: keys are cut into shares, so that the whole card reads them.

Legend: B samples, S queries, M = B S rows, T keys, P shares, h heads, d head width, i = h d.

Shares of the keys that were there before the pass are read before the queries are there. Each share leaves its own
softmax, not yet divided by its sum, and ``combine.combined`` puts them together (one share needs none of this).
"""

# mypy: allow-untyped-decorators, allow-untyped-calls, allow-untyped-defs, allow-incomplete-defs
# (what Triton compiles carries no Python types)

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from hostbot.model.kernels import cuts, launch
from hostbot.model.kernels.combine import combined
from hostbot.model.kernels.launch import begin, ready


@dataclass(frozen=True, kw_only=True)
class Sight:
    """Which keys each query sees: the first ``num_first`` those before ``near``, the others those before ``far``."""

    near: int
    far: int
    num_first: int = 0
    own: int = -1
    """Where the first query's own key lies, which it sees in any case, as the next does the next; -1: no such key."""
    fixed: int = 0
    """Keys that no kernel of this pass writes."""
    alike: int = -1
    """A key that stands for ``times`` keys, all alike; -1: none does."""
    times: int = 1


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How queries and keys are cut up."""

    queries: int
    keys: int
    fixed_shares: int = 1
    """Shares of the keys that were there before; 0: these are no different from the pass's own."""
    own_shares: int = 1
    """Shares of the keys of the pass itself, where it has any."""
    warps: int = 4
    stages: int = 2


@triton.jit
def _step(
    q,
    keys,
    values,
    n,
    acc,
    top,
    total,
    scale,
    limit,
    own,
    high,
    alike,
    bonus,
    MASKED: tl.constexpr,
    ALIKE: tl.constexpr,
):
    scores = tl.dot(q, keys.T) * scale
    if ALIKE:
        scores += tl.where(n == alike, bonus, 0.0)[None, :]
    if MASKED:
        seen = ((n[None, :] < limit[:, None]) | (n[None, :] == own[:, None])) & (n[None, :] < high)
        scores = tl.where(seen, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, axis=1))
    base = (
        tl.where(new_top == float("-inf"), 0.0, new_top) if MASKED else new_top
    )  # a row may have seen nothing yet
    weights = tl.exp2(scores - base[:, None])
    shrunk = tl.exp2(top - base)
    acc = tl.dot(weights.to(values.dtype), values, acc * shrunk[:, None])
    return acc, new_top, total * shrunk + tl.sum(weights, axis=1)


@triton.jit
def _attention_kernel(
    q,
    k,
    v,
    gate,
    out,
    tops,
    totals,
    S,
    T,
    fixed,
    num_keys,
    fixed_shares,
    num_first,
    near,
    far,
    own_start,
    scale,
    alike,
    bonus,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LOOP: tl.constexpr,
    SHARED: tl.constexpr,
    GATED: tl.constexpr,
    ALIKE: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    sample = tl.program_id(1) // HEADS
    head = tl.program_id(1) % HEADS
    share = tl.program_id(2)
    is_own = share >= fixed_shares
    low = tl.where(is_own, fixed, 0)
    high = tl.where(is_own, num_keys, fixed)
    shares = tl.where(is_own, tl.num_programs(2) - fixed_shares, fixed_shares)
    num_blocks = tl.cdiv(high - low, BLOCK_N)
    blocks = tl.cdiv(num_blocks, shares)
    start = tl.where(is_own, share - fixed_shares, share) * blocks
    end = tl.minimum(start + blocks, num_blocks)
    column = head * WIDTH
    first = sample * T + low
    if OVERLAP:
        begin()
        if is_own:
            ready()
    if (
        not LOOP
    ):  # with several blocks a share the loop's own reading ahead is worth more shared memory than this
        keys = k.load([first + start * BLOCK_N, column])
        values = v.load([first + start * BLOCK_N, column])
    if OVERLAP:
        ready()
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, WIDTH)
    rows = sample.to(tl.int64) * S + m
    places = (rows[:, None] * HEADS + head) * WIDTH + d[None, :]
    queries = tl.load(q + places, mask=m[:, None] < S, other=0.0)
    limit = tl.where(m < num_first, near, far)
    own = tl.where(own_start >= 0, own_start + m, -1)
    acc = tl.zeros([BLOCK_M, WIDTH], dtype=tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    if LOOP:
        all_see = tl.maximum(tl.minimum(tl.minimum(near, far), high) - low, 0) // BLOCK_N
        for index in range(start, tl.minimum(end, all_see)):
            n = low + index * BLOCK_N + tl.arange(0, BLOCK_N)
            keys = k.load([first + index * BLOCK_N, column])
            values = v.load([first + index * BLOCK_N, column])
            acc, top, total = _step(
                queries, keys, values, n, acc, top, total, scale, limit, own, high, alike, bonus, False, ALIKE
            )
        for index in range(tl.maximum(start, all_see), end):
            n = low + index * BLOCK_N + tl.arange(0, BLOCK_N)
            keys = k.load([first + index * BLOCK_N, column])
            values = v.load([first + index * BLOCK_N, column])
            acc, top, total = _step(
                queries, keys, values, n, acc, top, total, scale, limit, own, high, alike, bonus, True, ALIKE
            )
    else:
        n = low + start * BLOCK_N + tl.arange(0, BLOCK_N)
        acc, top, total = _step(
            queries, keys, values, n, acc, top, total, scale, limit, own, high, alike, bonus, True, ALIKE
        )
    if SHARED:
        part = share.to(tl.int64) * tl.num_programs(1) // HEADS * S * HEADS
        tl.store(tops + part + rows * HEADS + head, top, mask=m < S)
        tl.store(totals + part + rows * HEADS + head, total, mask=m < S)
        tl.store(out + part * WIDTH + places, acc, mask=m[:, None] < S)
    else:
        opening = 1.0 / total
        if GATED:
            opening *= tl.load(gate + rows * HEADS + head, mask=m < S, other=0.0)
        tl.store(out + places, (acc * opening[:, None]).to(out.dtype.element_ty), mask=m[:, None] < S)


FEW, SHORT = (16, 32, 160), (128, 768)
MEASURED = {(row["queries"], row["keys"]): Cut(**row["cut"]) for row in cuts.read()["attentions"]}
"""Fastest cuts by queries rounded up to one of ``FEW`` and keys rounded up to one of ``SHORT`` (0: more)."""


def best_cut(num_queries: int, num_keys: int, fixed: int) -> Cut:
    """What was measured for such attention, or a guess from it."""
    few, short = (
        next((most for most in bounds if n <= most), 0)
        for n, bounds in ((num_queries, FEW), (num_keys, SHORT))
    )
    if (few, short) in MEASURED:
        return MEASURED[few, short]
    shares = max(1, min(8, fixed // 128)) if 0 < few <= 32 else 1
    return Cut(queries=min(64, few or 64), keys=64, fixed_shares=shares)


def _in_shares(num_keys: int, block: int, shares: int) -> tuple[int, int]:
    """Shares that so many keys make, and the most blocks that one of them has."""
    blocks = triton.cdiv(num_keys, block)
    shares = min(shares, blocks)
    return shares, triton.cdiv(blocks, max(1, shares))


def attention_of(
    q: Float[Tensor, "M i"],
    k: Float[Tensor, "B T h d"],
    v: Float[Tensor, "B T h d"],
    gate: Float32[Tensor, "M h"] | None,
    sight: Sight,
    cut: Cut | None = None,
) -> Float[Tensor, "M i"]:
    """Softmax attention, each head's result scaled by its gate."""
    batch, length, heads, width = k.shape
    rows, num_queries = len(q), len(q) // batch
    num_keys = max(
        sight.near if sight.num_first else 0, sight.far, sight.own + num_queries if sight.own >= 0 else 0
    )
    fixed = min(sight.fixed, num_keys)
    cut = cut or best_cut(num_queries, num_keys, fixed)
    fixed = fixed if cut.fixed_shares else 0
    of_fixed, most_of_fixed = _in_shares(fixed, cut.keys, cut.fixed_shares)
    of_own, most_of_own = _in_shares(num_keys - fixed, cut.keys, cut.own_shares)
    shares, most = of_fixed + of_own, max(most_of_fixed, most_of_own)
    tops = totals = None
    if shares > 1:
        parts, tops, totals = (
            torch.empty(shares, rows, n, device=q.device, dtype=torch.float32)
            for n in (heads * width, heads, heads)
        )
    else:
        parts = torch.empty_like(q)
    _attention_kernel[(triton.cdiv(num_queries, cut.queries), batch * heads, shares)](
        q,
        TensorDescriptor.from_tensor(k.view(-1, heads * width), [cut.keys, width]),
        TensorDescriptor.from_tensor(v.view(-1, heads * width), [cut.keys, width]),
        gate,
        parts,
        tops,
        totals,
        num_queries,
        length,
        fixed,
        num_keys,
        of_fixed,
        sight.num_first,
        sight.near if sight.num_first else sight.far,
        sight.far,
        sight.own,
        math.log2(math.e) / math.sqrt(width),
        sight.alike,
        math.log2(sight.times),
        HEADS=heads,
        WIDTH=width,
        BLOCK_M=cut.queries,
        BLOCK_N=cut.keys,
        LOOP=most > 1,
        SHARED=shares > 1,
        GATED=gate is not None,
        ALIKE=sight.alike >= 0,
        num_warps=cut.warps,
        num_stages=cut.stages,
        **launch.options(rows),
    )
    if tops is None or totals is None:
        return parts
    return combined(parts, tops, totals, gate, dtype=q.dtype)

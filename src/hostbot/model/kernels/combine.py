"""Attention over shares of the keys, put together: one softmax again, and each head scaled by its gate.

Legend: P shares, M rows, h heads, d head width, i = h d.
"""

# mypy: allow-untyped-decorators, allow-untyped-calls, allow-untyped-defs, allow-incomplete-defs
# (what Triton compiles carries no Python types)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

from hostbot.model.kernels import launch
from hostbot.model.kernels.launch import begin, ready


@triton.jit
def _combine_kernel(
    partial,
    tops,
    totals,
    gate,
    out,
    stride,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    SHARES: tl.constexpr,
    MOST_SHARES: tl.constexpr,
    GATED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    if OVERLAP:
        begin()
        ready()
    head = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = head < HEADS
    place = tl.program_id(0).to(tl.int64) * HEADS + head
    each = tl.arange(0, MOST_SHARES)[:, None]
    mask = (each < SHARES) & there[None, :]
    all_tops = tl.load(tops + each * stride + place[None, :], mask=mask, other=float("-inf"))
    all_totals = tl.load(totals + each * stride + place[None, :], mask=mask, other=0.0)
    top = tl.where(there, tl.max(all_tops, axis=0), 0.0)
    opening = 1.0 / tl.where(there, tl.sum(all_totals * tl.exp2(all_tops - top[None, :]), axis=0), 1.0)
    if GATED:
        opening *= tl.load(gate + place, mask=there, other=0.0)
    places = place[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    acc = tl.zeros([BLOCK, WIDTH], dtype=tl.float32)
    for share in tl.static_range(SHARES):  # unrolled: all shares are asked for at once
        weight = tl.exp2(tl.load(tops + share * stride + place, mask=there, other=0.0) - top)
        acc += (
            tl.load(partial + share * stride * WIDTH + places, mask=there[:, None], other=0.0)
            * weight[:, None]
        )
    tl.store(out + places, (acc * opening[:, None]).to(out.dtype.element_ty), mask=there[:, None])


def combined(
    parts: Float32[Tensor, "P M i"],
    tops: Float32[Tensor, "P M h"],
    totals: Float32[Tensor, "P M h"],
    gate: Float32[Tensor, "M h"] | None,
    dtype: torch.dtype,
) -> Float[Tensor, "M i"]:
    """Softmax over all shares from each share's weighted sum, largest score (base 2) and sum of weights."""
    (shares, rows, inner), heads = parts.shape, tops.shape[2]
    out = torch.empty(rows, inner, device=parts.device, dtype=dtype)
    block = min(8, triton.next_power_of_2(heads))
    _combine_kernel[(rows, triton.cdiv(heads, block))](
        parts,
        tops,
        totals,
        gate,
        out,
        rows * heads,
        HEADS=heads,
        WIDTH=inner // heads,
        BLOCK=block,
        SHARES=shares,
        MOST_SHARES=triton.next_power_of_2(shares),
        GATED=gate is not None,
        num_warps=4,
        **launch.options(rows),
    )
    return out

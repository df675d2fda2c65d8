"""Adding a product to the tokens, and norming them for the next: one reading of each number.

Legend: M rows (B samples of S tokens), P shares of a product, w width, G runs of tokens that share a noise level.
"""

# mypy: allow-untyped-decorators, allow-untyped-calls, allow-untyped-defs, allow-incomplete-defs
# (what Triton compiles carries no Python types)

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

from hostbot.model.kernels import launch
from hostbot.model.kernels.launch import begin, ready


@dataclass(frozen=True, kw_only=True)
class Row:
    """One AdaLN component: a block's own row and, for each run of tokens, its level's."""

    own: Float[Tensor, " w"]
    level: Float32[Tensor, "G w"]


@dataclass(frozen=True, kw_only=True)
class Addend:
    """A product not yet added up, and what it is scaled by before it joins the tokens."""

    shares: Float[Tensor, "P M w"]
    bias: Float[Tensor, " w"]
    gate: Row | None


@dataclass(frozen=True, kw_only=True)
class Affine:
    """A norm with weight and bias of its own."""

    weight: Float[Tensor, " w"]
    bias: Float[Tensor, " w"]


@dataclass(frozen=True, kw_only=True)
class Modulated:
    """A norm scaled and shifted by the noise level."""

    shift: Row
    scale: Row


@triton.jit
def _row(own, level, stride, run, column, mask):
    row = tl.load(own + column, mask=mask, other=0.0).to(tl.float32)
    return row + tl.load(level + run * stride + column, mask=mask, other=0.0)


@triton.jit
def _opening(gate, level, stride, run, column, mask, GATED: tl.constexpr):
    if GATED:
        return _row(gate, level, stride, run, column, mask)
    else:
        return 1.0


@triton.jit
def _affine(scale, scale_level, shift, shift_level, stride, run, column, mask, MODULATED: tl.constexpr):
    if MODULATED:
        a = 1 + _row(scale, scale_level, stride, run, column, mask)
        b = _row(shift, shift_level, stride, run, column, mask)
    else:
        a = tl.load(scale + column, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(shift + column, mask=mask, other=0.0).to(tl.float32)
    return a, b


@triton.jit
def _norm_kernel(
    x,
    shares,
    bias,
    gate,
    gate_level,
    scale,
    scale_level,
    shift,
    shift_level,
    out,
    stride_share,
    stride_level,
    num_tokens,
    num_first,
    eps,
    SHARES: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    GATED: tl.constexpr,
    NORM: tl.constexpr,
    MODULATED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    if OVERLAP:
        begin()
    row = tl.program_id(0).to(tl.int64)
    run = (row % num_tokens >= num_first).to(tl.int32)
    column = tl.arange(0, BLOCK)
    mask = column < WIDTH
    if OVERLAP:  # what is fixed for the pass is read before the rows are there
        if SHARES > 0:
            added = tl.load(bias + column, mask=mask, other=0.0).to(tl.float32)
            opening = _opening(gate, gate_level, stride_level, run, column, mask, GATED)
        if NORM:
            a, b = _affine(scale, scale_level, shift, shift_level, stride_level, run, column, mask, MODULATED)
        ready()
    tokens = tl.load(x + row * WIDTH + column, mask=mask, other=0.0)
    if SHARES > 0:
        if not OVERLAP:
            added = tl.load(bias + column, mask=mask, other=0.0).to(tl.float32)
            opening = _opening(gate, gate_level, stride_level, run, column, mask, GATED)
        for share in tl.static_range(SHARES):
            part = tl.load(shares + share * stride_share + row * WIDTH + column, mask=mask, other=0.0)
            added += part.to(tl.float32)
        tokens += added * opening
        tl.store(x + row * WIDTH + column, tokens, mask=mask)
    if NORM:
        if not OVERLAP:
            a, b = _affine(scale, scale_level, shift, shift_level, stride_level, run, column, mask, MODULATED)
        centred = tl.where(mask, tokens - tl.sum(tokens, axis=0) / WIDTH, 0.0)
        deviation = tl.sqrt(tl.sum(centred * centred, axis=0) / WIDTH + eps)
        normed = centred / deviation * a + b
        tl.store(out + row * WIDTH + column, normed.to(out.dtype.element_ty), mask=mask)


def add_and_norm(
    x: Float32[Tensor, "M w"],
    addend: Addend | None,
    norm: Affine | Modulated | None,
    num_tokens: int,
    num_first: int,
    eps: float,
    dtype: torch.dtype,
) -> Float[Tensor, "M w"]:
    """Add to ``x`` in place, then norm it; of every ``num_tokens`` rows the first ``num_first`` are run 0."""
    rows, width = x.shape
    out = torch.empty_like(x, dtype=dtype)
    gate = addend.gate if addend is not None else None
    scale = shift = scale_level = shift_level = None
    if isinstance(norm, Modulated):
        scale, scale_level, shift, shift_level = (
            norm.scale.own,
            norm.scale.level,
            norm.shift.own,
            norm.shift.level,
        )
    elif norm is not None:
        scale, shift = norm.weight, norm.bias
    level = scale_level if gate is None else gate.level  # all of a pass's levels lie alike
    _norm_kernel[(rows,)](
        x,
        addend.shares if addend is not None else None,
        addend.bias if addend is not None else None,
        gate.own if gate is not None else None,
        gate.level if gate is not None else None,
        scale,
        scale_level,
        shift,
        shift_level,
        out,
        addend.shares.stride(0) if addend is not None else 0,
        level.stride(0) if level is not None else 0,
        num_tokens,
        num_first,
        eps,
        SHARES=len(addend.shares) if addend is not None else 0,
        WIDTH=width,
        BLOCK=triton.next_power_of_2(width),
        GATED=gate is not None,
        NORM=norm is not None,
        MODULATED=isinstance(norm, Modulated),
        num_warps=8 if width > 1024 else 4,
        maxnreg=128,  # two rows a multiprocessor: 147 are more than there are multiprocessors
        **launch.options(rows),
    )
    return out

"""Attention to a short instruction with its values multiplied with their output weights beforehand.

Legend: S queries, T keys, h heads, d head width, w expert width, i = h d.

What a head adds to a token is linear in the values it attends to, and an instruction's values stay the same for many
cycles: ``fold`` multiplies them with the output layer's weights once. Then a pass needs the attention's weights alone,
and a product over 64 keys a head instead of 128 columns: half of the weights are read.
"""

# mypy: allow-untyped-decorators, allow-untyped-calls, allow-untyped-defs, allow-incomplete-defs
# (what Triton compiles carries no Python types)

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from hostbot.model.kernels import FOLDED_KEYS, launch
from hostbot.model.kernels.attention import Sight
from hostbot.model.kernels.launch import begin, ready


@triton.jit
def _weights_kernel(
    q,
    k,
    out,
    S,
    num_first,
    near,
    far,
    scale,
    alike,
    bonus,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    KEYS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    head = tl.program_id(1)
    if OVERLAP:
        begin()
    keys = k.load([0, head * WIDTH])
    if OVERLAP:
        ready()
    m, n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, KEYS)
    places = (m[:, None] * HEADS + head) * WIDTH + tl.arange(0, WIDTH)[None, :]
    queries = tl.load(q + places, mask=m[:, None] < S, other=0.0)
    scores = tl.dot(queries, keys.T) * scale + tl.where(n == alike, bonus, 0.0)[None, :]
    seen = n[None, :] < tl.where(m < num_first, near, far)[:, None]
    scores = tl.where(seen, scores, float("-inf"))
    weights = tl.exp2(scores - tl.max(scores, axis=1)[:, None])
    weights /= tl.sum(weights, axis=1)[:, None]
    tl.store(
        out + (m[:, None] * HEADS + head) * KEYS + n[None, :],
        weights.to(out.dtype.element_ty),
        mask=m[:, None] < S,
    )


def weights_of(q: Float[Tensor, "S i"], k: Float[Tensor, "1 T h d"], sight: Sight) -> Float[Tensor, "S h*64"]:
    """Softmax of every head's scores over the first 64 keys, zero where a query sees none."""
    _, length, heads, width = k.shape
    rows = len(q)
    assert max(sight.near, sight.far) <= FOLDED_KEYS and sight.own < 0, sight  # noqa: PT018
    out = torch.empty(rows, heads * FOLDED_KEYS, device=q.device, dtype=q.dtype)
    block = 16 if rows <= 16 else 32
    _weights_kernel[(triton.cdiv(rows, block), heads)](
        q,
        TensorDescriptor.from_tensor(k.view(length, heads * width), [FOLDED_KEYS, width]),
        out,
        rows,
        sight.num_first,
        sight.near if sight.num_first else sight.far,
        sight.far,
        math.log2(math.e) / math.sqrt(width),
        sight.alike,
        math.log2(sight.times),
        HEADS=heads,
        WIDTH=width,
        BLOCK=block,
        KEYS=FOLDED_KEYS,
        num_warps=4,
        **launch.options(rows),
    )
    return out


@triton.jit
def _fold_kernel(
    weight,
    value,
    folded,
    N,
    place,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    KEYS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    head = tl.program_id(1)
    n, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), head * WIDTH + tl.arange(0, WIDTH)
    if OVERLAP:
        begin()
    columns = tl.load(
        weight + n[:, None].to(tl.int64) * HEADS * WIDTH + d[None, :], mask=n[:, None] < N, other=0.0
    )
    if OVERLAP:
        ready()
    values = tl.load(value + d)
    sums = tl.sum(columns.to(tl.float32) * values.to(tl.float32)[None, :], axis=1)
    target = folded + (n.to(tl.int64) * HEADS + head) * KEYS + place
    tl.store(target, sums.to(folded.dtype.element_ty), mask=n < N)


def fold(
    weight: Float[Tensor, "w i"],
    values: Float[Tensor, "1 L h d"],
    folded: Float[Tensor, "w h*64"],
    first: int,
) -> None:
    """Put what these values, multiplied with their heads' output weights, add to a token at their keys' places."""
    _, count, heads, width = values.shape
    outputs, block = len(weight), 64
    if count > 1:
        made = torch.einsum("nhd,lhd->nhl", weight.unflatten(1, (heads, width)), values[0])
        folded.unflatten(1, (heads, FOLDED_KEYS))[:, :, first : first + count].copy_(made)
        return
    _fold_kernel[(triton.cdiv(outputs, block), heads)](
        weight,
        values,
        folded,
        outputs,
        first,
        HEADS=heads,
        WIDTH=width,
        BLOCK=block,
        KEYS=FOLDED_KEYS,
        num_warps=4,
        **launch.options(1),
    )

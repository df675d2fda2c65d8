"""What a product makes of tokens, put where attention reads it: queries and keys normed and turned, values, gates.

Legend: M rows (B samples of S tokens), P shares of a product, N its outputs, T cache length, h heads, d head width,
i = h d.
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
def _added(value, shares, row, offset, column, mask, stride_share, N, SHARES: tl.constexpr):
    for share in tl.static_range(SHARES):
        place = shares + share * stride_share + row * N + offset + column
        value += tl.load(place, mask=mask, other=0.0).to(tl.float32)
    return value


@triton.jit
def _turned(value, cos, sin, BLOCK: tl.constexpr):
    even, odd = tl.split(tl.reshape(value, (BLOCK // 2, 2)))
    return tl.reshape(tl.join(even * cos - odd * sin, even * sin + odd * cos), (BLOCK,))


@triton.jit
def _heads_kernel(
    shares,
    bias,
    weight_q,
    weight_k,
    rope,
    queries,
    keys,
    values,
    gates,
    stride_share,
    N,
    num_tokens,
    stride_batch,
    stride_token,
    eps,
    SHARES: tl.constexpr,
    INNER: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    HAS_QUERIES: tl.constexpr,
    HAS_CACHE: tl.constexpr,
    ROPE: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    if OVERLAP:
        begin()
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    token = row % num_tokens
    column = tl.arange(0, BLOCK)
    mask = column < INNER
    kind = part
    if not HAS_QUERIES:
        kind += 1
    value = tl.load(bias + part * INNER + column, mask=mask, other=0.0).to(tl.float32)
    weight = weight_q
    if kind == 1:
        weight = weight_k
    scale = tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    if ROPE:
        pair = tl.arange(0, BLOCK // 2)
        angle = rope + token * WIDTH + 2 * (pair % (WIDTH // 2))
        cos = tl.load(angle, mask=2 * pair < INNER, other=0.0)
        sin = tl.load(angle + 1, mask=2 * pair < INNER, other=0.0)
    if OVERLAP:
        ready()
    value = _added(value, shares, row, part * INNER, column, mask, stride_share, N, SHARES)
    if kind < 2:
        value *= tl.rsqrt(tl.sum(value * value, axis=0) / INNER + eps) * scale
        if ROPE:
            value = _turned(value, cos, sin, BLOCK)
    if HAS_QUERIES:
        if kind == 0:
            tl.store(queries + row * INNER + column, value.to(queries.dtype.element_ty), mask=mask)
    if HAS_CACHE:
        place = row // num_tokens * stride_batch + token * stride_token + column
        if kind == 1:
            tl.store(keys + place, value.to(keys.dtype.element_ty), mask=mask)
        if kind == 2:
            tl.store(values + place, value.to(values.dtype.element_ty), mask=mask)
    if HAS_QUERIES and HAS_CACHE:
        if kind == 2:
            head = tl.arange(0, HEADS_BLOCK)
            logit = tl.load(bias + 3 * INNER + head, mask=head < HEADS, other=0.0).to(tl.float32)
            logit = _added(logit, shares, row, 3 * INNER, head, head < HEADS, stride_share, N, SHARES)
            tl.store(gates + row * HEADS + head, tl.sigmoid(logit), mask=head < HEADS)


def place_heads(
    shares: Float[Tensor, "P M N"],
    bias: Float[Tensor, " N"],
    norm_q: Float[Tensor, " i"] | None,
    norm_k: Float[Tensor, " i"] | None,
    rope: Float32[Tensor, "S d/2 2"] | None,
    cache: tuple[Float[Tensor, "B S h d"], Float[Tensor, "B S h d"]] | None,
    heads: tuple[int, int],
    num_tokens: int,
    eps: float,
) -> tuple[Float[Tensor, "M i"] | None, Float32[Tensor, "M h"] | None]:
    """Queries (normed over all heads, turned) and head gates; keys (likewise) and values go into ``cache``.

    ``shares`` hold, side by side, whichever of queries, keys and values are asked for, and gates after all three.
    """
    num_shares, rows, outputs = shares.shape
    (num_heads, width), inner = heads, heads[0] * heads[1]
    queries = gates = keys = values = None
    if norm_q is not None:
        queries = torch.empty(rows, inner, device=shares.device, dtype=norm_q.dtype)
    if cache is not None:
        keys, values = cache
    if norm_q is not None and cache is not None:
        gates = torch.empty(rows, num_heads, device=shares.device, dtype=torch.float32)
    _heads_kernel[(rows, (queries is not None) + 2 * (keys is not None))](
        shares,
        bias,
        norm_q if norm_q is not None else norm_k,
        norm_k if norm_k is not None else norm_q,
        rope,
        queries,
        keys,
        values,
        gates,
        shares.stride(0),
        outputs,
        num_tokens,
        keys.stride(0) if keys is not None else 0,
        keys.stride(1) if keys is not None else 0,
        eps,
        SHARES=num_shares,
        INNER=inner,
        BLOCK=triton.next_power_of_2(inner),
        WIDTH=width,
        HEADS=num_heads,
        HEADS_BLOCK=triton.next_power_of_2(num_heads),
        HAS_QUERIES=queries is not None,
        HAS_CACHE=keys is not None,
        ROPE=rope is not None,
        num_warps=8 if inner > 1024 else 4,
        **launch.options(rows),
    )
    return queries, gates

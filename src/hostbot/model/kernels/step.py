"""The end of a denoising step: a velocity's shares added up and followed for a while, ``flow.euler`` in one reading.

Legend: P shares of a product, M rows, c numbers a patch.
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
def _step_kernel(
    state,
    shares,
    bias,
    out,
    delta,
    count,
    WIDTH: tl.constexpr,
    SHARES: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    if OVERLAP:
        begin()
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    velocity = tl.load(bias + place % WIDTH, mask=mask, other=0.0).to(tl.float32)
    if OVERLAP:
        ready()
    for share in tl.static_range(SHARES):
        velocity += tl.load(shares + share * count + place, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + place, tl.load(state + place, mask=mask, other=0.0) + delta * velocity, mask=mask)


def euler_step(
    state: Float32[Tensor, "1 M c"],
    shares: Float[Tensor, "P M c"],
    bias: Float[Tensor, " c"],
    sigma: float,
    sigma_next: float,
) -> Float32[Tensor, "1 M c"]:
    """``state`` after a step from one level to the next along the sum of ``shares`` and ``bias``."""
    out, block = torch.empty_like(state), 256
    _step_kernel[(triton.cdiv(state.numel(), block),)](
        state,
        shares,
        bias,
        out,
        sigma_next - sigma,
        state.numel(),
        WIDTH=state.shape[-1],
        SHARES=len(shares),
        BLOCK=block,
        num_warps=4,
        **launch.options(shares.shape[1]),
    )
    return out

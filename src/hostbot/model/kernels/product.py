"""Products of few rows with a large weight: as fast as the weight can be read.

Legend: M rows (tokens of a pass), K inputs, N outputs, P shares of K.

The weight is the wgmma's left operand, so that rows may be as few as there are; a tile of outputs takes all rows at
once and the weight is read exactly once. Where outputs alone give too few tiles to fill a card, K is cut into shares
and their sums are left for whoever reads the result to add up.
"""

# mypy: allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from hostbot.model.kernels import launch
from hostbot.model.kernels.launch import begin, fetch, ready

MOST_ROWS = 160
"""Above this many rows arithmetic, not reading, takes the time, and the library's product is as good."""
FETCHED_AHEAD = 24 * 2**20
"""Bytes of a weight asked for before the inputs are there: what a second-level cache holds besides its other load."""


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How a product is cut up."""

    outputs: int
    """Outputs of a tile."""
    inputs: int
    """Inputs of a step."""
    warps: int = 4
    stages: int = 4
    shares: int = 1


@triton.jit
def _tanh_gelu(y):
    return y / (1 + tl.exp(-1.5957691216057308 * (y + 0.044715 * y * y * y)))


@triton.jit
def _store(acc, bias, out, first_n, first_m, M, N, WIDTH: tl.constexpr, BLOCK_N: tl.constexpr, GELU: tl.constexpr):
    n = first_n + tl.arange(0, BLOCK_N)[:, None]
    m = first_m + tl.arange(0, WIDTH)[None, :]
    if GELU:
        acc = _tanh_gelu(acc + tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32))
    tl.store(out + m * N + n, acc.to(out.dtype.element_ty), mask=(m < M) & (n < N))


@triton.jit
def _product_kernel(
    low_x,
    high_x,
    weight_tiles,
    weight,
    bias,
    out,
    M,
    N,
    K,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    GELU: tl.constexpr,
    AHEAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    first_n = tl.program_id(0) * BLOCK_N
    share = tl.program_id(1)
    num_steps = tl.cdiv(K, BLOCK_K)
    steps = tl.cdiv(num_steps, tl.num_programs(1))
    start = share * steps
    end = tl.minimum(start + steps, num_steps)
    if OVERLAP:
        begin()
        n = tl.minimum(first_n + tl.arange(0, BLOCK_N), N - 1)
        most = AHEAD // (N * tl.num_programs(1)) // 16 * 8
        length = tl.minimum(tl.minimum((end - start) * BLOCK_K, K - start * BLOCK_K), most)
        if length > 0:
            fetch(weight + n.to(tl.int64) * K + start * BLOCK_K, length * 2)
        ready()
    low = tl.zeros([BLOCK_N, LOW], dtype=tl.float32)
    if HIGH > 0:
        high = tl.zeros([BLOCK_N, HIGH], dtype=tl.float32)
    for step in range(start, end):
        k = step * BLOCK_K
        w = weight_tiles.load([first_n, k])
        low = tl.dot(w, low_x.load([0, k]).T, low)
        if HIGH > 0:
            high = tl.dot(w, high_x.load([LOW, k]).T, high)
    out += share.to(tl.int64) * M * N
    _store(low, bias, out, first_n, 0, M, N, LOW, BLOCK_N, GELU)
    if HIGH > 0:
        _store(high, bias, out, first_n, LOW, M, N, HIGH, BLOCK_N, GELU)


def _widths(rows: int) -> tuple[int, int]:
    """Rows as at most two powers of two: 147 is 128 + 32, which wastes a twelfth; 256 would waste three quarters."""
    if rows <= 128:
        return max(16, triton.next_power_of_2(rows)), 0
    return 128, 32


def tiled(
    x: Float[Tensor, "M K"],
    weight: Float[Tensor, "N K"],
    tiling: Tiling,
    out: Float[Tensor, "P M N"],
    gelu_bias: Float[Tensor, " N"] | None = None,
) -> None:
    """The product of up to ``MOST_ROWS`` rows, cut as told; with ``gelu_bias``, GELU (tanh) of it plus the bias."""
    (rows, inputs), outputs = x.shape, weight.shape[0]
    low, high = _widths(rows)
    block = tiling.inputs
    _product_kernel[(triton.cdiv(outputs, tiling.outputs), tiling.shares)](
        TensorDescriptor.from_tensor(x, [low, block]),
        TensorDescriptor.from_tensor(x, [high or low, block]),
        TensorDescriptor.from_tensor(weight, [tiling.outputs, block]),
        weight,
        gelu_bias,
        out,
        rows,
        outputs,
        inputs,
        BLOCK_N=tiling.outputs,
        BLOCK_K=block,
        LOW=low,
        HIGH=high,
        GELU=gelu_bias is not None,
        AHEAD=FETCHED_AHEAD,
        num_warps=tiling.warps,
        num_stages=tiling.stages,
        **launch.options(),
    )


def best_tiling(rows: int, outputs: int, inputs: int, may_share: bool) -> Tiling:
    """What was fastest on an H200 for a product like this one (``benchmarks/kernels.py``)."""
    if rows > 32:
        tiling = Tiling(outputs=128, inputs=64, warps=8, stages=4)
    else:
        tiling = Tiling(outputs=64, inputs=128, warps=4, stages=4)
    tiles = triton.cdiv(outputs, tiling.outputs)
    shares = max(1, min(144 // tiles, inputs // 256)) if may_share else 1
    return Tiling(**{**vars(tiling), "shares": shares})


def shares_of_product(x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"]) -> Float32[Tensor, "P M N"]:
    """``x @ weight.T`` in float32 as one or more addends; whoever reads them adds them up, and the bias."""
    rows, outputs = len(x), len(weight)
    if rows > MOST_ROWS:
        return torch.mm(x, weight.T, out_dtype=torch.float32)[None]
    tiling = best_tiling(rows, outputs, x.shape[1], may_share=True)
    out = x.new_empty(tiling.shares, rows, outputs, dtype=torch.float32)
    tiled(x, weight, tiling, out)
    return out


def gelu_product(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"]
) -> Float[Tensor, "M N"]:
    """GELU (tanh) of a linear layer, in the inputs' type."""
    rows, outputs = len(x), len(weight)
    if rows > MOST_ROWS:
        return torch.ops.aten._addmm_activation(bias, x, weight.T, use_gelu=True)
    out = x.new_empty(1, rows, outputs)
    tiled(x, weight, best_tiling(rows, outputs, x.shape[1], may_share=False), out, bias)
    return out[0]

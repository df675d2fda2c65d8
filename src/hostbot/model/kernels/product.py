"""Products of few rows with a large weight: as fast as the weight can be read.

Legend: M rows (tokens of a pass), K inputs, N outputs, P shares of K.

The weight is the wgmma's left operand, so that rows may be as few as there are; a tile of outputs takes all rows at
once and the weight is read exactly once. Where outputs alone give too few tiles to fill a card, K is cut into shares
and their sums are left for whoever reads the result to add up. A tile's first inputs' weights are read before the
rows are there.
"""

# mypy: allow-untyped-decorators, allow-untyped-calls, allow-untyped-defs, allow-incomplete-defs
# (what Triton compiles carries no Python types)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from hostbot.model.kernels import launch
from hostbot.model.kernels.hopper import HopperTiling, hopper_product
from hostbot.model.kernels.launch import begin, ready
from hostbot.model.kernels.ways import MOST_ROWS, Tiling, best_way, fits, widths


@triton.jit
def _tanh_gelu(y):
    return y / (1 + tl.exp(-1.5957691216057308 * (y + 0.044715 * y * y * y)))


@triton.jit
def _store(
    acc, bias, out, first_n, first_m, M, N, WIDTH: tl.constexpr, BLOCK_N: tl.constexpr, GELU: tl.constexpr
):
    n = first_n + tl.arange(0, BLOCK_N)[:, None]
    m = first_m + tl.arange(0, WIDTH)[None, :]
    if GELU:
        acc = _tanh_gelu(acc + tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32))
    tl.store(out + m * N + n, acc.to(out.dtype.element_ty), mask=(m < M) & (n < N))


@triton.jit
def _product_kernel(
    low_x,
    high_x,
    early_x,
    weight,
    early_weight,
    bias,
    out,
    M,
    N,
    K,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EARLY: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    GELU: tl.constexpr,
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
    if EARLY > 0:
        early = early_weight.load([first_n, start * BLOCK_K])
    if OVERLAP:
        ready()
    low = tl.zeros([BLOCK_N, LOW], dtype=tl.float32)
    if HIGH > 0:
        high = tl.zeros([BLOCK_N, HIGH], dtype=tl.float32)
    for step in range(start + EARLY // BLOCK_K, end):
        k = step * BLOCK_K
        w = weight.load([first_n, k])
        low = tl.dot(w, low_x.load([0, k]).T, low)
        if HIGH > 0:
            high = tl.dot(w, high_x.load([LOW, k]).T, high)
    if EARLY > 0:
        low = tl.dot(early, early_x.load([0, start * BLOCK_K]).T, low)
    out += share.to(tl.int64) * M * N
    _store(low, bias, out, first_n, 0, M, N, LOW, BLOCK_N, GELU)
    if HIGH > 0:
        _store(high, bias, out, first_n, LOW, M, N, HIGH, BLOCK_N, GELU)


def tiled(
    x: Float[Tensor, "M K"],
    weight: Float[Tensor, "N K"],
    tiling: Tiling,
    out: Float[Tensor, "P M N"],
    gelu_bias: Float[Tensor, " N"] | None = None,
) -> None:
    """The product of up to ``MOST_ROWS`` rows, cut as told; with ``gelu_bias``, GELU (tanh) of it plus the bias."""
    (rows, inputs), outputs = x.shape, weight.shape[0]
    low, high = widths(rows)
    assert rows <= MOST_ROWS, f"{rows} rows are more than {MOST_ROWS}"
    assert fits(tiling, inputs) and not (high and tiling.early), (tiling, inputs)  # noqa: PT018
    block, early = tiling.inputs, tiling.early or tiling.inputs
    _product_kernel[(triton.cdiv(outputs, tiling.outputs), tiling.shares)](
        TensorDescriptor.from_tensor(x, [low, block]),
        TensorDescriptor.from_tensor(x, [high or low, block]),
        TensorDescriptor.from_tensor(x, [low, early]),
        TensorDescriptor.from_tensor(weight, [tiling.outputs, block]),
        TensorDescriptor.from_tensor(weight, [tiling.outputs, early]),
        gelu_bias,
        out,
        rows,
        outputs,
        inputs,
        BLOCK_N=tiling.outputs,
        BLOCK_K=block,
        EARLY=tiling.early,
        LOW=low,
        HIGH=high,
        GELU=gelu_bias is not None,
        num_warps=tiling.warps,
        num_stages=tiling.stages,
        **launch.options(rows),
    )


def _library_shares(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], shares: int
) -> Float[Tensor, "P M N"]:
    """The library's product as a batch of products over shares of K: enough tiles, and no kernel to add them up."""
    if shares == 1:
        return torch.mm(x, weight.T)[None]
    cut_x, cut_weight = (y.unflatten(1, (shares, -1)).transpose(0, 1) for y in (x, weight))
    return torch.bmm(cut_x, cut_weight.mT, out_dtype=torch.float32)


def shares_of_product(x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"]) -> Float[Tensor, "P M N"]:
    """``x @ weight.T`` as one or more addends; whoever reads them adds them up, and the bias."""
    way = best_way(len(x), len(weight), x.shape[1], may_share=True, device=x.device)
    if isinstance(way, int):
        return _library_shares(x, weight, way)
    rounded = isinstance(way, HopperTiling) and way.half
    out = x.new_empty(way.shares, len(x), len(weight), dtype=x.dtype if rounded else torch.float32)
    if isinstance(way, HopperTiling):
        hopper_product(x, weight, way, out, overlap=launch.overlap)
    else:
        tiled(x, weight, way, out)
    return out


def gelu_product(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"]
) -> Float[Tensor, "M N"]:
    """GELU (tanh) of a linear layer, in the inputs' type."""
    way = best_way(len(x), len(weight), x.shape[1], may_share=False, device=x.device)
    if isinstance(way, int):
        return torch.ops.aten._addmm_activation(bias, x, weight.T, use_gelu=True)
    out = x.new_empty(1, len(x), len(weight))
    if isinstance(way, HopperTiling):
        hopper_product(x, weight, way, out, bias, overlap=launch.overlap)
    else:
        tiled(x, weight, way, out, bias)
    return out[0]

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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from hostbot.model.kernels import cuts, launch
from hostbot.model.kernels.hopper import HopperTiling, hopper_product
from hostbot.model.kernels.launch import begin, ready

MOST_ROWS = 160
"""Above this many rows arithmetic, not reading, takes the time, and the library's product is as good."""


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
    early: int = 0
    """Inputs whose weights are read before the rows are there; a power of two, as many as a share has at least."""


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


def _widths(rows: int) -> tuple[int, int]:
    """Rows as at most two powers of two: 147 is 128 + 32, which wastes a twelfth; 256 would waste three quarters."""
    if rows <= 128:
        return max(16, triton.next_power_of_2(rows)), 0
    return 128, 32


def fits(tiling: Tiling, inputs: int) -> bool:
    """Whether even the last share has as many inputs as are read early."""
    steps = triton.cdiv(triton.cdiv(inputs, tiling.inputs), tiling.shares)
    last = triton.cdiv(inputs, tiling.inputs) - (tiling.shares - 1) * steps
    return tiling.early == 0 or last * tiling.inputs >= tiling.early


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


Way = Tiling | HopperTiling | int
"""How a product is made: by the kernel above, by ``hopper.cu``, or by the library in so many shares."""


def _measured() -> dict[tuple[int, int, int], Way]:
    def way(row: Mapping[str, Any]) -> Way:
        if "hopper" in row:
            return HopperTiling(**row["hopper"])
        return Tiling(**row["tiling"]) if "tiling" in row else int(row["library_shares"])

    return {(row["rows"], row["outputs"], row["inputs"]): way(row) for row in cuts.read()["products"]}


MEASURED = _measured()
"""Fastest ways by rows rounded up, N and K."""


def best_tiling(rows: int, outputs: int, inputs: int, may_share: bool) -> Way:
    """What was measured for such a product, or a guess from it."""
    if rows > MOST_ROWS:
        return 1
    key = sum(_widths(rows)), outputs, inputs
    if key in MEASURED:
        return MEASURED[key]
    block = Tiling(outputs=128, inputs=64, warps=8) if rows > 32 else Tiling(outputs=64, inputs=128)
    tiles = triton.cdiv(outputs, block.outputs)
    shares = max(1, min(132 // tiles, inputs // 512)) if may_share else 1
    return replace(block, shares=shares)


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
    tiling = best_tiling(len(x), len(weight), x.shape[1], may_share=True)
    if isinstance(tiling, int):
        return _library_shares(x, weight, tiling)
    if isinstance(tiling, HopperTiling):
        dtype = x.dtype if tiling.half else torch.float32
        out = x.new_empty(tiling.shares, len(x), len(weight), dtype=dtype)
        hopper_product(x, weight, tiling, out, overlap=launch.overlap)
        return out
    out = x.new_empty(tiling.shares, len(x), len(weight), dtype=torch.float32)
    tiled(x, weight, tiling, out)
    return out


def gelu_product(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"]
) -> Float[Tensor, "M N"]:
    """GELU (tanh) of a linear layer, in the inputs' type."""
    tiling = best_tiling(len(x), len(weight), x.shape[1], may_share=False)
    if isinstance(tiling, int):
        return torch.ops.aten._addmm_activation(bias, x, weight.T, use_gelu=True)
    out = x.new_empty(1, len(x), len(weight))
    if isinstance(tiling, HopperTiling):
        hopper_product(x, weight, tiling, out, bias, overlap=launch.overlap)
    else:
        tiled(x, weight, tiling, out, bias)
    return out[0]

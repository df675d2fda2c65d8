"""Smooth dynamic time warping, written from the equations: tables R and E, path cost and soft matching.

Legend: B pairs, T demo frames, N robot frames, c(i,j) the cost of matching i with j.
The borders hold 1e9 outside the table (read as real cells, the paper's borders would forbid dwelling on a first
frame). Gradients are exact: the derivative of the weighted mean may be negative, unlike that of a log-sum-exp.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from hostbot.align.cost import PADDING, Lengths, MatchConfig, cells, checked_lengths, normalised, similarity
from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Cost of the best path to each cell and from each cell, both with the cell's own; 0 in the padding."""

    R: Float[Tensor, "B T N"]
    E: Float[Tensor, "B T N"]


@dataclass(frozen=True, kw_only=True)
class Matching:
    """Where each frame of one sequence lies in the other, and what the whole path costs."""

    demo_to_robot: Float[Tensor, "B T N"]
    robot_to_demo: Float[Tensor, "B N T"]
    demo_path: Float[Tensor, " B"]
    """R(T,N) of the demo-to-robot direction."""
    robot_path: Float[Tensor, " B"]


def smooth_min(a: Float[Tensor, "*B K"], gamma: float) -> Float[Tensor, "*B"]:
    """Softmax-weighted minimum, eq:smoothmin; tends to ``a.min(-1)`` as gamma -> 0."""
    return (a * torch.softmax(-a / gamma, dim=-1)).sum(-1)


def _backend(device: torch.device) -> ModuleType:
    """The kernels of a device, loaded at the first use: numba compiles for a CPU, Triton for a GPU."""
    if device.type not in ("cpu", "cuda"):
        raise BadInput(
            f"smooth DTW runs on cpu and cuda, not on {device.type}: move the embeddings with .cpu()"
        )
    return import_module(f"hostbot.align._{device.type}")


class _Path(torch.autograd.Function):
    """R(T,N)."""

    @staticmethod
    def forward(ctx: Any, cost: Tensor, n: Tensor, m: Tensor, gamma: float, grad: bool) -> Tensor:
        last, kept = _backend(cost.device).paths(cost, n, m, gamma, grad)
        ctx.save_for_backward(n, m, kept)
        ctx.gamma, ctx.shape = gamma, cost.shape
        return last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, last: Tensor) -> tuple[Tensor | None, ...]:
        n, m, kept = ctx.saved_tensors
        grad = _backend(last.device).unpaths(last, n, m, ctx.gamma, kept, ctx.shape)
        return grad, None, None, None, None


class _Tables(torch.autograd.Function):
    """R and E."""

    @staticmethod
    def forward(
        ctx: Any, cost: Tensor, n: Tensor, m: Tensor, gamma: float, grad: bool
    ) -> tuple[Tensor, Tensor]:
        R, E, kept = _backend(cost.device).tables(cost, n, m, gamma, grad)
        ctx.save_for_backward(n, m, kept)
        ctx.gamma = gamma
        return R, E

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, R: Tensor, E: Tensor) -> tuple[Tensor | None, ...]:
        n, m, kept = ctx.saved_tensors
        return _backend(R.device).untables(R, E, n, m, ctx.gamma, kept), None, None, None, None


class _Scores(torch.autograd.Function):
    """-(R + E - own c) / gamma, the logits of beta, and R(T,N)."""

    @staticmethod
    def forward(
        ctx: Any, cost: Tensor, n: Tensor, m: Tensor, gamma: float, own: float, grad: bool
    ) -> tuple[Tensor, Tensor]:
        z, last, kept = _backend(cost.device).scores(cost, n, m, gamma, own, grad)
        ctx.save_for_backward(n, m, kept)
        ctx.numbers = gamma, own
        return z, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, seed: Tensor, last: Tensor) -> tuple[Tensor | None, ...]:
        n, m, kept = ctx.saved_tensors
        grad = _backend(seed.device).unscores(seed, last, n, m, *ctx.numbers, kept)
        return grad, None, None, None, None, None


def _prepared(
    cost: Tensor, lengths_a: Lengths, lengths_b: Lengths, gamma: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Cost in float32 at least, and both lengths as whole numbers on its device."""
    if cost.ndim != 3 or 0 in cost.shape:
        raise BadInput(f"cost must be [B, T, N] with no side 0, got {list(cost.shape)}")
    if not gamma > 0:
        raise BadInput(f"gamma is a temperature and must be above 0, got {gamma}")
    n, m = (
        checked_lengths(given, len(cost), size, cost.device)
        for given, size in zip((lengths_a, lengths_b), cost.shape[1:], strict=True)
    )
    wide = cost.to(torch.promote_types(cost.dtype, torch.float32))
    return wide, _filled(n, cost, 1), _filled(m, cost, 2)


def _filled(lengths: Tensor | None, cost: Tensor, side: int) -> Tensor:
    whole = cost.shape[side]
    return torch.full((len(cost),), whole, device=cost.device) if lengths is None else lengths.long()


def _wanted(cost: Tensor) -> bool:
    """Whether a gradient may be asked for; inside a Function it is too late to know."""
    return torch.is_grad_enabled() and cost.requires_grad


def smooth_dtw(
    cost: Float[Tensor, "B T N"], lengths_a: Lengths = None, lengths_b: Lengths = None, gamma: float = 1.0
) -> Tables:
    """R and E of eq:sdtw_forward; E is swept from the terminal cell."""
    cost, n, m = _prepared(cost, lengths_a, lengths_b, gamma)
    R, E = _Tables.apply(cost, n, m, gamma, _wanted(cost))  # type: ignore[no-untyped-call]
    return Tables(R=R, E=E)


def path_cost(
    cost: Float[Tensor, "B T N"], lengths_a: Lengths = None, lengths_b: Lengths = None, gamma: float = 1.0
) -> Float[Tensor, " B"]:
    """R(T,N) alone, of eq:sdtw_forward: no table is kept."""
    cost, n, m = _prepared(cost, lengths_a, lengths_b, gamma)
    last: Tensor = _Path.apply(cost, n, m, gamma, _wanted(cost))  # type: ignore[no-untyped-call]
    return last


def logits(
    cost: Float[Tensor, "B T N"],
    lengths_a: Lengths = None,
    lengths_b: Lengths = None,
    config: MatchConfig = MatchConfig(),  # noqa: B008  frozen
) -> tuple[Float[Tensor, "B T N"], Float[Tensor, " B"]]:
    """-(R + E - c) / gamma, of which beta is the softmax, eq:sdtw_beta, and R(T,N).

    c is counted once: R + E holds it twice, and maps made from that step back.
    """
    cost, n, m = _prepared(cost, lengths_a, lengths_b, config.gamma)
    own = 0.0 if config.count_cost_twice else 1.0
    return _Scores.apply(cost, n, m, config.gamma, own, _wanted(cost))  # type: ignore[no-untyped-call]


def beta(
    logits: Float[Tensor, "B T N"], keep: Bool[Tensor, "B T N"] | None = None, dim: int = -1
) -> Float[Tensor, "B T N"]:
    """Soft matching probabilities, eq:sdtw_beta: each row sums to one (each column with dim 1), 0 in the padding."""
    if keep is None:
        return torch.softmax(logits, dim)
    return torch.softmax(logits.masked_fill(~keep, PADDING), dim) * keep


def alignment(
    demo: Float[Tensor, "B T d"],
    robot: Float[Tensor, "B N d"],
    demo_lengths: Lengths = None,
    robot_lengths: Lengths = None,
    config: MatchConfig = MatchConfig(),  # noqa: B008  frozen
) -> Matching:
    """Matching in both directions, eq:sim_cost to eq:sdtw_beta; the reverse one from the transpose of S.

    The tables of a transposed cost are the transposed tables, so that both directions are one batch of any lengths.
    """
    with torch.autocast(demo.device.type, enabled=False):
        S = similarity(demo, robot, config)
        n = checked_lengths(demo_lengths, len(S), S.shape[1], S.device)
        m = checked_lengths(robot_lengths, len(S), S.shape[2], S.device)
        keep = cells(n, m, S.shape)
        both = torch.cat([normalised(S, keep, dim) for dim in (1, 2)])
        if config.begin is not None:
            both = torch.cat([both[:, :, :1].clamp(max=config.begin), both[:, :, 1:]], 2)
        z, last = logits(both, n if n is None else n.repeat(2), m if m is None else m.repeat(2), config)
        there, back = z.chunk(2)
        return Matching(
            demo_to_robot=beta(there, keep, 2),
            robot_to_demo=beta(back, keep, 1).transpose(1, 2),
            demo_path=last[: len(S)],
            robot_path=last[len(S) :],
        )

"""Smooth dynamic time warping, written from the equations: tables R and E, path cost and soft matching.

Legend: B pairs, T demo frames, N robot frames, c(i,j) the cost of matching i with j.
The borders hold 1e9 outside the table (read as real cells, the paper's borders would forbid dwelling on a first
frame). Gradients are exact: the derivative of the weighted mean may be negative, unlike that of a log-sum-exp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from hostbot.align.cost import Lengths, MatchConfig, checked_lengths, normalised, similarity, valid
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


class _Sweep(torch.autograd.Function):
    """One table and its terminal values, from either end."""

    @staticmethod
    def forward(
        ctx: Any, cost: Tensor, n: Tensor, m: Tensor, gamma: float, reverse: bool, table: bool
    ) -> tuple[Tensor, Tensor]:
        from hostbot.align import _cpu

        grad = bool(ctx.needs_input_grad[0])
        out, last, kept = _cpu.sweep(cost, n, m, gamma, reverse=reverse, table=table, grad=grad)
        ctx.save_for_backward(n, m, kept)
        ctx.shape, ctx.reverse, ctx.table = cost.shape, reverse, table
        return out, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, table: Tensor, last: Tensor) -> tuple[Tensor | None, ...]:
        from hostbot.align import _cpu

        n, m, kept = ctx.saved_tensors
        seed = table if ctx.table else None
        grad = _cpu.unsweep(seed, last, n, m, kept, ctx.shape, reverse=ctx.reverse)
        return grad, None, None, None, None, None


def _prepared(
    cost: Tensor, lengths_a: Lengths, lengths_b: Lengths, gamma: float
) -> tuple[Tensor, Tensor, Tensor]:
    if cost.ndim != 3 or 0 in cost.shape:
        raise BadInput(f"cost must be [B, T, N] with no side 0, got {list(cost.shape)}")
    if not gamma > 0:
        raise BadInput(f"gamma is a temperature and must be above 0, got {gamma}")
    wide = cost.to(torch.promote_types(cost.dtype, torch.float32))
    whole = [
        checked_lengths(x, len(cost), size, cost.device)
        for x, size in zip((lengths_a, lengths_b), cost.shape[1:], strict=True)
    ]
    n, m = (
        torch.full((len(cost),), size, device=cost.device) if x is None else x.to(torch.int64)
        for x, size in zip(whole, cost.shape[1:], strict=True)
    )
    return wide, n, m


def smooth_dtw(
    cost: Float[Tensor, "B T N"], lengths_a: Lengths = None, lengths_b: Lengths = None, gamma: float = 1.0
) -> Tables:
    """R and E of eq:sdtw_forward; E is swept from the terminal cell."""
    cost, n, m = _prepared(cost, lengths_a, lengths_b, gamma)
    R, E = (_Sweep.apply(cost, n, m, gamma, reverse, True)[0] for reverse in (False, True))  # type: ignore[no-untyped-call]
    return Tables(R=R, E=E)


def path_cost(
    cost: Float[Tensor, "B T N"], lengths_a: Lengths = None, lengths_b: Lengths = None, gamma: float = 1.0
) -> Float[Tensor, " B"]:
    """R(T,N) alone, of eq:sdtw_forward: no table is kept."""
    cost, n, m = _prepared(cost, lengths_a, lengths_b, gamma)
    _, last = _Sweep.apply(cost, n, m, gamma, False, False)  # type: ignore[no-untyped-call]
    return last


def beta(
    cost: Float[Tensor, "B T N"],
    tables: Tables,
    lengths_a: Lengths = None,
    lengths_b: Lengths = None,
    config: MatchConfig = MatchConfig(),  # noqa: B008  frozen
) -> Float[Tensor, "B T N"]:
    """Soft matching probabilities, eq:sdtw_beta, with c counted once: R + E holds it twice. 0 in the padding."""
    cost, n, m = _prepared(cost, lengths_a, lengths_b, config.gamma)
    total = tables.R + tables.E
    if not config.count_cost_twice:
        total = total - cost
    columns = valid(m, cost.shape[2])[:, None, :]
    rows = valid(n, cost.shape[1])[:, :, None]
    return torch.softmax((-total / config.gamma).masked_fill(~columns, -torch.inf), -1) * rows


def _one_way(
    S: Tensor, lengths_a: Tensor | None, lengths_b: Tensor | None, config: MatchConfig
) -> tuple[Tensor, Tensor]:
    c = normalised(S, lengths_a, lengths_b, config.gamma_f)
    tables = smooth_dtw(c, lengths_a, lengths_b, config.gamma)
    n = torch.full((len(c),), c.shape[1], device=c.device) if lengths_a is None else lengths_a.long()
    m = torch.full((len(c),), c.shape[2], device=c.device) if lengths_b is None else lengths_b.long()
    terminal = tables.R[torch.arange(len(c), device=c.device), n - 1, m - 1]
    return beta(c, tables, lengths_a, lengths_b, config), terminal


def alignment(
    demo: Float[Tensor, "B T d"],
    robot: Float[Tensor, "B N d"],
    demo_lengths: Lengths = None,
    robot_lengths: Lengths = None,
    config: MatchConfig = MatchConfig(),  # noqa: B008  frozen
) -> Matching:
    """Matching in both directions, eq:sim_cost to eq:sdtw_beta; the reverse one from the transpose of S."""
    with torch.autocast(demo.device.type, enabled=False):
        S = similarity(demo, robot, config.kappa)
        lengths_d = checked_lengths(demo_lengths, len(S), S.shape[1], S.device)
        lengths_r = checked_lengths(robot_lengths, len(S), S.shape[2], S.device)
        there, demo_path = _one_way(S, lengths_d, lengths_r, config)
        back, robot_path = _one_way(S.transpose(1, 2), lengths_r, lengths_d, config)
    return Matching(demo_to_robot=there, robot_to_demo=back, demo_path=demo_path, robot_path=robot_path)

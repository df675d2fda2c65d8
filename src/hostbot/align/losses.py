"""The self-supervised alignment objective: cycle consistency and path cost, both directions.

Legend: B pairs, T demo frames, N robot frames, d embedding width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from hostbot.align.cost import PADDING, Lengths, MatchConfig, checked_lengths, valid
from hostbot.align.dtw import Matching, alignment


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """The paper's constants. Its label smoothing of 0.1 has no part in a regression loss and is left out."""

    match: MatchConfig = field(default_factory=MatchConfig)
    tcc_weight: float = 1.0
    dtw_weight: float = 0.3
    """lambda_DTW."""
    variance_weight: float = 0.001
    """lambda of eq:tcc_loss, on log nu."""
    variance_floor: float = 1e-4
    """Smallest nu squared."""
    normalise_indices: bool = False
    """Frame numbers over the sequence's length, as other implementations have them; the paper's are plain."""


@dataclass(frozen=True, kw_only=True)
class AlignmentLoss:
    """Means over the pairs of a batch and the two directions."""

    tcc: Float[Tensor, ""]
    dtw: Float[Tensor, ""]
    total: Float[Tensor, ""]


def cycle_back(
    beta: Float[Tensor, "B T N"],
    there: Float[Tensor, "B T d"],
    other: Float[Tensor, "B N d"],
    lengths: Int[Tensor, " B"] | None,
    kappa: float,
) -> Float[Tensor, "B T T"]:
    """Logits of beta-hat, eq:soft_nn: each frame's soft nearest neighbour in ``other``, matched back to ``there``."""
    back = torch.bmm(torch.bmm(beta, other), (there / kappa).transpose(1, 2))
    return back if lengths is None else back.masked_fill(~valid(lengths, there.shape[1])[:, None, :], PADDING)


class _Moments(torch.autograd.Function):
    """Mean and variance of ``k`` under the softmax of logits, eq:tcc_loss; centred, as k^2 loses the small ones.

    By hand for speed: d mean = p (k - mu), d variance = p ((k - mu)^2 - variance).
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.softmax(logits, -1)
        mu = torch.bmm(p, k[:, :, None])[:, :, 0]
        variance = (k[:, None, :] - mu[:, :, None]).square_().mul_(p).sum(-1)
        ctx.save_for_backward(p, k, mu, variance)
        return mu, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_mu: Tensor, d_variance: Tensor) -> tuple[Tensor, None]:
        p, k, mu, variance = ctx.saved_tensors
        off = k[:, None, :] - mu[:, :, None]
        grad = (off * d_variance[:, :, None]).add_(d_mu[:, :, None]).mul_(off)
        return grad.sub_((d_variance * variance)[:, :, None]).mul_(p), None


def tcc_loss(
    logits: Float[Tensor, "B T T"], lengths: Int[Tensor, " B"] | None, config: LossConfig
) -> Float[Tensor, " B"]:
    """Variance-aware regression of each frame's own number, eq:tcc_loss, a pair at a time."""
    num = logits.shape[1]
    k = torch.arange(num, device=logits.device, dtype=logits.dtype).expand(len(logits), num)
    frames = k.new_full((len(k), 1), num) if lengths is None else lengths[:, None].to(k.dtype)
    if config.normalise_indices:
        k = k / frames
    mu, variance = _Moments.apply(logits, k)  # type: ignore[no-untyped-call]
    variance = variance.clamp_min(config.variance_floor)
    each = (k - mu).square() / variance + config.variance_weight * 0.5 * variance.log()
    if lengths is not None:
        each = torch.where(valid(lengths, num), each, 0.0)
    return each.sum(1) / frames[:, 0]


def matching_loss(
    demo: Float[Tensor, "B T d"],
    robot: Float[Tensor, "B N d"],
    matching: Matching,
    demo_lengths: Lengths = None,
    robot_lengths: Lengths = None,
    config: LossConfig = LossConfig(),  # noqa: B008  frozen
) -> AlignmentLoss:
    """The objective of a matching that is already at hand."""
    beta = matching.demo_to_robot
    n = checked_lengths(demo_lengths, len(beta), beta.shape[1], beta.device)
    m = checked_lengths(robot_lengths, len(beta), beta.shape[2], beta.device)
    with torch.autocast(demo.device.type, enabled=False):
        demo, robot = demo.to(beta.dtype), robot.to(beta.dtype)
        kappa = config.match.kappa
        there = tcc_loss(cycle_back(beta, demo, robot, n, kappa), n, config)
        back = tcc_loss(cycle_back(matching.robot_to_demo, robot, demo, m, kappa), m, config)
        tcc = 0.5 * (there + back).mean()
        frames = (beta.shape[1] if n is None else n) + (beta.shape[2] if m is None else m)
        dtw = 0.5 * ((matching.demo_path + matching.robot_path) / frames).mean()
    return AlignmentLoss(tcc=tcc, dtw=dtw, total=config.tcc_weight * tcc + config.dtw_weight * dtw)


def alignment_loss(
    demo: Float[Tensor, "B T d"],
    robot: Float[Tensor, "B N d"],
    demo_lengths: Lengths = None,
    robot_lengths: Lengths = None,
    config: LossConfig = LossConfig(),  # noqa: B008  frozen
) -> AlignmentLoss:
    """L_align: eq:tcc_loss and eq:d2tw_loss, symmetrised, of padded batches of embeddings."""
    matching = alignment(demo, robot, demo_lengths, robot_lengths, config.match)
    return matching_loss(demo, robot, matching, demo_lengths, robot_lengths, config)

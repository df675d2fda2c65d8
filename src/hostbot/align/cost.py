"""From two embedding sequences to the cost of matching their frames.

Legend: B pairs, T demo frames, N robot frames, d embedding width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hostbot.types import BadInput

Lengths = Int[Tensor, " B"] | Sequence[int] | None
"""Frames of each sequence that count; None where all do."""
PADDING = -1e30
"""Logit of what is padded: nothing in a softmax, and finite, so that a row of it has no NaN."""


@dataclass(frozen=True, kw_only=True)
class MatchConfig:
    """Temperatures of the matching, the paper's by default."""

    kappa: float = 0.1
    """Of squared distances, eq:sim_cost, and of the cycle back, eq:soft_nn."""
    gamma_f: float = 0.1
    """Of the normalisation over demo frames, eq:sim_cost."""
    gamma: float = 1.0
    """Of the smooth minimum, eq:smoothmin, and of beta, eq:sdtw_beta."""
    begin: float | None = None
    """Most that a demo frame costs which is matched with the robot's first: what comes before may be another try. None,
    as in the paper: both begin together, and a first try that failed is matched as if the robot had made one, too."""
    count_cost_twice: bool = False
    """Beta from R + E as printed in eq:sdtw_beta; its maps step back, so that R + E - c is the default."""

    def __post_init__(self) -> None:
        for name in ("kappa", "gamma_f", "gamma"):
            if not getattr(self, name) > 0:
                raise BadInput(f"{name} is a temperature and must be above 0, got {getattr(self, name)}")
        if self.begin is not None and not self.begin > 0:
            raise BadInput(f"begin is a cost and must be above 0, got {self.begin}")


def checked_lengths(
    lengths: Lengths, batch: int, size: int, device: torch.device
) -> Int[Tensor, " B"] | None:
    """Lengths as a tensor on the device, refused where they do not fit 1..size."""
    if lengths is None:
        return None
    found = torch.as_tensor(lengths)
    if found.shape != (batch,) or found.is_floating_point():
        raise BadInput(
            f"lengths must be {batch} whole numbers, got {found.dtype} of shape {tuple(found.shape)}"
        )
    inside = ((found >= 1) & (found <= size)).all()
    if found.is_cuda:
        torch._assert_async(inside, f"a length lies outside 1..{size}")  # no host sync
    elif not inside:
        raise BadInput(f"lengths must lie in 1..{size}, the padded size, got {found.tolist()}")
    return found.to(device)


def valid(lengths: Int[Tensor, " B"], size: int) -> Bool[Tensor, "B size"]:
    """Which places of padded sequences hold a frame."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def similarity(
    demo: Float[Tensor, "B T d"], robot: Float[Tensor, "B N d"], config: MatchConfig
) -> Float[Tensor, "B T N"]:
    """S / gamma_f of eq:sim_cost, in float32 at least: 1 / (kappa gamma_f) multiplies a rounding error by 100."""
    if demo.ndim != 3 or robot.ndim != 3 or demo.shape[::2] != robot.shape[::2]:
        raise BadInput(
            f"embeddings must be [B, T, d] and [B, N, d], got {list(demo.shape)} and {list(robot.shape)}"
        )
    with torch.autocast(demo.device.type, enabled=False):
        wide = torch.promote_types(torch.promote_types(demo.dtype, robot.dtype), torch.float32)
        demo, robot = demo.to(wide), robot.to(wide)
        rate = 1 / (config.kappa * config.gamma_f)
        squares = demo.square().sum(-1)[:, :, None] + robot.square().sum(-1)[:, None, :]
        return torch.baddbmm(squares, demo, robot.transpose(1, 2), beta=-rate, alpha=2 * rate)


def normalised(
    S: Float[Tensor, "B T N"], keep: Bool[Tensor, "B T N"] | None, dim: int = 1
) -> Float[Tensor, "B T N"]:
    """c of eq:sim_cost: log-softmax over one side's frames (dim 1: the demo's), padded ones left out, 0 there."""
    with torch.autocast(S.device.type, enabled=False):
        if keep is None:
            return -torch.log_softmax(S, dim)
        return torch.where(keep, -torch.log_softmax(S.masked_fill(~keep, PADDING), dim), 0.0)


def cells(
    lengths_a: Int[Tensor, " B"] | None, lengths_b: Int[Tensor, " B"] | None, shape: torch.Size
) -> Bool[Tensor, "B T N"] | None:
    """Which cells of padded tables belong to a pair; None where all do."""
    keep = None
    if lengths_a is not None:
        keep = valid(lengths_a, shape[1])[:, :, None]
    if lengths_b is not None:
        columns = valid(lengths_b, shape[2])[:, None, :]
        keep = columns if keep is None else keep & columns
    return None if keep is None else keep.expand(shape)


def cost(
    demo: Float[Tensor, "B T d"],
    robot: Float[Tensor, "B N d"],
    demo_lengths: Lengths = None,
    robot_lengths: Lengths = None,
    config: MatchConfig = MatchConfig(),  # noqa: B008  frozen
) -> Float[Tensor, "B T N"]:
    """What matching demo frame i with robot frame j costs, eq:sim_cost.

    It is normalised over the demo's frames alone: the reverse direction is ``cost(robot, demo)``, not the transpose.
    """
    S = similarity(demo, robot, config)
    n = checked_lengths(demo_lengths, len(S), S.shape[1], S.device)
    m = checked_lengths(robot_lengths, len(S), S.shape[2], S.device)
    return normalised(S, cells(n, m, S.shape))

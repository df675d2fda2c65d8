"""Two looks at one video must find each other, frame by frame: through other cameras, or recoloured.

The paper starts from an encoder that knows pictures; one from scratch has to learn first what makes two pictures the
same moment, and a video is its own teacher: its third-person frames against its wrist cameras' of the same instants,
or the same frames twice, changed differently. No labels. Off in the paper's recipe.

Legend: B videos, T steps, d embedding width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hostbot.align.cost import PADDING, valid


@dataclass(frozen=True, kw_only=True)
class TwiceConfig:
    """How sharply frames must find themselves."""

    temperature: float = 0.05
    """Of squared distances."""
    frames: float = 1.5
    """Standard deviation in time of what counts as the same moment."""


def two_looks_loss(
    first: Float[Tensor, "B T d"],
    second: Float[Tensor, "B T d"],
    times: Int[Tensor, "B T"],
    lengths: Int[Tensor, " B"],
    config: TwiceConfig,
) -> Float[Tensor, ""]:
    """Cross-entropy between nearness on the sphere and nearness in time, both ways, mean over videos."""
    with torch.autocast(first.device.type, enabled=False):
        there = valid(lengths, first.shape[1])
        when = times.float()
        apart = (when[:, :, None] - when[:, None]) / config.frames
        wanted = (-0.5 * apart.square()).masked_fill(~there[:, None], PADDING).softmax(2)
        scores = (2 * first.float() @ second.float().transpose(1, 2) - 2) / config.temperature
        total = first.new_zeros(len(first))
        for each in (scores, scores.transpose(1, 2)):
            found = each.masked_fill(~there[:, None], PADDING).log_softmax(2)
            missed = -(wanted * found).sum(2)
            total = total + 0.5 * torch.where(there, missed, 0.0).sum(1) / lengths
        return total.mean()

"""Tell tasks apart: a pair's videos lie closer to each other on average than to videos of the batch's other tasks.

The paper's losses look inside one pair only, so nothing keeps different tasks from sharing one curve, and a wrong-task
pair is matched as closely as a right one. Off in the paper's recipe.

Legend: B pairs over all processes, T steps, d embedding width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from hostbot.align.cost import valid


def video_means(points: Float[Tensor, "B T d"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B d"]:
    """The direction of a video's mean embedding."""
    kept = points * valid(lengths, points.shape[1])[..., None]
    return F.normalize(kept.sum(1), dim=-1)


def contrast_loss(
    demo: Float[Tensor, "B d"], robot: Float[Tensor, "B d"], tasks: Int[Tensor, " B"], temperature: float
) -> Float[Tensor, ""]:
    """InfoNCE both ways; another pair of the same task is neither friend nor foe."""
    with torch.autocast(demo.device.type, enabled=False):
        scores = demo.float() @ robot.float().T / temperature
    own = torch.arange(len(tasks), device=tasks.device)
    foes = tasks[:, None] != tasks[None, :]
    scores = scores.masked_fill(~foes & (own[:, None] != own), -torch.inf)
    return 0.5 * (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own))

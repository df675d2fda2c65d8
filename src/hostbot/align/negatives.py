"""Tell tasks apart: a frame lies closer to its pair's other video than to the videos of the batch's other tasks.

The paper's losses look inside one pair only, so nothing keeps different tasks from sharing one curve, and a wrong-task
pair is matched as closely as a right one. Off in the paper's recipe.

Legend: B pairs over all processes, T steps of demos, N of executions, d embedding width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hostbot.align.cost import PADDING, valid


def negatives_loss(
    demo: Float[Tensor, "B T d"],
    robot: Float[Tensor, "B N d"],
    demo_lengths: Int[Tensor, " B"],
    robot_lengths: Int[Tensor, " B"],
    tasks: Int[Tensor, " B"],
    temperature: float,
) -> Float[Tensor, ""]:
    """Per frame, softplus of how much nearer an average video of another task is than the pair's own.

    Nearness is the log-sum-exp over a video's frames; other pairs of the same task are neither friend nor foe.
    """
    foes = tasks[:, None] != tasks[None, :]
    if not foes.any():
        return demo.new_zeros(())
    with torch.autocast(demo.device.type, enabled=False):
        flat_demo, flat_robot = demo.float().flatten(0, 1), robot.float().flatten(0, 1)
        scores = (2 * flat_demo @ flat_robot.T - 2) / temperature
    scores = scores.view(*demo.shape[:2], *robot.shape[:2])
    ours, theirs = valid(robot_lengths, robot.shape[1]), valid(demo_lengths, demo.shape[1])
    there = _nearer(scores.masked_fill(~ours, PADDING).logsumexp(3), foes)
    across = scores.permute(2, 3, 0, 1).masked_fill(~theirs, PADDING).logsumexp(3)
    return 0.5 * (there[theirs].mean() + _nearer(across, foes)[ours].mean())


def _nearer(near: Float[Tensor, "B T B"], foes: Bool[Tensor, "B B"]) -> Float[Tensor, "B T"]:
    """Softplus of the mean over foes (of exponentials) against the own partner's; 0 for who has no foe."""
    own = near.diagonal(dim1=0, dim2=2).T
    others = near.masked_fill(~foes[:, None], PADDING).logsumexp(2)
    count = foes.sum(1)[:, None]
    return torch.where(count > 0, F.softplus(others - count.clamp(min=1).log() - own), 0.0)

"""What one training step minimises: L_align of its pairs, and the two terms of the small recipe.

Legend: B pairs, T steps of a clip, d embedding width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from hostbot.align.distributed import World
from hostbot.align.draw import Batch
from hostbot.align.encoders import FrameEncoder
from hostbot.align.look import applied
from hostbot.align.losses import alignment_loss
from hostbot.align.negatives import negatives_loss
from hostbot.align.recipe import TrainConfig
from hostbot.align.twice import two_looks_loss


@dataclass(frozen=True, kw_only=True)
class StepLoss:
    """The parts of one step's loss."""

    tcc: Float[Tensor, ""]
    dtw: Float[Tensor, ""]
    two_looks: Float[Tensor, ""]
    negatives: Float[Tensor, ""]
    total: Float[Tensor, ""]


def step_loss(encoder: FrameEncoder, batch: Batch, config: TrainConfig, world: World) -> StepLoss:
    """Of demonstrations and executions that stand one after the other in one batch."""
    clips, second = batch.clips.to(world.device), batch.second.to(world.device)
    clips = applied(clips, batch.looks.to(world.device))
    choices = [clips.present]
    if config.two_looks:
        choices += [clips.present & ~second, clips.present & second]
    with torch.autocast(world.device.type, torch.bfloat16, enabled=config.bf16):
        points, *looks = encoder(clips, torch.stack(choices))
    (demo, robot), (n, m) = points.chunk(2), clips.num_picked.chunk(2)
    found = alignment_loss(demo, robot, n, m, config.loss)
    twice = negatives = found.total.new_zeros(())
    if config.two_looks:
        twice = two_looks_loss(looks[0], looks[1], clips.picked, clips.num_picked, config.twice)
    if config.negatives:
        most = config.draw.max_steps
        ours = (_padded(demo, most), _padded(robot, most), n, m, batch.tasks.to(world.device))
        demos, robots, n, m, tasks = map(world.gather, ours)
        negatives = negatives_loss(demos, robots, n, m, tasks, config.negatives_temperature)
    total = found.total + config.two_looks * twice + config.negatives * negatives
    return StepLoss(tcc=found.tcc, dtw=found.dtw, two_looks=twice, negatives=negatives, total=total)


def _padded(points: Float[Tensor, "B T d"], num: int) -> Float[Tensor, "B num d"]:
    """As long as any clip may be: processes gather tensors of one shape."""
    return pad(points, (0, 0, 0, num - points.shape[1]))

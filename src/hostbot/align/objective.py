"""What one training step minimises: L_align of its pairs, the two terms of the small recipe, what is known of hands.

The terms without labels shape how things look and nothing else: where they shaped postures too, both got worse.

Legend: B pairs, T steps of a clip, d embedding width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from hostbot.align.distributed import World
from hostbot.align.draw import Batch
from hostbot.align.encoders import Clips, FrameEncoder
from hostbot.align.look import applied
from hostbot.align.losses import alignment_loss
from hostbot.align.negatives import negatives_loss
from hostbot.align.posture import posture_loss, seen_spots, spots_loss
from hostbot.align.recipe import TrainConfig
from hostbot.align.small import SmallFrameEncoder, Told
from hostbot.align.twice import two_looks_loss
from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class StepLoss:
    """The parts of one step's loss."""

    tcc: Float[Tensor, ""]
    dtw: Float[Tensor, ""]
    two_looks: Float[Tensor, ""]
    negatives: Float[Tensor, ""]
    posture: Float[Tensor, ""]
    total: Float[Tensor, ""]


def step_loss(encoder: FrameEncoder, batch: Batch, config: TrainConfig, world: World) -> StepLoss:
    """Of demonstrations and executions that stand one after the other in one batch."""
    clips, second = batch.clips.to(world.device), batch.second.to(world.device)
    clips = applied(clips, batch.looks.to(world.device))
    choices = [clips.present]
    if config.two_looks:
        choices += [clips.present & ~second, clips.present & second]
    with torch.autocast(world.device.type, torch.bfloat16, enabled=config.bf16):
        seen = _seen(encoder, clips, torch.stack(choices), config)
    points, *looks = encoder.looks(seen.points if isinstance(seen, Told) else seen)
    (demo, robot), (n, m) = points.chunk(2), clips.num_picked.chunk(2)
    found = alignment_loss(demo, robot, n, m, config.loss)
    twice = negatives = posture = found.total.new_zeros(())
    if config.two_looks:
        twice = two_looks_loss(looks[0], looks[1], clips.picked, clips.num_picked, config.twice)
    if config.negatives:
        most = config.draw.max_steps
        ours = (_padded(demo, most), _padded(robot, most), n, m, batch.tasks.to(world.device))
        demos, robots, n, m, tasks = map(world.gather, ours)
        negatives = negatives_loss(demos, robots, n, m, tasks, config.negatives_temperature)
    if isinstance(seen, Told):
        posture = _known(seen, batch, clips)
    total = found.total + config.two_looks * twice + config.negatives * negatives + config.posture * posture
    return StepLoss(
        tcc=found.tcc, dtw=found.dtw, two_looks=twice, negatives=negatives, posture=posture, total=total
    )


def _seen(
    encoder: FrameEncoder, clips: Clips, views: Bool[Tensor, "K B V"], config: TrainConfig
) -> Float[Tensor, "K B T d"] | Told:
    """Embeddings, with what is told beside them where that is to be learned."""
    if not config.posture:
        return encoder(clips, views)
    if not (isinstance(encoder, SmallFrameEncoder) and encoder.config.glimpse):
        raise BadInput("postures are learned by an encoder that looks closely: give SmallConfig a glimpse")
    return encoder(clips, views, telling=True)


def _known(seen: Told, batch: Batch, clips: Clips) -> Float[Tensor, ""]:
    """How far what is told lies from what is known: from all views, from the first look alone, and where hands are."""
    if batch.posture is None or batch.spots is None:
        raise BadInput("postures are learned from annotated datasets, and these are not")
    device, there = seen.points.device, clips.counted()
    wanted, looks = batch.posture.to(device), batch.looks.to(device)
    mirror, scale, centre = looks[:, None, :, 4], looks[:, None, :, 5], looks[:, None, :, 6:]
    spots = seen_spots(batch.spots.to(device), mirror, scale, centre)
    pictures = there[:, :, None] & clips.present[:, None]
    told = [posture_loss(one, wanted, there) for one in seen.posture[:2]]
    return torch.stack(told).mean() + spots_loss(seen.spots, spots, pictures)


def _padded(points: Float[Tensor, "B T d"], num: int) -> Float[Tensor, "B num d"]:
    """As long as any clip may be: processes gather tensors of one shape."""
    return pad(points, (0, 0, 0, num - points.shape[1]))

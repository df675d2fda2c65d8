"""The small frame encoder, trained from scratch: a convolutional network a view, pooled over views, no positions.

Legend: B clips, T steps, V views, M = B T V pictures, c channels, D width.
Nothing here knows when a frame was taken, only what its nearest neighbours show: a clock cannot be expressed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from hostbot.align.encoders import Clips, FrameEncoder
from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class SmallConfig:
    """Sizes of the small encoder."""

    size: int = 96
    """Pixels a side of a frame."""
    channels: tuple[int, ...] = (24, 48, 96, 160)
    """Of each stage; every stage halves the picture."""
    depth: int = 2
    """Residual blocks a stage."""
    width: int = 256
    temporal: int = 1
    """Residual convolutions over three neighbouring steps; 0 sees single frames only."""
    embedding: int = 128
    pictures_at_once: int = 256
    """In one pass of the trunk when nothing is learned, so that memory does not grow with a video's length."""

    def __post_init__(self) -> None:
        shrink = 2 ** len(self.channels)
        if self.size % shrink or any(c % 8 for c in self.channels):
            raise BadInput(
                f"size {self.size} must be a multiple of {shrink} and channels {self.channels} of 8 each"
            )


class Residual(nn.Module):
    """Two 3x3 convolutions; groups are normalised on their own, so that a picture's code is its own affair."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, channels), nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, channels), nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Float[Tensor, "M c h w"]) -> Float[Tensor, "M c h w"]:
        """Add what the convolutions see."""
        return x + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))


class Neighbours(nn.Module):
    """A residual convolution over steps t-1, t, t+1; a clip's first and last step stand in beyond its ends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(3 * width, width)

    def forward(self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T D"]:
        """Mix each step with its neighbours."""
        normed = self.norm(x)
        steps = torch.arange(x.shape[1], device=x.device)
        last = (lengths - 1)[:, None]
        taps = [self._at(normed, torch.minimum((steps + o).clamp(min=0)[None], last)) for o in (-1, 0, 1)]
        return x + F.silu(self.mix(torch.cat(taps, -1)))

    @staticmethod
    def _at(x: Tensor, index: Int[Tensor, "B T"]) -> Tensor:
        return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


class SmallFrameEncoder(FrameEncoder):
    """Pictures to features, features of the views there are to one, neighbours, projection."""

    def __init__(self, config: SmallConfig) -> None:
        super().__init__(config.width, config.embedding)
        self.config, self.size = config, config.size
        stages: list[nn.Module] = []
        for before, after in zip((3, *config.channels), config.channels, strict=False):
            stages.append(nn.Conv2d(before, after, 3, stride=2, padding=1))
            stages += [Residual(after) for _ in range(config.depth if before > 3 else 0)]
        self.trunk = nn.Sequential(*stages, nn.GroupNorm(8, config.channels[-1]), nn.SiLU())
        side = config.size // 2 ** len(config.channels)
        # Where things are matters as much as what they are, so the map is flattened, not averaged.
        self.squeeze = nn.Conv2d(config.channels[-1], 32, 1)
        self.flat = nn.Linear(32 * side * side, config.width)
        self.average = nn.Linear(config.channels[-1], config.width)
        self.score = nn.Linear(config.width, 1)
        self.neighbours = nn.ModuleList(Neighbours(config.width) for _ in range(config.temporal))
        self.norm = nn.LayerNorm(config.width)

    def units(self) -> list[nn.Module]:
        """The trunk holds nearly all parameters."""
        return [self.trunk]

    def pictures(self, frames: UInt8[Tensor, "M h w 3"]) -> Float[Tensor, "M D"]:
        """Features of single pictures."""
        maps = self.trunk(frames.permute(0, 3, 1, 2).to(self.flat.weight.dtype) / 127.5 - 1)
        return F.silu(self.flat(self.squeeze(maps).flatten(1)) + self.average(maps.mean((2, 3))))

    def hidden(self, clips: Clips) -> Float[Tensor, "B T D"]:
        """One representation a step, whatever number of views the clip has; only pictures that count are looked at.

        One pass for all while gradients are wanted: sharded processes must run the trunk equally often.
        """
        counted = clips.counted()
        pictures = clips.frames[counted]
        at_once = len(pictures) if torch.is_grad_enabled() else self.config.pictures_at_once
        seen = torch.cat([self.pictures(chunk) for chunk in pictures.split(at_once)])
        views = seen.new_zeros(*counted.shape, seen.shape[-1]).masked_scatter(counted[..., None], seen)
        x = pool_views(views, self.score(views).squeeze(-1), clips.present)
        for layer in self.neighbours:
            x = layer(x, clips.lengths)
        return self.norm(x)


def pool_views(
    views: Float[Tensor, "B T V D"], scores: Float[Tensor, "B T V"], present: Bool[Tensor, "B V"]
) -> Float[Tensor, "B T D"]:
    """The views' weighted mean; absent ones weigh nothing."""
    weights = scores.masked_fill(~present[:, None], float("-inf")).softmax(-1)
    return (weights[..., None] * views).sum(2)

"""A close look at hands: where they are is found from the whole picture, what is there is seen at full resolution.

A hand is a tenth of a picture wide and how far it is open is two pixels; a network that pools over the picture loses
them. A glimpse is a square cut from it, and from the pictures just before and after at the same place, so that what
moves in it is the hand's own motion.

Legend: M pictures, G glimpses of each, c channels of the picture's maps, s pixels a side of a glimpse, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from hostbot.align.encoders import Clips
from hostbot.align.posture import GLIMPSES, POSTURE

_CELLS = 6
"""Of the picture's maps, a side, from which places are told."""
_FEW = 16
_KEPT = 32
"""Channels kept before maps are laid flat."""


def corners(spots: Float[Tensor, "M G 2"], size: int, side: int) -> Int[Tensor, "M G 2"]:
    """Column and row of the first pixel of glimpses around places that are told from -1 to 1; all lie inside."""
    middle = 0.5 * (spots.float() + 1) * size
    return (middle - 0.5 * side).round().long().clamp(0, size - side)


def cut(
    clips: Clips, places: Int[Tensor, "M 3"], first: Int[Tensor, "M G 2"], side: int, offset: int
) -> UInt8[Tensor, "M G s s 3"]:
    """Squares of pictures, or of those so many frames later; nothing but them is read."""
    clip, step, view = (x[:, None, None, None] for x in places.unbind(1))
    frame = torch.minimum((clips.picked[clip, step] + offset).clamp(min=0), clips.lengths[clip] - 1)
    along = torch.arange(side, device=first.device)
    columns, rows = (first[..., k, None] + along for k in (0, 1))
    return clips.frames[clip, frame, view, rows[:, :, :, None], columns[:, :, None, :]]


class Glimpses(nn.Module):
    """A branch of its own beside the embedding's: finds where to look, looks, and tells what hands do."""

    def __init__(
        self, channels: int, trunk: nn.Module, seen: int, side: int, near: tuple[int, ...], width: int
    ) -> None:
        super().__init__()
        self.side, self.near, self.trunk = side, near, trunk
        self.few = nn.Conv2d(channels, _FEW, 1)
        self.find = nn.Linear(_FEW * _CELLS**2, 64)
        self.point = nn.Linear(64, 2 * GLIMPSES)
        self.keep = nn.Conv2d(seen, _KEPT, 1)
        self.close = nn.Linear(_KEPT * (side // 8) ** 2, width)
        self.squeeze = nn.Linear(2 * channels, width)
        self.gate = nn.Linear(width, 1)
        self.mix = nn.Linear(width, width)
        self.tell = nn.Linear(width, len(POSTURE))

    def spots(self, maps: Float[Tensor, "M c h w"]) -> Float[Tensor, "M G 2"]:
        """Where hands are, the one further left first: right and down, from -1 to 1."""
        cells = F.adaptive_avg_pool2d(self.few(maps), _CELLS).flatten(1)
        return self.point(F.gelu(self.find(cells))).float().unflatten(1, (GLIMPSES, 2))

    def forward(
        self,
        clips: Clips,
        places: Int[Tensor, "M 3"],
        maps: Float[Tensor, "M c h w"],
        pooled: Float[Tensor, "M 2c"],
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M G 2"]]:
        """What is seen of hands, from afar and closely, and where that was; which pixels are cut has no gradient."""
        spots = self.spots(maps)
        first = corners(spots.detach(), clips.frames.shape[3], self.side)
        seen = torch.cat([cut(clips, places, first, self.side, offset) for offset in self.near], -1)
        pixels = seen.flatten(0, 1).permute(0, 3, 1, 2).to(maps.dtype) / 255
        kept = F.gelu(self.keep(self.trunk(pixels))).flatten(1)
        told = self.close(kept).float()
        each = F.gelu(F.layer_norm(told, told.shape[-1:])).unflatten(0, (len(places), GLIMPSES))
        return each.mean(1) + F.gelu(self.squeeze(pooled)).float(), spots

    def posture(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n P"]:
        """What hands do, in float32 like the projection."""
        with torch.autocast(hidden.device.type, enabled=False):
            return self.tell(hidden.float())

"""The small frame encoder, trained from scratch: a convolutional network a view, pooled over views, no positions.

Legend: B clips, T steps, V views, M pictures, K choices of views, c channels, D width.
A picture is seen together with some of its neighbours in time, stacked as channels: what moves matters as much as
where things are. Nothing here knows when a frame was taken: a clock cannot be expressed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from hostbot.align.encoders import Clips, FrameEncoder
from hostbot.align.hands import HandReader, HandsConfig, Told
from hostbot.align.layers import ChannelNorm, Residual, by_view, kind_of, pool_views
from hostbot.align.posture import on_circles
from hostbot.types import BadInput

_HIDDEN = 256
_STRIDE = 4
_SHRINK = 4 * _STRIDE


@dataclass(frozen=True, kw_only=True)
class SmallConfig:
    """Sizes of the small encoder."""

    size: int = 96
    """Pixels a side of a frame."""
    width: int = 24
    """Half the channels after the first convolution; twice and four times as many follow."""
    offsets: tuple[int, ...] = (-6, -2, 0, 2, 6)
    """Which frames are seen with each, counted from it."""
    embedding: int = 128
    pictures_at_once: int = 128
    """In one pass of the trunk when nothing is learned, so that memory does not grow with a video's length."""
    hands: HandsConfig | None = None
    """Of the network that reads hands beside it, where there is one."""

    def __post_init__(self) -> None:
        if self.size % _SHRINK or self.width < 1 or not self.offsets:
            raise BadInput(
                f"size {self.size} must be a multiple of {_SHRINK}, width {self.width} at least 1, "
                f"and there must be offsets, got {self.offsets}"
            )


def _trunk(pictures: int, width: int) -> nn.Sequential:
    """Maps at a quarter, an eighth and a sixteenth of the picture's side."""
    stem = nn.Conv2d(3 * pictures, 2 * width, 2 * _STRIDE, stride=_STRIDE, padding=_STRIDE // 2)
    layers: list[nn.Module] = [stem, ChannelNorm(2 * width), Residual(2 * width), Residual(2 * width)]
    for channels in (4 * width, 8 * width):
        layers.append(nn.Conv2d(channels // 2, channels, 3, stride=2, padding=1))
        layers += [Residual(channels), Residual(channels)]
    return nn.Sequential(*layers, ChannelNorm(8 * width))


class SmallFrameEncoder(FrameEncoder):
    """Pictures to features, features of the chosen views to one, a last layer, projection."""

    def __init__(self, config: SmallConfig) -> None:
        super().__init__(_HIDDEN, config.embedding, bias=True)
        self.config, self.size = config, config.size
        self.trunk = _trunk(len(config.offsets), config.width)
        self.role = nn.Embedding(2, 16 * config.width)
        self.squeeze = nn.Linear(16 * config.width, _HIDDEN)
        self.gate = nn.Linear(_HIDDEN, 1)
        self.mix = nn.Linear(_HIDDEN, _HIDDEN)
        nn.init.zeros_(self.role.weight)
        self.hands = HandReader(config.hands, config.size) if config.hands else None

    def units(self) -> list[nn.Module]:
        """The trunk holds nearly all parameters."""
        return [self.trunk]

    def features(self, clips: Clips, places: Int[Tensor, "M 3"]) -> Float[Tensor, "M D"]:
        """Features of single pictures and their neighbours; a camera on a hand is told from one beside the scene."""
        seen = torch.cat([clips.pictures(places, offset) for offset in self.config.offsets], -1)
        maps = self.trunk(seen.permute(0, 3, 1, 2).to(kind_of(self.role.weight)) / 255)
        pooled = torch.cat([maps.mean((2, 3)), maps.amax((2, 3))], 1).float()
        return F.gelu(self.squeeze(pooled + self.role(clips.riding[places[:, 0], places[:, 2]].long())))

    def hidden(self, clips: Clips, views: Bool[Tensor, "K B V"]) -> Float[Tensor, "K B T D"]:
        """One representation a step, whatever the number of views; only pictures that count are looked at, once.

        One pass for all while gradients are wanted: sharded processes must run the trunk equally often.
        """
        places = clips.places(views.any(0))
        at_once = len(places) if torch.is_grad_enabled() else self.config.pictures_at_once
        seen = torch.cat([self.features(clips, chunk) for chunk in places.split(at_once)]).float()
        views_of = by_view(seen, places, clips, views.shape[-1])
        pooled = pool_views(views_of, self.gate(views_of).squeeze(-1).float(), views)
        return F.gelu(self.mix(F.layer_norm(pooled, pooled.shape[-1:])))

    def forward(self, clips: Clips, views: Bool[Tensor, "K B V"] | None = None) -> Float[Tensor, "*K B T d"]:
        """eq:embedding; where hands are read, their posture stands beside it on the same sphere."""
        found = super().forward(clips, views)
        if self.hands is None:
            return found
        posture = self.told(clips, clips.present[None] if views is None else views).posture
        share = self.hands.config.share
        beside = on_circles(posture[0] if views is None else posture)
        return torch.cat([(1 - share) ** 0.5 * found, share**0.5 * beside], -1)

    def told(self, clips: Clips, views: Bool[Tensor, "K B V"]) -> Told:
        """What the reader of hands tells of all picked steps."""
        assert self.hands is not None
        return self.hands(clips, views, self.config.pictures_at_once)

    def looks(self, points: Float[Tensor, "*n d"]) -> Float[Tensor, "*n e"]:
        """The embedding without the posture: every task has the same postures, so that they tell no tasks apart."""
        if self.hands is None:
            return points
        return points[..., : self.config.embedding] / (1 - self.hands.config.share) ** 0.5

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
from hostbot.align.glimpse import Glimpses
from hostbot.align.posture import GLIMPSES, on_circles
from hostbot.types import BadInput

_HIDDEN = 256
_STRIDE, _CLOSE = 4, 2
"""Of the first convolution, over a picture and over a close look."""
_SHRINK, _NARROW = 4 * _STRIDE, 4 * _CLOSE


CLOSE_LOOKS = ("glimpse", "near", "glimpse_width", "telling")
"""Settings that matter to an encoder that looks closely, and to no other."""


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
    glimpse: int = 0
    """Pixels a side of a close look at a hand; 0: no close looks, and nothing told of postures."""
    near: tuple[int, ...] = (-4, -2, -1, 0, 1, 2, 4)
    """Which frames a close look sees, counted from its own."""
    glimpse_width: int = 12
    telling: float = 0.7
    """Share of a point that the posture makes up, the rest being the embedding's."""

    def __post_init__(self) -> None:
        if self.glimpse % _NARROW or self.glimpse > self.size or not self.near or not 0 <= self.telling < 1:
            raise BadInput(
                f"glimpse {self.glimpse} must be a multiple of {_NARROW} up to size {self.size}, there must be near "
                f"frames, got {self.near}, and telling is a share below 1, got {self.telling}"
            )
        if self.size % _SHRINK or self.width < 1 or not self.offsets:
            raise BadInput(
                f"size {self.size} must be a multiple of {_SHRINK}, width {self.width} at least 1, "
                f"and there must be offsets, got {self.offsets}"
            )


class ChannelNorm(nn.LayerNorm):
    """Each place of a map normalised over its channels, so that a picture's code is its own affair.

    In the type of what comes in: autocast would turn every map into float32 and back, which costs more than it gives.
    """

    def forward(self, x: Float[Tensor, "M c h w"]) -> Float[Tensor, "M c h w"]:
        """Normalise."""
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
            found = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, weight, bias, self.eps)
        return found.permute(0, 3, 1, 2)


class Residual(nn.Module):
    """Two 3x3 convolutions; the second begins small, so that a deep stack begins near the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = ChannelNorm(channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.conv2.bias)  # type: ignore[arg-type]
        with torch.no_grad():
            self.conv2.weight.mul_(0.3)

    def forward(self, x: Float[Tensor, "M c h w"]) -> Float[Tensor, "M c h w"]:
        """Add what the convolutions see."""
        return x + self.conv2(F.gelu(self.conv1(self.norm(x))))


def _trunk(pictures: int, width: int, stride: int = _STRIDE, deep: int = 2) -> nn.Sequential:
    """Maps at a part of the picture's side, half and a quarter of that."""
    stem = nn.Conv2d(3 * pictures, 2 * width, 2 * stride, stride=stride, padding=stride // 2)
    layers: list[nn.Module] = [stem, ChannelNorm(2 * width), *(Residual(2 * width) for _ in range(deep))]
    for channels in (4 * width, 8 * width):
        layers.append(nn.Conv2d(channels // 2, channels, 3, stride=2, padding=1))
        layers += [Residual(channels) for _ in range(deep)]
    return nn.Sequential(*layers, ChannelNorm(8 * width))


@dataclass(frozen=True, kw_only=True)
class Told:
    """Embeddings, and what an encoder that looks closely says besides."""

    points: Float[Tensor, "K B T d"]
    posture: Float[Tensor, "K B T P"]
    spots: Float[Tensor, "B T V G 2"]
    """Where hands were found in each view; 0 in views that were not looked at."""


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
        if config.glimpse:
            self.glimpses = _glimpses(config)

    def units(self) -> list[nn.Module]:
        """The trunk holds nearly all parameters."""
        return [self.trunk]

    def features(
        self, clips: Clips, places: Int[Tensor, "M 3"]
    ) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M G 2"]]:
        """Features of single pictures and their neighbours, and where hands are in them.

        A camera on a hand is told from one beside the scene.
        """
        seen = torch.cat([clips.pictures(places, offset) for offset in self.config.offsets], -1)
        maps = self.trunk(seen.permute(0, 3, 1, 2).to(_kind(self.role.weight)) / 255)
        pooled = torch.cat([maps.mean((2, 3)), maps.amax((2, 3))], 1).float()
        pooled = pooled + self.role(clips.riding[places[:, 0], places[:, 2]].long())
        whole = F.gelu(self.squeeze(pooled)).float()
        if not self.config.glimpse:
            return whole, whole.new_zeros(len(places), GLIMPSES, 2)
        close, spots = self.glimpses(clips, places, maps, pooled)
        return torch.cat([whole, close], 1), spots

    def observed(
        self, clips: Clips, views: Bool[Tensor, "K B V"]
    ) -> tuple[Float[Tensor, "K B T D"], Float[Tensor, "B T V G 2"]]:
        """One representation a step, whatever the number of views; only pictures that count are looked at, once.

        One pass for all while gradients are wanted: sharded processes must run the trunk equally often.
        """
        places = clips.places(views.any(0))
        at_once = len(places) if torch.is_grad_enabled() else self.config.pictures_at_once
        parts = [self.features(clips, chunk) for chunk in places.split(at_once)]
        seen, spots = (torch.cat(part) for part in zip(*parts, strict=True))
        by_view, where = (_by_view(x, places, clips, views.shape[-1]) for x in (seen, spots))
        whole, *close = by_view.split(_HIDDEN, -1)
        found = [_mixed(whole, views, self.gate, self.mix)]
        found += [_mixed(x, views, self.glimpses.gate, self.glimpses.mix).float() for x in close]
        return torch.cat(found, -1), where

    def hidden(self, clips: Clips, views: Bool[Tensor, "K B V"]) -> Float[Tensor, "K B T D"]:
        """One representation a step."""
        return self.observed(clips, views)[0]

    def points(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n d"]:
        """eq:embedding; with close looks, the posture stands beside it on the same sphere."""
        found = super().points(hidden[..., :_HIDDEN])
        if not self.config.glimpse:
            return found
        share = self.config.telling
        return torch.cat([(1 - share) ** 0.5 * found, share**0.5 * on_circles(self.told(hidden))], -1)

    def looks(self, points: Float[Tensor, "*n d"]) -> Float[Tensor, "*n e"]:
        """The embedding without the posture: every task has the same postures, so that they tell no tasks apart."""
        if not self.config.glimpse:
            return points
        return points[..., : self.config.embedding] / (1 - self.config.telling) ** 0.5

    def told(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n P"]:
        """The posture."""
        return self.glimpses.posture(hidden[..., _HIDDEN:])

    def forward(  # type: ignore[override]
        self, clips: Clips, views: Bool[Tensor, "K B V"] | None = None, *, telling: bool = False
    ) -> Float[Tensor, "*K B T d"] | Told:
        """Embeddings; of each of K choices of views with all that is told beside them, if asked for."""
        if not telling:
            return super().forward(clips, views)
        assert views is not None
        hidden, spots = self.observed(clips, views)
        return Told(points=self.points(hidden), posture=self.told(hidden), spots=spots)


def _glimpses(config: SmallConfig) -> Glimpses:
    close = _trunk(len(config.near), config.glimpse_width, _CLOSE, deep=1)
    side, near = config.glimpse, config.near
    return Glimpses(8 * config.width, close, 8 * config.glimpse_width, side, near, _HIDDEN)


def _mixed(
    by_view: Float[Tensor, "B T V D"], views: Bool[Tensor, "K B V"], gate: nn.Module, mix: nn.Module
) -> Float[Tensor, "K B T D"]:
    pooled = pool_views(by_view, gate(by_view).squeeze(-1).float(), views)
    return F.gelu(mix(F.layer_norm(pooled, pooled.shape[-1:])))


def _by_view(
    seen: Float[Tensor, "M *n"], places: Int[Tensor, "M 3"], clips: Clips, num_views: int
) -> Float[Tensor, "B T V *n"]:
    """By clip, step and view; 0 where nothing was looked at."""
    empty = seen.new_zeros(*clips.picked.shape, num_views, *seen.shape[1:])
    return empty.index_put(tuple(places.unbind(1)), seen)


def _kind(weight: Tensor) -> torch.dtype:
    """What the convolutions compute in: pictures go there at once, not by way of float32."""
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def pool_views(
    by_view: Float[Tensor, "B T V D"], gates: Float[Tensor, "B T V"], views: Bool[Tensor, "K B V"]
) -> Float[Tensor, "K B T D"]:
    """The views' weighted mean for each choice of them; the others weigh nothing."""
    weights = gates.clamp(-8, 8).masked_fill(~views[:, :, None], -torch.inf).softmax(-1)
    return (weights[..., None] * by_view).sum(-2)

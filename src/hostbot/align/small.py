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

    def __post_init__(self) -> None:
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

    def units(self) -> list[nn.Module]:
        """The trunk holds nearly all parameters."""
        return [self.trunk]

    def features(self, clips: Clips, places: Int[Tensor, "M 3"]) -> Float[Tensor, "M D"]:
        """Features of single pictures and their neighbours; a camera on a hand is told from one beside the scene."""
        seen = torch.cat([clips.pictures(places, offset) for offset in self.config.offsets], -1)
        maps = self.trunk(seen.permute(0, 3, 1, 2).to(_kind(self.role.weight)) / 255)
        pooled = torch.cat([maps.mean((2, 3)), maps.amax((2, 3))], 1).float()
        return F.gelu(self.squeeze(pooled + self.role(clips.riding[places[:, 0], places[:, 2]].long())))

    def hidden(self, clips: Clips, views: Bool[Tensor, "K B V"]) -> Float[Tensor, "K B T D"]:
        """One representation a step, whatever the number of views; only pictures that count are looked at, once.

        One pass for all while gradients are wanted: sharded processes must run the trunk equally often.
        """
        places = clips.places(views.any(0))
        at_once = len(places) if torch.is_grad_enabled() else self.config.pictures_at_once
        seen = torch.cat([self.features(clips, chunk) for chunk in places.split(at_once)]).float()
        clip, step, view = places.unbind(1)
        by_view = seen.new_zeros(*clips.picked.shape, views.shape[-1], seen.shape[-1])
        by_view = by_view.index_put((clip, step, view), seen)
        pooled = pool_views(by_view, self.gate(by_view).squeeze(-1).float(), views)
        return F.gelu(self.mix(F.layer_norm(pooled, pooled.shape[-1:])))


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

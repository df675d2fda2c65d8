"""Layers that networks over pictures share.

Legend: B clips, T steps, V views, M pictures, K choices of views, c channels, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from hostbot.align.encoders import Clips


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


def kind_of(weight: Tensor) -> torch.dtype:
    """What the convolutions compute in: pictures go there at once, not by way of float32."""
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def by_view(
    seen: Float[Tensor, "M *n"], places: Int[Tensor, "M 3"], clips: Clips, num_views: int
) -> Float[Tensor, "B T V *n"]:
    """What single pictures show, by clip, step and view; 0 where nothing was looked at."""
    empty = seen.new_zeros(*clips.picked.shape, num_views, *seen.shape[1:])
    return empty.index_put(tuple(places.unbind(1)), seen)


def pool_views(
    by_view: Float[Tensor, "B T V D"], gates: Float[Tensor, "B T V"], views: Bool[Tensor, "K B V"]
) -> Float[Tensor, "K B T D"]:
    """The views' weighted mean for each choice of them; the others weigh nothing."""
    weights = gates.clamp(-8, 8).masked_fill(~views[:, :, None], -torch.inf).softmax(-1)
    return (weights[..., None] * by_view).sum(-2)

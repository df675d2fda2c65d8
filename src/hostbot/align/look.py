"""How a view of a training clip is changed: mirrored, cropped, recoloured, alike in all its frames.

Legend: B clips, F frames, V views, M pictures.
The paper names flip, brightness and contrast; crop and tint are ours.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from hostbot.align.cost import valid
from hostbot.align.encoders import Clips
from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class LookConfig:
    """How far looks go; the paper gives no ranges."""

    flip: float = 0.5
    """How often a look is mirrored."""
    brightness: float = 0.15
    """Largest shift, in parts of the full scale."""
    contrast: float = 0.25
    """Largest change of the factor about mid grey."""
    tint: float = 0.0
    """Largest change of each colour's own factor."""
    crop: float = 0.0
    """Largest part of a side that is cut away."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value <= 1 or (value == 1 and name != "flip"):
                raise BadInput(f"{name} must be in [0, 1), or up to 1 for flip, got {value}")


@dataclass(frozen=True, kw_only=True)
class Look:
    """One change: factors and shift of the colours, and which part of the picture is shown."""

    red: float = 1.0
    green: float = 1.0
    blue: float = 1.0
    shift: float = 0.0
    mirror: float = 1.0
    """-1 where mirrored."""
    scale: float = 1.0
    """Of the part that is shown."""
    right: float = 0.0
    down: float = 0.0
    """Where its centre is, from -1 to 1."""


WIDTH = len(astuple(Look()))
_AT_ONCE = 4096
"""Pictures that are changed in one go."""


def draw_look(config: LookConfig, rng: np.random.Generator) -> Look:
    """One look."""
    contrast = 1 + rng.uniform(-config.contrast, config.contrast)
    red, green, blue = contrast * (1 + rng.uniform(-config.tint, config.tint, 3))
    scale = 1 - config.crop * rng.random()
    right, down = rng.uniform(-1, 1, 2) * (1 - scale)
    return Look(
        red=float(red), green=float(green), blue=float(blue), scale=float(scale), right=float(right), down=float(down),
        shift=float(rng.uniform(-config.brightness, config.brightness)),
        mirror=-1.0 if rng.random() < config.flip else 1.0,
    )  # fmt: skip


def applied(clips: Clips, looks: Float[Tensor, "B V look"]) -> Clips:
    """Every view with a look of its own; so many pictures at once that floats of long videos never lie side by side."""
    frames = clips.frames.clone()
    inside = valid(clips.lengths, frames.shape[1])
    for part in (inside[:, :, None] & clips.present[:, None]).nonzero().split(_AT_ONCE):
        clip, frame, view = part.unbind(1)
        frames[clip, frame, view] = _changed(frames[clip, frame, view], looks[clip, view])
    return replace(clips, frames=frames)


def _changed(pictures: UInt8[Tensor, "M h w 3"], looks: Float[Tensor, "M look"]) -> UInt8[Tensor, "M h w 3"]:
    gain, shift, mirror, scale, centre = looks.split([3, 1, 1, 1, 2], 1)
    shown = torch.zeros(len(looks), 2, 3, device=looks.device)
    shown[:, 0, 0], shown[:, 1, 1], shown[:, :, 2] = (scale * mirror)[:, 0], scale[:, 0], centre
    pixels = pictures.permute(0, 3, 1, 2).float()
    grid = F.affine_grid(shown, list(pixels.shape), align_corners=False)
    moved = F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
    # Contrast is about mid grey: gain (x - 1/2) + 1/2 + shift, of values up to 255.
    light = gain[:, :, None, None] * (moved - 127.5) + (127.5 + 255 * shift)[:, :, None, None]
    return light.clamp(0, 255).round().to(torch.uint8).permute(0, 2, 3, 1)

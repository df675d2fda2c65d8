"""How a view of a training clip is changed: mirrored, cropped, recoloured, alike in all its frames.

Legend: B clips, F frames, V views.
The paper names flip, brightness and contrast; crop and tint are ours.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

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
    """Every view with a look of its own; clip by clip, so that long videos of floats never lie side by side."""
    frames = clips.frames.clone()
    for clip, num_frames in enumerate(clips.lengths.tolist()):
        num_views = int(clips.present[clip].sum())
        frames[clip, :num_frames, :num_views] = _changed(
            frames[clip, :num_frames, :num_views], looks[clip, :num_views]
        )
    return replace(clips, frames=frames)


def _changed(
    frames: UInt8[Tensor, "F V h w 3"], looks: Float[Tensor, "V look"]
) -> UInt8[Tensor, "F V h w 3"]:
    num_frames, num_views, height, width = frames.shape[:4]
    gain, shift, mirror, scale, centre = looks.split([3, 1, 1, 1, 2], 1)
    shown = torch.zeros(num_views, 2, 3, device=looks.device)
    shown[:, 0, 0], shown[:, 1, 1], shown[:, :, 2] = (scale * mirror)[:, 0], scale[:, 0], centre
    grid = F.affine_grid(shown, [num_views, 3, height, width], align_corners=False)
    pixels = frames.permute(1, 0, 4, 2, 3).reshape(num_views, num_frames * 3, height, width).float()
    moved = F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
    moved = moved.view(num_views, num_frames, 3, height, width)
    # Contrast is about mid grey: gain (x - 1/2) + 1/2 + shift, of values up to 255.
    light = gain[:, None, :, None, None] * (moved - 127.5) + (127.5 + 255 * shift)[:, None, :, None, None]
    return light.clamp(0, 255).round().to(torch.uint8).permute(1, 0, 3, 4, 2)

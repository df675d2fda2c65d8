"""Image augmentation with one draw for all frames of a sample (supplement, "Data augmentation").

Legend: B any leading axes (frames, views), h w pixels. Works on CPU and GPU tensors alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """The paper's ranges; a scale of (1, 1), a shift of 0 or a probability of 0 turns a step off."""

    brightness: tuple[float, float] = (0.7, 1.3)
    contrast: tuple[float, float] = (0.7, 1.3)
    saturation: tuple[float, float] = (0.7, 1.3)
    hue: tuple[float, float] = (-0.05, 0.05)
    """In turns of the colour circle."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """In pixels."""
    blur_probability: float = 0.5
    crop_scale: tuple[float, float] = (0.8, 1.0)
    """Share of the area that stays, at the same aspect ratio; the crop is resized back."""


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """One draw, applied to every frame it belongs to."""

    brightness: float
    contrast: float
    saturation: float
    hue: float
    blur_sigma: float | None
    crop: tuple[float, float, float]
    """Top and left edge and side length, as shares of height and width."""


def draw_augmentation(config: AugmentConfig, rng: np.random.Generator) -> Augmentation:
    """Parameters for one sample; all of them are always drawn, so turning a step off moves no other."""
    colour = {
        name: float(rng.uniform(*getattr(config, name)))
        for name in ("brightness", "contrast", "saturation", "hue")
    }
    sigma, coin = float(rng.uniform(*config.blur_sigma)), rng.random()
    side = math.sqrt(rng.uniform(*config.crop_scale))
    top, left = rng.uniform(0, 1, size=2) * (1 - side)
    return Augmentation(
        **colour,
        blur_sigma=sigma if coin < config.blur_probability else None,
        crop=(float(top), float(left), side),
    )


def augment(frames: Float[Tensor, "*B 3 h w"], draw: Augmentation) -> Float[Tensor, "*B 3 h w"]:
    """Crop, colour and blur frames with values in [0, 1]."""
    if frames.shape[-3] != 3 or not frames.is_floating_point():
        raise BadInput(
            f"augment wants float frames with 3 channels before h and w, got {tuple(frames.shape)}"
        )
    flat = frames.reshape(-1, *frames.shape[-3:])
    flat = crop(flat, draw.crop)
    flat = (flat * draw.brightness).clamp(0, 1)
    flat = _blend(flat, luminance(flat).mean((-2, -1), keepdim=True), draw.contrast)
    flat = _blend(flat, luminance(flat), draw.saturation)
    flat = shift_hue(flat, draw.hue)
    if draw.blur_sigma is not None:
        flat = blur(flat, draw.blur_sigma)
    return flat.reshape(frames.shape)


def luminance(frames: Float[Tensor, "B 3 h w"]) -> Float[Tensor, "B 1 h w"]:
    """ITU-R BT.601 luma."""
    weights = frames.new_tensor([0.299, 0.587, 0.114])
    return torch.einsum("bchw,c->bhw", frames, weights)[:, None]


def _blend(frames: Tensor, towards: Tensor, factor: float) -> Tensor:
    return (factor * frames + (1 - factor) * towards).clamp(0, 1)


def crop(frames: Float[Tensor, "B 3 h w"], box: tuple[float, float, float]) -> Float[Tensor, "B 3 h w"]:
    """Cut the box out and resize it back to the frame's size."""
    height, width = frames.shape[-2:]
    top, left, side = box
    rows = slice(round(top * height), round(top * height) + max(1, round(side * height)))
    columns = slice(round(left * width), round(left * width) + max(1, round(side * width)))
    cut = frames[..., rows, columns]
    if cut.shape == frames.shape:
        return frames
    return F.interpolate(cut, (height, width), mode="bilinear", align_corners=False).clamp(0, 1)


def shift_hue(frames: Float[Tensor, "B 3 h w"], turns: float) -> Float[Tensor, "B 3 h w"]:
    """Turn the hue of every pixel in HSV space, keeping saturation and value."""
    if turns == 0:
        return frames
    value, _ = frames.max(-3, keepdim=True)
    chroma = value - frames.min(-3, keepdim=True).values
    safe = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    r, g, b = frames.unbind(-3)
    top, c = value.squeeze(-3), safe.squeeze(-3)
    sixths = torch.where(top == r, (g - b) / c, torch.where(top == g, 2 + (b - r) / c, 4 + (r - g) / c))
    sixths = sixths + 6 * turns
    # HSV back to RGB in closed form: channel n is V - C max(0, min(k, 4 - k, 1)), k = (n + 6 H) mod 6.
    k = torch.stack([(n + sixths) % 6 for n in (5.0, 3.0, 1.0)], -3)
    return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)


def blur(frames: Float[Tensor, "B 3 h w"], sigma: float) -> Float[Tensor, "B 3 h w"]:
    """Gaussian blur with reflected edges, as two one-dimensional passes."""
    radius = min(max(1, math.ceil(3 * sigma)), min(frames.shape[-2:]) - 1)
    if radius < 1:
        return frames
    offsets = torch.arange(-radius, radius + 1, device=frames.device, dtype=frames.dtype)
    kernel = torch.softmax(-(offsets**2) / (2 * sigma**2), dim=0)
    padded = F.pad(frames, (radius,) * 4, mode="reflect")
    rows = F.conv2d(padded, kernel.view(1, 1, -1, 1).expand(3, 1, -1, 1), groups=3)
    return F.conv2d(rows, kernel.view(1, 1, 1, -1).expand(3, 1, 1, -1), groups=3)

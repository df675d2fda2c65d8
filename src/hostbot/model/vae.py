"""Frames to latents and back through Wan's causal VAE, view by view, with a cache on disk.

Legend: B batch, V views, T frames (1 + 4 k), F = 1 + k latent frames, h w pixels, C latent channels,
H W latents of all views stacked by height.

The paper stacks views in pixels before the VAE. Here each view is encoded on its own and latents are stacked:
the grid is the same, but a view that is missing then leaves no trace in its neighbours.
"""

# mypy: disable-error-code="attr-defined,no-untyped-call,no-any-return"
# (diffusers has no types)

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from hostbot.config import read_json, write_json
from hostbot.model.cache import cached
from hostbot.types import BadInput


def wan22_vae() -> AutoencoderKLWan:
    """Wan2.2's 16x VAE as a shape: weights and statistics come from ``load_vae``."""
    return AutoencoderKLWan(
        base_dim=160,
        decoder_base_dim=256,
        z_dim=48,
        dim_mult=[1, 2, 4, 4],
        temperal_downsample=[False, True, True],
        is_residual=True,
        in_channels=12,
        out_channels=12,
        patch_size=2,
        scale_factor_spatial=16,
        latents_mean=[0.0] * 48,
        latents_std=[1.0] * 48,
    )


@dataclass(frozen=True, kw_only=True)
class VaeShape:
    """What a tiny VAE may be made of."""

    channels: int = 16
    """Numbers of a latent."""
    width: int = 16
    """Channels of the encoder's first stage."""
    decoder_width: int = 24
    growth: tuple[int, int, int] = (1, 2, 2)
    """Widths of the three stages, as multiples of the first."""
    fine: bool = False
    """Latents at a quarter of a view's side instead of an eighth: four times as many, and four times the work."""

    def __post_init__(self) -> None:
        if min(self.channels, self.width, self.decoder_width, *self.growth) < 1:
            raise BadInput(f"a VAE's channels and widths are at least 1, got {self}")


def tiny_vae(shape: VaeShape | None = None) -> AutoencoderKLWan:
    """The same class at 8x and a tenth of the width, for 64x64 views; starts nearly without latent noise."""
    shape = shape or VaeShape()
    pixels = 3 if shape.fine else 12
    try:
        vae = AutoencoderKLWan(
            base_dim=shape.width,
            decoder_base_dim=shape.decoder_width,
            z_dim=shape.channels,
            dim_mult=list(shape.growth),
            num_res_blocks=1,
            temperal_downsample=[True, True],
            is_residual=True,
            in_channels=pixels,
            out_channels=pixels,
            patch_size=None if shape.fine else 2,
            scale_factor_spatial=4 if shape.fine else 8,
            latents_mean=[0.0] * shape.channels,
            latents_std=[1.0] * shape.channels,
        )
    except ValueError as error:
        raise BadInput(f"there is no VAE of growth {shape.growth}: {error}") from None
    with torch.no_grad():
        vae.quant_conv.bias[vae.config.z_dim :] = -6.0  # log variance
    return vae


def load_vae(folder: Path) -> AutoencoderKLWan:
    """A VAE in the diffusers layout, from this disk only."""
    folder = folder / "vae" if (folder / "vae").is_dir() else folder
    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} holds no VAE: give a folder with config.json and its safetensors")
    # Without the last flag diffusers asks for a package that would only help with large models.
    return AutoencoderKLWan.from_pretrained(
        folder, local_files_only=True, use_safetensors=True, low_cpu_mem_usage=False
    )


def save_vae(vae: AutoencoderKLWan, folder: Path) -> None:
    """Write a VAE in the diffusers layout, without the folder it came from."""
    vae.save_pretrained(folder, safe_serialization=True)
    config = read_json(folder / "config.json")
    write_json(folder / "config.json", {k: v for k, v in config.items() if k != "_name_or_path"})


def channels_last(vae: AutoencoderKLWan) -> AutoencoderKLWan:
    """Lay out the weights of 3-D convolutions as their fast kernels want them; values stay."""
    for parameter in vae.parameters():
        if parameter.ndim == 5:
            parameter.data = parameter.data.to(memory_format=torch.channels_last_3d)
    return vae


class LatentCodec:
    """A frozen VAE with its normalisation: uint8 views in, unit-scale latents out, and the way back."""

    def __init__(
        self, vae: AutoencoderKLWan, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        self.vae = channels_last(vae.to(device).eval().requires_grad_(False))
        if vae.dtype != dtype:
            self.vae.to(dtype)
        self.channels: int = vae.config.z_dim
        self.spatial: int = vae.config.scale_factor_spatial
        self.device, self.dtype = torch.device(device), dtype
        shape = (1, self.channels, 1, 1, 1)
        self._mean = torch.tensor(vae.config.latents_mean, device=device).reshape(shape)
        self._std = torch.tensor(vae.config.latents_std, device=device).reshape(shape)
        self._identity = ""
        self._alone = threading.Lock()  # diffusers keeps a call's features in the module

    @property
    def identity(self) -> str:
        """A hash of configuration and weights: latents of another VAE never pass for this one's."""
        if not self._identity:
            config = {name: value for name, value in self.vae.config.items() if not name.startswith("_")}
            digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
            for name, tensor in sorted(self.vae.state_dict().items()):
                digest.update(name.encode())
                digest.update(tensor.detach().float().cpu().numpy().tobytes())
            self._identity = digest.hexdigest()
        return self._identity

    @torch.no_grad()
    def encode_views(self, views: UInt8[Tensor, "V T h w 3"]) -> Float32[Tensor, "C F H W"]:
        """Latents of one clip; the first latent is of the first frame alone, each further one of four."""
        _, num_frames, height, width, _ = views.shape
        if num_frames % 4 != 1:
            raise BadInput(f"a clip has 1 + 4 k frames, got {num_frames}")
        if height % self.spatial or width % self.spatial:
            raise BadInput(f"views of {height}x{width} pixels do not divide by {self.spatial}")
        pixels = views.to(self.device).permute(0, 4, 1, 2, 3).to(self.dtype) / 127.5 - 1
        with self._alone:
            coded = self.vae.encode(pixels).latent_dist.mode().float()
        latents = (coded - self._mean) / self._std
        return torch.cat(list(latents), dim=2)

    @torch.no_grad()
    def decode_views(self, latents: Float[Tensor, "C F H W"], num_views: int) -> UInt8[Tensor, "V T h w 3"]:
        """Frames of all views."""
        stacked = torch.stack(latents.to(self.device).chunk(num_views, dim=2))
        with self._alone:
            pixels = self.vae.decode((stacked * self._std + self._mean).to(self.dtype)).sample.float()
        return ((pixels.permute(0, 2, 3, 4, 1) + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


class LatentCache:
    """Latents on disk, each under the hash of its frames and its VAE."""

    def __init__(self, codec: LatentCodec, folder: Path) -> None:
        self.codec, self.folder = codec, folder

    def encode_views(self, views: UInt8[np.ndarray, "V T h w 3"]) -> Float32[Tensor, "C F H W"]:
        """As the codec's, read back where these very frames were encoded before."""
        return cached(
            self.folder,
            [self.codec.identity.encode(), str(views.shape).encode(), np.ascontiguousarray(views).tobytes()],
            lambda: self.codec.encode_views(torch.from_numpy(np.ascontiguousarray(views))).cpu(),
        )


def fit(
    vae: AutoencoderKLWan, clips: Iterable[Float[Tensor, "B 3 T h w"]], lr: float = 2e-3, kl: float = 1e-6
) -> Iterator[float]:
    """Train a VAE on clips in [-1, 1]: absolute error, a little KL; yields the error of each step."""
    optimiser = torch.optim.AdamW(vae.parameters(), lr=lr, weight_decay=0.0)
    for clip in clips:
        posterior = vae.encode(clip).latent_dist
        rebuilt = vae.decode(posterior.sample()).sample
        error = F.l1_loss(rebuilt, clip) + F.mse_loss(rebuilt, clip)
        optimiser.zero_grad(set_to_none=True)
        (error + kl * posterior.kl().mean()).backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimiser.step()
        yield float(error.detach())


@torch.no_grad()
def calibrate(vae: AutoencoderKLWan, clip: Float[Tensor, "B 3 T h w"]) -> None:
    """Set the latents' mean and deviation from data, so that the codec's latents have unit scale."""
    latents = vae.encode(clip).latent_dist.mode().float()
    std, mean = torch.std_mean(latents, dim=(0, 2, 3, 4))
    vae.register_to_config(latents_mean=mean.tolist(), latents_std=std.clamp(min=1e-4).tolist())

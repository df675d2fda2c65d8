"""The VAE as what fills a store: clips of many samples in one call, float16 out.

Legend: B clips, V views, T frames (1 + 4 k), F = 1 + k latents, h w pixels, C channels, H W latents of stacked views.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float16, Float32, UInt8

from hostbot.model.vae import LatentCodec
from hostbot.types import BadInput


class ClipEncoder:
    """``data.fill.Encode`` on a device; a limit on pixels at once keeps memory bounded.

    ``bfloat16`` is for products alone: the weights stay those that the policy will see with. On a GPU batches are
    filled up to a power of two: planning convolutions of a new shape takes longer than computing them.
    """

    def __init__(self, codec: LatentCodec, bfloat16: bool = False, pixels_at_once: int | None = None) -> None:
        self.codec, self.bfloat16 = codec, bfloat16
        self.even = codec.device.type == "cuda"
        # A CPU is fastest with what fits its caches.
        self.pixels_at_once = pixels_at_once or (1 << 25 if self.even else 1 << 20)

    def __call__(self, clips: UInt8[np.ndarray, "B V T h w 3"]) -> Float16[np.ndarray, "B F C H W"]:
        """Latents, views stacked by height."""
        batch, views, frames, height, width = clips.shape[:5]
        flat = torch.from_numpy(np.ascontiguousarray(clips)).flatten(0, 1)
        step = max(1, self.pixels_at_once // (frames * height * width))
        with torch.autocast(self.codec.device.type, torch.bfloat16, enabled=self.bfloat16):
            parts = [self._encode(part) for part in flat.split(step)]
        # The codec stacks everything it is given by height: cut it back into clips of ``views`` views.
        stacked = torch.cat(parts, dim=2).unflatten(2, (batch, -1)).permute(2, 1, 0, 3, 4)
        latents: Float16[np.ndarray, "B F C H W"] = stacked.half().cpu().numpy()
        if not np.isfinite(latents).all():
            raise BadInput("the VAE gave latents that are not finite: train or load it again")
        assert latents.shape[3] % views == 0
        return latents

    def piece(self, num_views: int, frames: int, size: tuple[int, int]) -> int:
        """Clips that are best encoded in one call: at most a thousand views, nearly a power of two of them."""
        views = min(1 << 10, self.pixels_at_once // (frames * size[0] * size[1]))
        return max(1, views // num_views)

    def _encode(self, clips: UInt8[torch.Tensor, "B T h w 3"]) -> Float32[torch.Tensor, "C F H W"]:
        if not self.even:
            return self.codec.encode_views(clips)
        whole = 1 << (len(clips) - 1).bit_length()
        clips = clips.to(self.codec.device)
        filled = torch.cat([clips, clips[-1:].expand(whole - len(clips), *clips.shape[1:])])
        latents = self.codec.encode_views(filled)
        return latents.unflatten(2, (whole, -1))[:, :, : len(clips)].flatten(2, 3)

    def latent_shape(self, num_views: int, size: tuple[int, int]) -> tuple[int, int, int]:
        """C, H and W of a latent frame of all views."""
        height, width = (length // self.codec.spatial for length in size)
        return self.codec.channels, num_views * height, width

"""Convolutions over a view before it is cut into tokens. Not in Wan, and off in its sizes.

A token of a small view is a quarter of its side wide. Where in it a thing lies is told by which of its weights the
thing meets, and has to be learned for every place on its own; a convolution learns it once for all.

Legend: B batch, C latent channels, F latent frames, H W latents of all views stacked by height, S tokens, w width.
"""

# mypy: allow-untyped-calls
# (torch and safetensors leave a few methods without types)

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor, nn

from hostbot.model.layers import Linear
from hostbot.model.tokens import GridConfig, patchify


class Stem(nn.Module):
    """What is added to a frame's tokens; nothing at first, so that a trained model can be given one."""

    def __init__(self, grid: GridConfig, width: int, dim: int) -> None:
        super().__init__()
        self.grid = grid
        self.first = nn.Conv2d(grid.latent_channels, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.out = Linear(width * grid.patch**2, dim)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(
        self, latents: Float[Tensor, "B C F H W"], views: Sequence[int] | None = None
    ) -> Float32[Tensor, "B S w"]:
        """One vector a token of the views that are there, in the tokens' order; views do not see one another."""
        grid = self.grid
        apart = latents.unflatten(3, (grid.num_views, grid.view_height))
        if views is not None and len(views) < grid.num_views:
            # One by one: a list of numbers would be copied to the device, which no graph can hold.
            apart = torch.stack([apart[:, :, :, view] for view in views], dim=3)
        count = apart.shape[2] * apart.shape[3]
        pictures = apart.permute(0, 2, 3, 1, 4, 5).flatten(0, 2).to(self.first.weight.dtype)
        seen = F.gelu(self.second(F.gelu(self.first(pictures))))
        tokens = patchify(seen[:, :, None], grid.patch)
        out: Tensor = self.out(tokens).float()
        return out.unflatten(0, (len(latents), count)).flatten(1, 2)

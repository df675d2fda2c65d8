"""The token grid: how latents become patches, where each token stands, and which views are there.

Legend: B batch, C latent channels, F latent frames, V views, H W latents of all views stacked by height,
S tokens, c numbers a patch.
"""

# mypy: allow-untyped-calls
# (torch and safetensors leave a few methods without types)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class GridConfig:
    """Latent frames as the model sees them: views stacked by height, cut into square patches."""

    latent_channels: int
    num_views: int
    view_height: int
    view_width: int
    """Latents of one view."""
    patch: int = 2
    demo_latents: int
    """Latent frames of a demonstration window (1 + (frames - 1) / 4)."""
    future_latents: int = 1

    def __post_init__(self) -> None:
        if self.patch < 1:
            raise BadInput(f"a token's side is at least one latent, got {self.patch}")
        if self.view_height % self.patch or self.view_width % self.patch:
            raise BadInput(
                f"a view of {self.view_height}x{self.view_width} latents does not divide by {self.patch}"
            )

    @property
    def patch_dim(self) -> int:
        """Numbers in a patch."""
        return self.latent_channels * self.patch**2

    @property
    def view_tokens(self) -> int:
        """Tokens of one view of one latent frame."""
        return (self.view_height // self.patch) * (self.view_width // self.patch)

    @property
    def frame_tokens(self) -> int:
        """Tokens of one latent frame, all views."""
        return self.num_views * self.view_tokens

    def latents(self, num_frames: int) -> tuple[int, int, int, int]:
        """Shape (C, F, H, W) of ``num_frames`` latent frames."""
        return self.latent_channels, num_frames, self.num_views * self.view_height, self.view_width

    def check(self, latents: Float[Tensor, "B C F H W"], num_frames: int, what: str) -> None:
        """Refuse latents of another shape."""
        if tuple(latents.shape[1:]) != self.latents(num_frames):
            raise BadInput(
                f"{what} latents are {tuple(latents.shape[1:])}; this model takes {self.latents(num_frames)}"
            )


def patchify(latents: Float[Tensor, "B C F H W"], patch: int) -> Float[Tensor, "B S c"]:
    """Patches in the order frame, row, column; within a patch channel, row, column."""
    x = latents.unflatten(4, (-1, patch)).unflatten(3, (-1, patch))
    out: Tensor = x.permute(0, 2, 3, 5, 1, 4, 6).flatten(4).flatten(1, 3)
    return out


def unpatchify(patches: Float[Tensor, "B S c"], grid: GridConfig) -> Float[Tensor, "B C F H W"]:
    """The latents of a whole number of frames."""
    channels, _, height, width = grid.latents(0)
    rows, columns, p = height // grid.patch, width // grid.patch, grid.patch
    x = patches.reshape(len(patches), -1, rows, columns, channels, p, p)
    return x.permute(0, 4, 1, 2, 5, 3, 6).flatten(5, 6).flatten(3, 4)


def grid_positions(frames: Sequence[int], grid: GridConfig) -> Int[Tensor, "S 3"]:
    """(time, height, width) of every token of these latent frames; views continue one another's height."""
    rows = torch.arange(grid.num_views * grid.view_height // grid.patch)
    columns = torch.arange(grid.view_width // grid.patch)
    return torch.cartesian_prod(torch.as_tensor(frames), rows, columns)


def keep_views(
    tokens: Float[Tensor, "B S *w"], views: Sequence[int] | None, grid: GridConfig
) -> Float[Tensor, "B S2 *w"]:
    """Drop the tokens of the views that are not there; with ``None`` all are."""
    if views is None or len(views) == grid.num_views:
        return tokens
    frames = tokens.unflatten(1, (-1, grid.num_views, grid.view_tokens))
    return torch.stack([frames[:, :, view] for view in views], dim=2).flatten(1, 3)


def view_mask(present: Bool[Tensor, "B V"], num_frames: int, grid: GridConfig) -> Bool[Tensor, "B S"]:
    """Which tokens belong to a view that is there, where samples of a batch differ in their views."""
    return present.repeat_interleave(grid.view_tokens, dim=1).repeat(1, num_frames)


def observation_frame(grid: GridConfig) -> int:
    """Time of the current observation: it continues the demo's, given or not: positions never move."""
    return grid.demo_latents


def future_frames(grid: GridConfig) -> range:
    """Times of the predicted latents."""
    first = grid.demo_latents + 1
    return range(first, first + grid.future_latents)


def localisation_position(grid: GridConfig) -> Int[Tensor, "1 3"]:
    """The localisation token stands one past all frames, at the origin of space."""
    return torch.tensor([[grid.demo_latents + 1 + grid.future_latents, 0, 0]])

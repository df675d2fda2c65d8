"""What every frame encoder is: clips of views in, one point of the unit sphere a time step out, eq:embedding.

Legend: B clips, T steps (padded), V views, D width of the backbone, d width of the embedding (128).
A view that a clip does not have is masked out, so that a phone's one view and a robot's three meet in one space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class Clips:
    """A batch of videos at the encoder's size; steps past a clip's length and absent views hold anything."""

    frames: UInt8[Tensor, "B T V h w 3"]
    present: Bool[Tensor, "B V"]
    lengths: Int[Tensor, " B"]

    def __post_init__(self) -> None:
        num_clips, num_steps, num_views = self.frames.shape[:3]
        if self.present.shape != (num_clips, num_views) or self.lengths.shape != (num_clips,):
            raise BadInput(
                f"{num_clips} clips of {num_views} views need a {(num_clips, num_views)} mask and {num_clips} lengths, "
                f"got {tuple(self.present.shape)} and {tuple(self.lengths.shape)}"
            )
        if not self.present.any(1).all():
            raise BadInput("a clip needs at least one view")
        if not ((self.lengths >= 1) & (self.lengths <= num_steps)).all():
            raise BadInput(f"lengths must be in 1..{num_steps}, got {self.lengths.tolist()}")

    def counted(self) -> Bool[Tensor, "B T V"]:
        """Which pictures there are: steps within a clip's length, of views it has."""
        steps = torch.arange(self.frames.shape[1], device=self.lengths.device)
        return (steps < self.lengths[:, None])[:, :, None] & self.present[:, None]

    def to(self, device: torch.device | str) -> Clips:
        """The same clips elsewhere."""
        return Clips(
            frames=self.frames.to(device, non_blocking=True),
            present=self.present.to(device, non_blocking=True),
            lengths=self.lengths.to(device, non_blocking=True),
        )


class FrameEncoder(nn.Module, ABC):
    """h_t = f_phi(o_t), e_t = P h_t / |P h_t|, eq:embedding; a subclass gives h_t.

    P and the norm are in float32 whatever the backbone computes in: the cost divides by kappa gamma_f = 0.01, which
    turns bfloat16's rounding into most of a nat.
    """

    size: int
    """Frames are square, of this many pixels a side."""

    def __init__(self, width: int, embedding: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, embedding, bias=False)

    @abstractmethod
    def hidden(self, clips: Clips) -> Float[Tensor, "B T D"]:
        """The backbone's representation of every step."""

    @abstractmethod
    def units(self) -> list[nn.Module]:
        """Submodules that are sharded on their own when training is distributed."""

    def forward(self, clips: Clips) -> Float[Tensor, "B T d"]:
        """Embeddings of every step; what stands past a clip's length is not meant to be read."""
        if clips.frames.shape[3:] != (self.size, self.size, 3):
            raise BadInput(
                f"this encoder reads frames of {self.size}x{self.size}, got {tuple(clips.frames.shape[3:5])}"
            )
        hidden = self.hidden(clips)
        with torch.autocast(hidden.device.type, enabled=False):
            return F.normalize(self.projection(hidden.float()), dim=-1)

"""What every frame encoder is: clips of views in, one point of the unit sphere a time step out, eq:embedding.

Legend: B clips, F frames of a video (padded), T steps to embed (padded), V views, M pictures, K choices of views,
D width of the backbone, d width of the embedding (128).
A view that a clip does not have is masked out, so that a phone's one view and a robot's three meet in one space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from hostbot.types import BadInput


def on_hand(view: str) -> bool:
    """Whether a view's camera rides on a hand: its name says wrist."""
    return "wrist" in view


@dataclass(frozen=True, kw_only=True)
class Clips:
    """A batch of videos at the encoder's size; frames past a video's length and absent views hold anything."""

    frames: UInt8[Tensor, "B F V h w 3"]
    present: Bool[Tensor, "B V"]
    riding: Bool[Tensor, "B V"]
    """Which views ride on a hand."""
    lengths: Int[Tensor, " B"]
    """Frames of each video."""
    picked: Int[Tensor, "B T"]
    """Which frames are embedded, in order; the others are there as their neighbours."""
    num_picked: Int[Tensor, " B"]

    def __post_init__(self) -> None:
        num_clips, num_frames, num_views = self.frames.shape[:3]
        for name in ("present", "riding"):
            if getattr(self, name).shape != (num_clips, num_views):
                raise BadInput(
                    f"{name} must be {(num_clips, num_views)} for {num_clips} clips of {num_views} views, "
                    f"got {tuple(getattr(self, name).shape)}"
                )
        if self.picked.ndim != 2 or len(self.picked) != num_clips:
            raise BadInput(f"{num_clips} clips need a row of picks each, got {tuple(self.picked.shape)}")
        if not self.present.any(1).all():
            raise BadInput("a clip needs at least one view")
        _within("lengths", self.lengths, num_clips, num_frames)
        _within("num_picked", self.num_picked, num_clips, self.picked.shape[1])

    def counted(self) -> Bool[Tensor, "B T"]:
        """Which steps there are."""
        steps = torch.arange(self.picked.shape[1], device=self.picked.device)
        return steps < self.num_picked[:, None]

    def places(self, views: Bool[Tensor, "B V"]) -> Int[Tensor, "M 3"]:
        """Clip, step and view of every picture of some views, step by step."""
        return (self.counted()[:, :, None] & views[:, None]).nonzero()

    def pictures(self, places: Int[Tensor, "M 3"], offset: int = 0) -> UInt8[Tensor, "M h w 3"]:
        """The pictures there, or so many frames later; a video's first and last frame stand in beyond its ends."""
        clip, step, view = places.unbind(1)
        frame = torch.minimum((self.picked[clip, step] + offset).clamp(min=0), self.lengths[clip] - 1)
        return self.frames[clip, frame, view]

    def to(self, device: torch.device | str) -> Clips:
        """The same clips elsewhere."""
        return replace(self, **{name: x.to(device, non_blocking=True) for name, x in vars(self).items()})


def _within(name: str, counts: Tensor, num_clips: int, most: int) -> None:
    if counts.shape != (num_clips,):
        raise BadInput(f"{num_clips} clips need {num_clips} {name}, got {tuple(counts.shape)}")
    if not ((counts >= 1) & (counts <= most)).all():
        raise BadInput(f"{name} must be in 1..{most}, got {counts.tolist()}")


def whole_clips(
    frames: UInt8[Tensor, "B F V h w 3"],
    lengths: Int[Tensor, " B"] | None = None,
    present: Bool[Tensor, "B V"] | None = None,
    riding: Bool[Tensor, "B V"] | None = None,
) -> Clips:
    """Videos of which every frame is embedded; all as long as given, all views there and none on a hand by default."""
    num_clips, num_frames, num_views = frames.shape[:3]
    lengths = torch.full((num_clips,), num_frames) if lengths is None else lengths
    return Clips(
        frames=frames,
        present=torch.ones(num_clips, num_views, dtype=torch.bool) if present is None else present,
        riding=torch.zeros(num_clips, num_views, dtype=torch.bool) if riding is None else riding,
        lengths=lengths,
        picked=torch.arange(num_frames).expand(num_clips, -1),
        num_picked=lengths,
    )


class FrameEncoder(nn.Module, ABC):
    """h_t = f_phi(o_t), e_t = P h_t / |P h_t|, eq:embedding; a subclass gives h_t.

    P and the norm are in float32 whatever the backbone computes in: the cost divides by kappa gamma_f = 0.01, which
    turns bfloat16's rounding into most of a nat.
    """

    size: int
    """Frames are square, of this many pixels a side."""

    def __init__(self, width: int, embedding: int, *, bias: bool = False) -> None:
        super().__init__()
        self.projection = nn.Linear(width, embedding, bias=bias)

    @abstractmethod
    def hidden(self, clips: Clips, views: Bool[Tensor, "K B V"]) -> Float[Tensor, "K B T D"]:
        """The backbone's representation of every step, from each of some choices of views."""

    @abstractmethod
    def units(self) -> list[nn.Module]:
        """Submodules that are sharded on their own when training is distributed."""

    def forward(self, clips: Clips, views: Bool[Tensor, "K B V"] | None = None) -> Float[Tensor, "*K B T d"]:
        """Embeddings of every step from all views there are, or from each of K choices of them.

        What stands past a clip's steps is not meant to be read.
        """
        if clips.frames.shape[3:] != (self.size, self.size, 3):
            raise BadInput(
                f"this encoder reads frames of {self.size}x{self.size}, got {tuple(clips.frames.shape[3:5])}"
            )
        hidden = self.hidden(clips, clips.present[None] if views is None else views)
        with torch.autocast(hidden.device.type, enabled=False):
            found = F.normalize(self.projection(hidden.float()), dim=-1)
        return found[0] if views is None else found

    def looks(self, points: Float[Tensor, "*n d"]) -> Float[Tensor, "*n e"]:
        """What of a point is eq:embedding's; all of it, unless hands are read besides."""
        return points

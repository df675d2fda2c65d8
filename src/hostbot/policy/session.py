"""One robot following one skill, and what it is told each cycle.

Legend: C latent channels, F latent frames, H W latents, A actions a chunk, a action width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from hostbot.policy.skill import Skill
from hostbot.policy.window import Window
from hostbot.types import ActionChunk


@dataclass(frozen=True, kw_only=True)
class Decision(ActionChunk):
    """An action chunk with what was believed on the way to it.

    ``progress`` is the share of the whole demonstration, NaN without one. ``confidence`` is NaN where there is no
    demonstration or only one localisation sample.
    """

    frame: int
    """Estimated demonstration frame, eq:window_advance's q; -1 without a demonstration."""
    window: tuple[int, int]
    """First and last demonstration frame of the window the decision was made in."""
    finished: bool
    """Whether the demonstration has been followed to its end."""
    held: str = ""
    """Why the robot is told to stay where it is, where it is."""
    future: Float32[Tensor, "C F H W"] | None = None
    """Latents of the present and of the predicted frames, for whoever wants to see them."""


@dataclass
class Session:
    """The state of one robot: where it is in its demonstration, its noise, what it was last told."""

    skill: Skill
    generator: torch.Generator
    window: Window | None
    """None without a demonstration."""
    num_cycles: int = 0
    last_action: Float32[np.ndarray, " a"] | None = field(default=None, repr=False)

    @property
    def finished(self) -> bool:
        """Whether the stop rule has spoken; without a demonstration it never does."""
        return self.window is not None and self.window.finished


def begin(skill: Skill, seed: int) -> Session:
    """A fresh session; the same seed and observations give the same decisions."""
    window = None if skill.latents is None else Window(num_frames=skill.num_frames)
    return Session(skill=skill, generator=torch.Generator().manual_seed(seed), window=window)

"""What the cascade is asked and what it answers.

Legend: B batch, K localisation samples, C latent channels, F latent frames, H W latents, A actions a chunk, a action
width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from jaxtyping import Float32
from torch import Tensor

from hostbot.types import BadInput

CompileMode = Literal["off", "default", "max-autotune-no-cudagraphs"]
_SPEED = ("graphs", "kernels", "compile")


@dataclass(frozen=True, kw_only=True)
class CascadeConfig:
    """How the targets are denoised; anything that trades accuracy for speed is off by default."""

    steps_p: int = 10
    steps_o: int = 20
    steps_a: int = 20
    num_localisations: int = 8
    """Localisation samples in one pass: their median is the estimate, their spread the confidence."""
    skip_future: bool = False
    """Leave the visual stage out; only for a model trained with ``unseen_future`` above 0."""
    noise_o: float = 1.0
    noise_a: float = 1.0
    """Scale of the noise that o and a are made from. As trained it is 1; at 0 there is one answer, near the middle of
    all that are likely, which is right where there is one way to go on and wrong between two."""
    graphs: bool = True
    """CUDA graphs, one a stage (no effect on a CPU)."""
    kernels: bool = True
    """Passes out of hostbot's own kernels where they run: bfloat16 weights on a CUDA card of 2022 or later."""
    compile: CompileMode = "off"
    """Where they do not: fuse each layer with torch.compile, a minute of warm-up a demonstration layout."""

    def __post_init__(self) -> None:
        if min(self.steps_p, self.steps_o, self.steps_a, self.num_localisations) < 1:
            raise BadInput("a cascade needs at least one step in every stage and one localisation sample")
        if not (0 <= self.noise_o <= 1 and 0 <= self.noise_a <= 1):
            raise BadInput(f"noise is scaled by 0 to 1, got {self.noise_o} for o and {self.noise_a} for a")

    def changes(self) -> str:
        """What of it changes answers rather than speed, in words; empty where all is as it is by default."""
        usual = CascadeConfig()
        said = [
            f"{one.name} {getattr(self, one.name)}"
            for one in fields(self)
            if one.name not in _SPEED and getattr(self, one.name) != getattr(usual, one.name)
        ]
        return ", ".join(said)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What the three stages start from; give it to repeat a cycle exactly."""

    p: Float32[Tensor, "B K"]
    o: Float32[Tensor, "B C F H W"]
    a: Float32[Tensor, "B A a"]


@dataclass(frozen=True, kw_only=True)
class CascadeOutput:
    """One cycle's beliefs and its actions (normalised, as the model was trained)."""

    p: Float32[Tensor, " B"]
    """Estimate in [-1, 1]."""
    p_samples: Float32[Tensor, "B K"]
    confidence: Float32[Tensor, " B"]
    """1: all samples agree; 0: as if drawn anywhere in the window; NaN for one sample or no demonstration."""
    o: Float32[Tensor, "B C F H W"] | None
    a: Float32[Tensor, "B A a"]
    timing_ms: Mapping[str, float] = field(default_factory=dict)

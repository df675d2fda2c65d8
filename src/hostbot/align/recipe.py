"""What a training run is set to, and what it says of each step (supplement, tab:hp_align)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from hostbot.align.collapse import Collapse, CollapseConfig
from hostbot.align.cost import MatchConfig
from hostbot.align.draw import DrawConfig
from hostbot.align.look import LookConfig
from hostbot.align.losses import LossConfig
from hostbot.align.twice import TwiceConfig
from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The paper's settings by default."""

    steps: int = 10_000
    batch_size: int = 256
    """Pairs of a step, over all processes."""
    learning_rate: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-5
    warmup: int = 100
    min_ratio: float = 0.3
    """Of the learning rate, where the cosine ends."""
    clip: float = 3.0
    """Largest norm of the gradient."""
    bf16: bool = True
    """Compute the backbone in bfloat16; weights, projection, matching and losses stay float32."""
    draw: DrawConfig = field(default_factory=DrawConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    two_looks: float = 0.0
    """Weight of the loss by which two looks at one video find each other; the paper has none."""
    twice: TwiceConfig = field(default_factory=TwiceConfig)
    negatives: float = 0.0
    """Weight of the loss that tells tasks apart; the paper has none."""
    negatives_temperature: float = 0.05
    collapse: CollapseConfig = field(default_factory=CollapseConfig)
    seed: int = 0
    save_every: int = 500
    keep: int = 2
    """Checkpoints kept."""
    look_every: int = 250
    """Steps between two looks for collapse."""
    patience: int = 20
    """Steps in a row that may be skipped for a loss that is not finite before training stops."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "save_every", "look_every", "keep", "patience"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.two_looks and not self.draw.two_looks:
            raise BadInput(
                f"two_looks weighs {self.two_looks}, but draw.two_looks is off; turn both on or off"
            )


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What one step did."""

    step: int
    tcc: float
    dtw: float
    two_looks: float
    negatives: float
    total: float
    gradient: float
    learning_rate: float
    skipped: bool
    """The loss or its gradient was not finite, so the weights were left alone."""
    collapse: Collapse | None = None
    """A look for collapse, where one was due."""


def learning_rate(config: TrainConfig, step: int) -> float:
    """Linear warm-up, then a cosine down to ``min_ratio``."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    share = (step - config.warmup) / max(1, config.steps - config.warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return config.learning_rate * (config.min_ratio + (1 - config.min_ratio) * cosine)


def paper_recipe(**changes: Any) -> TrainConfig:
    """Tab. hp_align: Qwen3-VL-Embedding, fine-tuned."""
    return TrainConfig(**changes)


def small_recipe(**changes: Any) -> TrainConfig:
    """The small encoder from scratch.

    The paper's temperature, kappa gamma_f = 0.01, suits an encoder that is good already; five times as much, and more
    weight on the path, learns where it starts from nothing.
    """
    recipe: dict[str, Any] = {
        "steps": 3000, "batch_size": 16, "learning_rate": 1e-3, "min_ratio": 0.05, "weight_decay": 0.01,
        "two_looks": 0.5, "negatives": 0.1, "draw": small_draw(),
        "loss": LossConfig(match=MatchConfig(gamma_f=0.5), tcc_weight=0.3, dtw_weight=1.0),
    }  # fmt: skip
    return TrainConfig(**(recipe | changes))


def small_draw(**changes: Any) -> DrawConfig:
    """The small encoder's pairs: mostly human-robot, both looks of every video."""
    drawn: dict[str, Any] = {
        "human_robot": 0.7, "human_human": 0.15, "max_steps": 56, "outside_only": 0.2, "two_looks": True,
        "look": LookConfig(tint=0.2, crop=0.15),
    }  # fmt: skip
    return DrawConfig(**(drawn | changes))

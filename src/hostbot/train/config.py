"""What a training run is told."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from hostbot.types import BadInput

Mode = Literal["single", "ddp", "fsdp", "hsdp"]


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Optimiser and schedule; the defaults are the paper's (supplement, "Training Procedure")."""

    kind: Literal["adamw", "muon"] = "adamw"
    """``muon``: orthogonalised momentum for the blocks' matrices, AdamW for the rest; not with sharded weights."""
    lr: float = 1e-5
    muon_lr: float = 0.02
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 1e-2
    clip: float = 1.0
    """Largest norm of the whole gradient."""
    warmup: int = 0
    """Steps of linear warm-up."""
    decay: Literal["constant", "cosine", "linear"] = "constant"
    decay_from: float = 0.0
    """Share of the steps before the decay begins."""
    floor: float = 0.0
    """What the decay ends at, as a share of the peak."""

    def scale(self, step: int, steps: int) -> float:
        """Share of the learning rate at a step (0-based)."""
        rise = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        start = max(self.warmup, self.decay_from * steps)
        done = min(1.0, max(0.0, (step - start) / max(1.0, steps - start)))
        if self.decay == "constant":
            return rise
        left = 0.5 * (1 + math.cos(math.pi * done)) if self.decay == "cosine" else 1 - done
        return rise * (self.floor + (1 - self.floor) * left)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One run of the loop."""

    steps: int
    batch: int
    """Samples a step, all ranks together."""
    micro: int
    """Samples of a micro-batch: what one rank computes at a time. Data and noise are functions of its number."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    seed: int = 0
    ema: float | None = None
    """Decay of the moving average of weights; None: none is kept (the paper's)."""
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """Of products; weights, gradients and moments are float32 always."""
    checkpointing: bool = False
    """Compute blocks again in the backward pass instead of keeping their activations."""
    compile: bool = False
    log_every: int = 20
    save_every: int = 1000
    keep: int = 2
    """Checkpoints kept."""
    validate_every: int = 0
    """0: never."""
    max_bad: int = 20
    """Steps in a row with a non-finite loss or gradient before the run stops."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.micro < 1 or self.batch < 1 or self.batch % self.micro:
            raise BadInput(
                f"a batch of {self.batch} samples cannot be cut into micro-batches of {self.micro} for "
                f"{self.steps} steps"
            )
        if min(self.log_every, self.save_every, self.keep, self.max_bad) < 1:
            raise BadInput("log_every, save_every, keep and max_bad must be at least 1")

    def micros(self, rank: int, world: int) -> range:
        """The micro-batches of a step that one rank computes."""
        total = self.batch // self.micro
        if total % world:
            raise BadInput(
                f"{total} micro-batches ({self.batch} / {self.micro}) cannot be shared evenly by {world} ranks"
            )
        return range(rank, total, world)

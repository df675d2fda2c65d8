"""A preset is a function that returns a whole config; a variant is ``dataclasses.replace``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from hostbot.couple import CoupleConfig, Variant, variant
from hostbot.data.augment import AugmentConfig
from hostbot.data.batches import DrawConfig
from hostbot.data.clean import CleanConfig
from hostbot.data.normalize import NormalizeConfig
from hostbot.data.sampling import SampleConfig
from hostbot.data.speed import SpeedConfig
from hostbot.data.takes import TakeConfig
from hostbot.model.host import FlowConfig, HostConfig
from hostbot.model.sizes import tiny_model, wan5b_model
from hostbot.policy.contract import CascadeConfig
from hostbot.train.config import OptimConfig, TrainConfig
from hostbot.train.stages import LossWeights
from hostbot.types import BadInput, Embodiment, bimanual

Stage = Literal["match", "1", "2", "sft", "vae"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """From a recording to what the model is given (supplement, "Data processing")."""

    embodiment: Embodiment
    image_size: tuple[int, int]
    """Height and width of one view; views are stacked vertically."""
    window: int = 192
    """Demonstration frames L in the window, at the control rate."""
    horizon: int = 32
    """Action steps H of a chunk."""
    video_stride: int = 8
    """Control steps between two frames that the model sees."""
    relative_actions: bool = True
    between_frames: bool = False
    """Coupled actions may lie between two of the robot's frames."""
    haste: float = 0.0
    """Least pace of coupled actions, as a share of the robot's own."""
    clean: CleanConfig = field(default_factory=CleanConfig)
    normalize: NormalizeConfig = field(default_factory=NormalizeConfig)
    speed: SpeedConfig = field(default_factory=SpeedConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)

    def __post_init__(self) -> None:
        if self.window % self.video_stride or self.horizon % self.video_stride:
            raise BadInput(
                f"window {self.window} and horizon {self.horizon} must be multiples of the stride {self.video_stride}"
            )


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that defines a HOST, whatever its size."""

    name: str
    data: DataConfig
    model: HostConfig
    cascade: CascadeConfig = field(default_factory=CascadeConfig)

    def __post_init__(self) -> None:
        pairs = {
            "views": (len(self.data.embodiment.views), self.model.grid.num_views),
            "action width": (self.data.embodiment.dim, self.model.action_dim),
            "action steps": (self.data.horizon, self.model.horizon),
            "demo frames": (
                self.data.window // self.data.video_stride + 1,
                4 * self.model.grid.demo_latents - 3,
            ),
            "target frames": (
                self.data.horizon // self.data.video_stride,
                4 * self.model.grid.future_latents,
            ),
        }
        for what, (data, model) in pairs.items():
            if data != model:
                raise BadInput(f"preset {self.name!r}: the data has {data} {what}, the model {model}")


def tiny() -> Config:
    """Made for our own bench and a laptop's CPU: three 64 x 64 views at 16 Hz, chunks of one second."""
    data = DataConfig(
        embodiment=bimanual(rate_hz=16.0), image_size=(64, 64), window=64, horizon=16, video_stride=4,
        between_frames=True, haste=1.0,
    )  # fmt: skip
    # Half of the time actions are learned without the future, so that they do not lean on one not yet predictable.
    model = replace(tiny_model(), flow=FlowConfig(unseen_future=0.5))
    return Config(name="tiny", data=data, model=model)


def wan5b() -> Config:
    """The paper's: three 224 x 224 views at 32 Hz, a window of 192 frames, chunks of 32 actions."""
    data = DataConfig(embodiment=bimanual(rate_hz=32.0), image_size=(224, 224))
    return Config(name="wan5b", data=data, model=wan5b_model())


PRESETS = {"tiny": tiny, "wan5b": wan5b}


def sampling(config: Config, coupling: Variant = "full") -> SampleConfig:
    """How a preset's samples are made."""
    data = config.data
    couple = CoupleConfig(
        window=data.window,
        horizon=data.horizon,
        stride=data.video_stride,
        between=data.between_frames,
        haste=data.haste,
    )
    return SampleConfig(
        couple=variant(couple, coupling),
        embodiment=data.embodiment,
        image_size=data.image_size,
        relative_actions=data.relative_actions,
        normalize=data.normalize,
        take=TakeConfig(clean=data.clean, speed=data.speed, augment=data.augment),
    )


def training(name: str, stage: Stage) -> TrainConfig:
    """How long and how fast a stage is trained: the paper's for ``wan5b``, a card's minutes for ``tiny``."""
    if name == "wan5b":
        steps = {"match": 10_000, "1": 500_000, "2": 100_000, "sft": 5_000, "vae": 100_000}[stage]
        return TrainConfig(steps=steps, batch=128, micro=2, checkpointing=True, compile=True)
    steps = {"match": 4_000, "1": 10_000, "2": 4_000, "sft": 1_000, "vae": 6_000}[stage]
    if stage == "vae":
        optim = OptimConfig(lr=2e-3, weight_decay=0.0, warmup=100, decay="cosine", floor=0.05)
        return TrainConfig(steps=steps, batch=64, micro=64, optim=optim, precision="float32", save_every=500)
    peak = 2e-4 if stage == "sft" else 1e-3
    optim = OptimConfig(lr=peak, muon_lr=0.02, warmup=200, decay="cosine", decay_from=0.3, floor=0.05)
    batch = 64 if stage == "sft" else 512
    # Fusing takes 80 s a layout on an H200, so it is for runs of many minutes, which ask for it.
    return TrainConfig(steps=steps, batch=batch, micro=batch, optim=optim, ema=0.999, save_every=500)


def drawing(name: str, stage: Stage, micro: int) -> DrawConfig:
    """How a stage's samples are drawn: matching is learned where it decides, with a demonstration always there."""
    if stage == "match":
        return DrawConfig(micro=micro, demo_dropout=0.0, decisions=1.0)
    return DrawConfig(micro=micro, decisions=0.5 if name == "tiny" else 0.0)


def drilling(micro: int, shared: int) -> tuple[DrawConfig, LossWeights]:
    """How drills are drawn and what counts in them: what made a small model watch the video."""
    draw = DrawConfig(
        micro=micro, shared=shared, decisions=1.0, demo_dropout=0.0, text_dropout=0.7, one_view=0.0, exchange=True,
        shift=3,
    )  # fmt: skip
    return draw, LossWeights(flow=0.0, point=1.0, pair=1.0)


def weighting(name: str, stage: Stage) -> LossWeights:
    """What counts in a stage: the paper's losses, and pointing for a model that starts from nothing."""
    if stage == "match":
        return LossWeights(flow=0.0, point=1.0)
    return LossWeights(flow=1.0, point=0.1 if name == "tiny" else 0.0)

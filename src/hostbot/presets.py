"""A preset is a function that returns a whole config; a variant is ``dataclasses.replace``."""

from __future__ import annotations

from dataclasses import dataclass, field

from hostbot.data.augment import AugmentConfig
from hostbot.data.clean import CleanConfig
from hostbot.data.normalize import NormalizeConfig
from hostbot.data.speed import SpeedConfig
from hostbot.model.host import HostConfig
from hostbot.model.sizes import tiny_model, wan5b_model
from hostbot.policy.cascade import CascadeConfig
from hostbot.types import BadInput, Embodiment, bimanual


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
        embodiment=bimanual(rate_hz=16.0), image_size=(64, 64), window=64, horizon=16, video_stride=4
    )
    return Config(name="tiny", data=data, model=tiny_model())


def wan5b() -> Config:
    """The paper's: three 224 x 224 views at 32 Hz, a window of 192 frames, chunks of 32 actions."""
    data = DataConfig(embodiment=bimanual(rate_hz=32.0), image_size=(224, 224))
    return Config(name="wan5b", data=data, model=wan5b_model())


PRESETS = {"tiny": tiny, "wan5b": wan5b}

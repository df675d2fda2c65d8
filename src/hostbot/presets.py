"""A preset is a function that returns a whole config; a variant is ``dataclasses.replace``."""

from __future__ import annotations

from dataclasses import dataclass, field

from hostbot.data.clean import CleanConfig
from hostbot.data.normalize import NormalizeConfig
from hostbot.data.speed import SpeedConfig
from hostbot.types import Embodiment, bimanual


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


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that defines a HOST, whatever its size."""

    name: str
    data: DataConfig


def tiny() -> Config:
    """Trained in our own bench, runs on a laptop's CPU."""
    return Config(name="tiny", data=DataConfig(embodiment=bimanual(rate_hz=16.0), image_size=(96, 96)))


def wan5b() -> Config:
    """The paper's: three 224 x 224 views at 32 Hz."""
    return Config(name="wan5b", data=DataConfig(embodiment=bimanual(rate_hz=32.0), image_size=(224, 224)))


PRESETS = {"tiny": tiny, "wan5b": wan5b}

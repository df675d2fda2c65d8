"""A take is one way to play an episode: which of its frames, how fast, with which colours, in a mirror or not.

The first take of an episode is the episode as it is (less static frames); further ones are played at a drawn speed
with a drawn augmentation, the same for every frame of the take (supplement, "Data augmentation"). Where mirrors are
asked for, every version comes in two: its number is even as it is and odd in the mirror.
Legend: N frames of the recording, M frames of the take.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Int64, UInt8

from hostbot.data.augment import Augmentation, AugmentConfig, augment, draw_augmentation
from hostbot.data.clean import CleanConfig, moving_frames
from hostbot.data.mirror import is_sided
from hostbot.data.speed import SpeedConfig, draw_factor, retime
from hostbot.data.stats import ACTION, STATE
from hostbot.types import Embodiment, EpisodeSource

_BODIES = {"robot": 0, "human": 1}


@dataclass(frozen=True, kw_only=True)
class TakeConfig:
    """What a take leaves out and what it may change."""

    clean: CleanConfig | None = field(default_factory=CleanConfig)
    """Static frames of episodes that have numbers are left out; None keeps them."""
    speed: SpeedConfig = field(default_factory=SpeedConfig)
    augment: AugmentConfig | None = field(default_factory=AugmentConfig)
    """None: colours and framing stay as recorded."""
    mirror: bool = False
    """Every version also in the mirror (``hostbot.data.mirror``)."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Take:
    """Which source frame is shown at each frame, and how it is altered."""

    body: str
    episode: int
    version: int
    frames: Int64[np.ndarray, " M"]
    augmentation: Augmentation | None
    mirrored: bool = False

    def __len__(self) -> int:
        return len(self.frames)


def make_take(
    source: EpisodeSource,
    body: str,
    episode: int,
    version: int,
    config: TakeConfig,
    *,
    embodiment: Embodiment | None = None,
    length: int | None = None,
    streams: tuple[np.ndarray, ...] | None = None,
) -> Take:
    """Version 0 is the episode as it is; ``length`` makes a take of exactly so many frames instead.

    ``streams`` are the episode's state and action where they have been read.
    """
    drawn, mirrored = divmod(version, 2) if config.mirror else (version, 0)
    rng = np.random.default_rng([config.seed, _BODIES[body], episode, drawn])
    kept = _moving(source, episode, config, embodiment, streams)
    factor = draw_factor(config.speed, rng)
    augmentation = draw_augmentation(config.augment, rng) if config.augment is not None else None
    if length is not None:
        frames = kept[np.rint(np.linspace(0, len(kept) - 1, length)).astype(np.int64)]
    else:
        frames = kept[retime(len(kept), factor if drawn else 1.0)]
    return Take(
        body=body,
        episode=episode,
        version=version,
        frames=frames,
        augmentation=augmentation if drawn else None,
        mirrored=bool(mirrored),
    )


def draw_version(takes: int, config: TakeConfig, instruction: str, rng: np.random.Generator) -> int:
    """One of an episode's versions; in the mirror half of the time, unless the task says which side."""
    drawn = int(rng.integers(takes))
    if not config.mirror:
        return drawn
    return 2 * drawn + int(rng.random() < 0.5 and not is_sided(instruction))


def _moving(
    source: EpisodeSource,
    episode: int,
    config: TakeConfig,
    embodiment: Embodiment | None,
    streams: tuple[np.ndarray, ...] | None,
) -> Int64[np.ndarray, " K"]:
    names = [name for name in (STATE, ACTION) if name in source.widths]
    if config.clean is None or embodiment is None or not names:
        return np.arange(source.episode(episode).length)
    if streams is None:
        rows = source.rows(episode, names)
        streams = tuple(rows[name] for name in names)
    return moving_frames(streams, embodiment, config.clean).kept


def altered(frames: UInt8[np.ndarray, "T h w 3"], take: Take) -> UInt8[np.ndarray, "T h w 3"]:
    """Frames with the take's augmentation, after the mirror."""
    if take.mirrored:
        frames = np.ascontiguousarray(frames[:, :, ::-1])
    if take.augmentation is None:
        return frames
    pixels = torch.from_numpy(frames).permute(0, 3, 1, 2).float() / 255
    changed = (augment(pixels, take.augmentation) * 255).round().to(torch.uint8)
    return np.ascontiguousarray(changed.permute(0, 2, 3, 1).numpy())


def crop_point(at: np.ndarray, take: Take, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Where a point of the picture (across, down) is after the take's crop, and whether it is still inside."""
    if take.augmentation is None:
        return at, np.ones(at.shape[:-1], bool)
    top, left, side = take.augmentation.crop
    low = np.array([round(left * size[1]) / size[1], round(top * size[0]) / size[0]])
    wide = np.array([max(1, round(side * size[1])) / size[1], max(1, round(side * size[0])) / size[0]])
    moved = (at - low) / wide
    return moved, ((moved >= 0) & (moved < 1)).all(-1)

"""Short clips out of datasets, drawn from a seed, for training a VAE.

Legend: N clips, T frames (1 + 4 k), h w pixels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from hostbot.types import DataError, EpisodeSource


def collect_clips(
    sources: Sequence[EpisodeSource],
    num: int,
    frames: int,
    strides: tuple[int, int],
    size: tuple[int, int],
    seed: int,
    path: Path,
    tick: Callable[[], None] = lambda: None,
) -> UInt8[np.ndarray, "N T h w 3"]:
    """Clips of any view of any episode, each at a stride of its own, kept in a file and read from there again."""
    if path.exists():
        kept: UInt8[np.ndarray, "N T h w 3"] = np.load(path, mmap_mode="r", allow_pickle=False)
        if kept.shape != (num, frames, *size, 3):
            raise DataError(f"{path} holds clips of {kept.shape}, not {(num, frames, *size, 3)}: remove it")
        return kept
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        array = np.lib.format.open_memmap(aside, mode="w+", dtype=np.uint8, shape=(num, frames, *size, 3))
        for index in range(num):
            array[index] = one_clip(sources, frames, strides, size, np.random.default_rng([seed, index]))
            tick()
        array.flush()
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def one_clip(
    sources: Sequence[EpisodeSource],
    frames: int,
    strides: tuple[int, int],
    size: tuple[int, int],
    rng: np.random.Generator,
) -> UInt8[np.ndarray, "T h w 3"]:
    """A dataset as often as it has episodes, then an episode, a view and a start; the last frame is held."""
    counts = np.array([len(source) for source in sources])
    source = sources[int(rng.choice(len(sources), p=counts / counts.sum()))]
    episode, view = int(rng.integers(len(source))), str(rng.choice(source.views))
    length, stride = source.episode(episode).length, int(rng.integers(strides[0], strides[1] + 1))
    first = int(rng.integers(length))
    wanted = np.minimum(first + stride * np.arange(frames), length - 1)
    unique, inverse = np.unique(wanted, return_inverse=True)
    return source.frames(episode, view, unique.tolist(), size)[inverse]

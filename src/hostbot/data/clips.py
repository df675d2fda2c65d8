"""Short clips out of datasets, drawn from a seed, for training a VAE.

Legend: N clips, T frames (1 + 4 k), h w pixels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
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
    tick: Callable[[int], None] = lambda count: None,
    workers: int = 0,
) -> UInt8[np.ndarray, "N T h w 3"]:
    """Clips of any view of any episode, each at a stride of its own, kept in a file and read from there again.

    Which clips they are depends on the seed alone, whatever the number of processes that decode them.
    """
    if path.exists():
        kept: UInt8[np.ndarray, "N T h w 3"] = np.load(path, mmap_mode="r", allow_pickle=False)
        if kept.shape != (num, frames, *size, 3):
            raise DataError(f"{path} holds clips of {kept.shape}, not {(num, frames, *size, 3)}: remove it")
        return kept
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        array = np.lib.format.open_memmap(aside, mode="w+", dtype=np.uint8, shape=(num, frames, *size, 3))
        job = _Job(sources=sources, frames=frames, strides=strides, size=size, seed=seed, path=aside)
        for done in job.all_of(num, workers):
            tick(done)
        array.flush()
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return np.load(path, mmap_mode="r", allow_pickle=False)


_AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What every process that decodes clips must know."""

    sources: Sequence[EpisodeSource]
    frames: int
    strides: tuple[int, int]
    size: tuple[int, int]
    seed: int
    path: Path

    def all_of(self, num: int, workers: int) -> Iterator[int]:
        """Write all clips; yields how many each turn wrote."""
        turns = [range(low, min(low + _AT_ONCE, num)) for low in range(0, num, _AT_ONCE)]
        if workers == 0:
            yield from map(self.write, turns)
            return
        with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (self,)) as pool:
            yield from pool.map(_write, turns)

    def write(self, indices: range) -> int:
        """Some clips, to their places in the file."""
        array = np.lib.format.open_memmap(self.path, mode="r+")
        for index in indices:
            rng = np.random.default_rng([self.seed, index])
            array[index] = one_clip(self.sources, self.frames, self.strides, self.size, rng)
        return len(indices)


_JOB: list[_Job] = []


def _begin(job: _Job) -> None:
    _JOB.append(job)


def _write(indices: range) -> int:
    return _JOB[0].write(indices)


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

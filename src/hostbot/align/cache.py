"""Frames decoded once to the encoder's size: one memory-mapped array a dataset, so that training never decodes.

Legend: F cached frames of all episodes, V views, s pixels a side.
The folder holds ``frames.npy`` (uint8 [F, V, s, s, 3]) and ``cache.json``, which says how many episodes are in it;
an interrupted build goes on where that stands.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from hostbot.align.steps import step_frames
from hostbot.config import read_json, to_dict, write_json
from hostbot.types import BadInput, DataError, EpisodeSource

_FLUSH_EVERY = 64


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """What is kept of every episode."""

    size: int = 96
    rate_hz: float = 16.0
    max_frames: int = 256
    """Of one episode; longer ones are thinned evenly."""


class FrameCache:
    """The frames of a dataset, by episode: from the map, or from a device that holds them all."""

    def __init__(
        self,
        name: str,
        views: tuple[str, ...],
        lengths: Int[np.ndarray, " E"],
        frames: UInt8[np.ndarray, "F V s s 3"],
    ) -> None:
        if len(frames) != lengths.sum() or frames.shape[1] != len(views):
            raise BadInput(
                f"{name} has {lengths.sum()} frames of {len(views)} views, got {list(frames.shape[:2])}"
            )
        self.name, self.views, self.lengths = name, views, lengths
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        self._map = frames
        self._held: UInt8[Tensor, "F V s s 3"] | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def size(self) -> int:
        """Pixels a side."""
        return int(self._map.shape[-2])

    @property
    def nbytes(self) -> int:
        """Of all frames."""
        return int(self._map.nbytes)

    def hold(self, device: torch.device) -> None:
        """Keep all frames on a device: a GPU that has room for them reads them faster than a disk."""
        held = torch.empty(self._map.shape, dtype=torch.uint8, device=device)
        for start in range(0, len(held), 1024):
            held[start : start + 1024] = torch.from_numpy(self._map[start : start + 1024].copy())
        self._held = held

    def whole(self, episode: int) -> UInt8[Tensor, "T V s s 3"]:
        """All steps of an episode."""
        return self.read(episode, np.arange(self.lengths[episode]))

    def read(self, episode: int, steps: Int[np.ndarray, " T"]) -> UInt8[Tensor, "T V s s 3"]:
        """Some steps of an episode, all views."""
        if not 0 <= episode < len(self) or (
            len(steps) and not 0 <= min(steps) <= max(steps) < self.lengths[episode]
        ):
            raise BadInput(f"{self.name} has no such frames in episode {episode}")
        rows = self._starts[episode] + np.asarray(steps)
        if self._held is not None:
            return self._held[torch.from_numpy(rows).to(self._held.device)]
        return torch.from_numpy(self._map[rows])

    def padded(
        self, episodes: Int[np.ndarray, " B"], num: int, views: Int[np.ndarray, "B v"]
    ) -> UInt8[Tensor, "B num v s s 3"]:
        """Some views of whole episodes, the last frame of a shorter one held: one gather on a device."""
        rows = self._starts[episodes][:, None] + np.minimum(
            np.arange(num), self.lengths[episodes][:, None] - 1
        )
        if self._held is None:
            return torch.from_numpy(self._map[rows[:, :, None], views[:, None]])
        device = self._held.device
        at, which = (torch.from_numpy(x).to(device) for x in (rows, views))
        return self._held[at[:, :, None], which[:, None]]


def fingerprint(source: EpisodeSource, config: object) -> str:
    """Names a dataset's content and what is made of it: episodes, lengths, tasks, views, rate, settings."""
    episodes = [source.episode(i) for i in range(len(source))]
    content = {
        "config": to_dict(config),
        "views": list(source.views),
        "fps": source.fps,
        "episodes": [(e.length, e.instruction) for e in episodes],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def build_cache(
    source: EpisodeSource, root: Path, config: CacheConfig, tick: Callable[[int], None] = lambda _: None
) -> FrameCache:
    """Decode what is not in the cache yet; ``tick`` hears how many episodes came in."""
    if not source.views:
        raise DataError(f"{source.name} has no video; alignment learns from frames")
    digest = fingerprint(source, config)
    folder = root / f"{source.name}-{digest[:12]}"
    steps = [
        step_frames(source.episode(i).length, source.fps, config.rate_hz, config.max_frames)
        for i in range(len(source))
    ]
    lengths = np.array([len(s) for s in steps], np.int64)
    shape = (int(lengths.sum()), len(source.views), config.size, config.size, 3)
    with _alone(folder):
        frames, done = _open(folder, shape, digest)
        tick(done)
        for episode in range(done, len(source)):
            _decode(source, episode, steps[episode], frames[int(lengths[:episode].sum()) :])
            if (episode + 1) % _FLUSH_EVERY == 0 or episode + 1 == len(source):
                frames.flush()
                write_json(folder / "cache.json", {"format": 1, "digest": digest, "done": episode + 1})
            tick(1)
    kept = np.load(folder / "frames.npy", mmap_mode="r", allow_pickle=False)
    return FrameCache(source.name, source.views, lengths, kept)


def _decode(source: EpisodeSource, episode: int, steps: Int[np.ndarray, " T"], into: np.ndarray) -> None:
    for place, view in enumerate(source.views):
        into[: len(steps), place] = source.frames(episode, view, steps.tolist(), into.shape[2:4])


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process builds; others that want the same cache wait for it and find it built."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _open(folder: Path, shape: tuple[int, ...], digest: str) -> tuple[np.memmap, int]:
    path, note = folder / "frames.npy", folder / "cache.json"
    if note.exists() and path.exists():
        found = read_json(note, DataError)
        frames = np.lib.format.open_memmap(path, mode="r+")
        if found.get("digest") == digest and frames.shape == shape:
            return frames, int(found["done"])
    note.unlink(missing_ok=True)
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape), 0

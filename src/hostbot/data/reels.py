"""Recordings for training alone: pictures as they are, at the size the model sees, one file a process that records.

No video is encoded to be decoded again soon after, and nothing is lost to compression, so that training sees what the
robot will see; for that they take about thirty times the disk. A part is three files: ``frames.bin`` (episode after
episode, view after view), ``rows.bin`` (state and action of every frame) and ``episodes.jsonl``, whose lines are what
counts: bytes after those of the last whole line are of an episode that a kill cut short, and are written over.

Legend: N frames of an episode, h w pixels, D numbers of a row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from jaxtyping import Float32

from hostbot.config import from_dict, read_json, to_dict, write_json
from hostbot.data.journal import lock
from hostbot.types import BadInput, DataError, Embodiment, EpisodeInfo, Event, Frames
from hostbot.video import fit_frames

MANIFEST = "reels.json"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class ReelKind:
    """What every episode of a recording has."""

    fps: float
    size: tuple[int, int]
    views: tuple[str, ...]
    widths: Mapping[str, int]
    embodiment: Embodiment | None = None

    @property
    def width(self) -> int:
        """D."""
        return sum(self.widths.values())

    def num_bytes(self, frames: int) -> tuple[int, int]:
        """Of pictures and of rows."""
        return frames * len(self.views) * self.size[0] * self.size[1] * 3, frames * self.width * 4


@dataclass(frozen=True, kw_only=True)
class _Episode:
    length: int
    task: str
    events: tuple[Event, ...]


class ReelWriter:
    """One part of a recording, gone on with where it stands."""

    def __init__(self, root: Path, kind: ReelKind) -> None:
        self._kind = kind
        root.mkdir(parents=True, exist_ok=True)
        self._lock = lock(root)
        known, whole = _read_lines(root / "episodes.jsonl")
        self.num_episodes = len(known)
        self._files: list[BinaryIO] = []
        sizes = (*kind.num_bytes(sum(one.length for one in known)), whole)
        for name, size in zip(("frames.bin", "rows.bin", "episodes.jsonl"), sizes, strict=True):
            path = root / name
            if (path.stat().st_size if path.exists() else 0) < size:
                raise DataError(f"{path} is shorter than its episodes: remove {root} and record again")
            file = path.open("r+b" if path.exists() else "w+b")
            file.truncate(size)
            file.seek(size)
            self._files.append(file)

    def __enter__(self) -> ReelWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (*self._files, self._lock):
            file.close()

    def add_episode(
        self,
        rows: Mapping[str, np.ndarray],
        views: Mapping[str, Frames],
        tasks: Sequence[str],
        events: Iterable[Event] = (),
    ) -> int:
        """Write one episode and return its number; ``tasks`` are one a frame, all the same."""
        kind, count = self._kind, len(tasks)
        given = {name: len(values) for name, values in (*rows.items(), *views.items())}
        if set(given) != {*kind.widths, *kind.views} or set(given.values()) != {count} or not count:
            raise BadInput(f"an episode of {count} tasks has {[*kind.widths, *kind.views]}, got {given}")
        if len(set(tasks)) != 1:
            raise BadInput(f"an episode is of one task here, got {sorted(set(tasks))}")
        if rows:
            values = np.concatenate([np.asarray(rows[name], np.float32) for name in kind.widths], axis=1)
        else:
            values = np.zeros((count, 0), np.float32)
        if values.shape[1] != kind.width:
            raise BadInput(f"rows have {kind.width} numbers, got {values.shape[1]}")
        pictures, numbers, lines = self._files
        for view in kind.views:
            pictures.write(np.ascontiguousarray(fit_frames(np.asarray(views[view]), kind.size)).data)
        numbers.write(np.ascontiguousarray(values).data)
        pictures.flush()
        numbers.flush()
        line = {"length": count, "task": tasks[0], "events": [asdict(event) for event in events]}
        lines.write(json.dumps(line).encode() + b"\n")
        lines.flush()
        self.num_episodes += 1
        return self.num_episodes - 1


def _read_lines(path: Path) -> tuple[list[_Episode], int]:
    """Whole episodes, and how many bytes tell of them."""
    known, whole = [], 0
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        if not line.endswith(b"\n"):
            break
        try:
            value = json.loads(line)
            events = tuple(Event(name=str(e["name"]), frame=int(e["frame"])) for e in value["events"])
            known.append(_Episode(length=int(value["length"]), task=str(value["task"]), events=events))
        except (ValueError, KeyError, TypeError) as reason:
            raise DataError(
                f"{path} is damaged after {len(known)} episodes ({reason}); record it again"
            ) from None
        whole += len(line)
    return known, whole


def num_recorded(part: Path) -> int:
    """Whole episodes of one part."""
    return len(_read_lines(part / "episodes.jsonl")[0])


def join_reels(parts: Path, root: Path, kind: ReelKind) -> None:
    """Make a folder of finished parts a dataset, at once."""
    names = sorted(path.parent.name for path in parts.glob("*/episodes.jsonl"))
    write_json(parts / MANIFEST, {"format": _FORMAT, "kind": to_dict(kind), "parts": names})
    os.replace(parts, root)


class Reels:
    """A finished recording as an ``EpisodeSource``."""

    def __init__(self, root: Path) -> None:
        self.root, self.name = root, str(root)
        value = read_json(root / MANIFEST, DataError)
        if not isinstance(value, dict) or value.get("format") != _FORMAT:
            raise DataError(f"{root / MANIFEST} is of another version: record it again")
        self.kind = from_dict(ReelKind, value["kind"], str(root / MANIFEST))
        self._episodes: list[tuple[_Episode, int, int]] = []
        self._pictures: list[np.ndarray] = []
        self._rows: list[Float32[np.ndarray, "_ D"]] = []
        for number, name in enumerate(value["parts"]):
            self._open(root / str(name), number)

    def _open(self, part: Path, number: int) -> None:
        known, _ = _read_lines(part / "episodes.jsonl")
        first = 0
        for one in known:
            self._episodes.append((one, number, first))
            first += one.length
        for name, size in zip(("frames.bin", "rows.bin"), self.kind.num_bytes(first), strict=True):
            if not (part / name).is_file() or (part / name).stat().st_size < size:
                raise DataError(f"{part / name} is missing or too short: record it again")
        empty = np.zeros(0, np.uint8)
        self._pictures.append(np.memmap(part / "frames.bin", np.uint8, "r") if first else empty)
        width, rows = self.kind.width, np.zeros((0, 1), np.float32)
        if first and width:
            rows = np.memmap(part / "rows.bin", np.float32, "r", shape=(first, width))
        self._rows.append(rows)

    def __reduce__(self) -> tuple[type[Reels], tuple[Path]]:
        return Reels, (self.root,)

    @property
    def fps(self) -> float:
        """Frames a second."""
        return self.kind.fps

    @property
    def views(self) -> tuple[str, ...]:
        """Camera names."""
        return self.kind.views

    @property
    def widths(self) -> Mapping[str, int]:
        """State and action, of robots."""
        return self.kind.widths

    @property
    def embodiment(self) -> Embodiment | None:
        """What the action vector means."""
        return self.kind.embodiment

    def __len__(self) -> int:
        return len(self._episodes)

    def _at(self, index: int) -> tuple[_Episode, int, int]:
        if not 0 <= index < len(self):
            raise BadInput(f"{self.name} has episodes 0..{len(self) - 1}, {index} was asked for")
        return self._episodes[index]

    def episode(self, index: int) -> EpisodeInfo:
        """Length and task of an episode."""
        one, _, _ = self._at(index)
        return EpisodeInfo(index=index, length=one.length, instruction=one.task, tasks=(one.task,))

    def rows(self, index: int, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        """State and action of a whole episode."""
        one, part, first = self._at(index)
        places: dict[str, slice] = {}
        for name, width in self.kind.widths.items():
            start = max((place.stop for place in places.values()), default=0)
            places[name] = slice(start, start + width)
        if unknown := [name for name in names if name not in places]:
            raise DataError(
                f"{self.name} has no {', '.join(unknown)}; it has {', '.join(places) or 'no numbers'}"
            )
        values = self._rows[part][first : first + one.length]
        return {name: np.array(values[:, places[name]]) for name in names}

    def frames(
        self, index: int, view: str, frame_indices: Sequence[int], size: tuple[int, int] | None = None
    ) -> Frames:
        """Exactly these frames of a view, in the order asked for, letterboxed to (h, w) if it is given."""
        one, part, first = self._at(index)
        if view not in self.kind.views:
            raise DataError(f"{self.name} has no view {view!r}; it has {', '.join(self.kind.views)}")
        if len(frame_indices) and not 0 <= min(frame_indices) <= max(frame_indices) < one.length:
            span = f"{min(frame_indices)}..{max(frame_indices)}"
            raise BadInput(f"frames {span} were asked of episode {index}, which has 0..{one.length - 1}")
        start = self.kind.num_bytes(first)[0]
        stop = start + self.kind.num_bytes(one.length)[0]
        pictures = self._pictures[part][start:stop].reshape(-1, one.length, *self.kind.size, 3)
        chosen: Frames = pictures[self.kind.views.index(view)][np.asarray(frame_indices, np.int64)]
        return chosen if size is None else fit_frames(chosen, size)

    def events(self, index: int) -> tuple[Event, ...]:
        """What happened when."""
        return self._at(index)[0].events


def is_reels(path: Path) -> bool:
    """Whether a folder is a finished recording of this kind."""
    return (path / MANIFEST).is_file()

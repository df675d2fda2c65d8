"""Read LeRobot datasets (v3.0, v2.1 and v2.0) in place: rows from parquet, frames from mp4, both exact.

Legend: N frames of an episode, T frames asked for. Memory is the episode index (some 50 bytes an episode
and camera) and a few open files, however large the dataset. What can be wrong with a dataset is found here
and told in one sentence; ``check.py`` looks at every frame besides.

Features keep LeRobot's names. Those of one dimension and numbers (bool and integers too) are served by
``rows`` and listed in ``widths``; two-dimensional, string and language features are listed in ``unread``
with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64, Shaped

from hostbot.data.files import Files
from hostbot.data.index import EpisodeIndex, read_index
from hostbot.data.schema import BOOKKEEPING, NUMERIC, Feature, Schema, parse_schema
from hostbot.data.sidecar import read_embodiment, read_events, steadily
from hostbot.data.table import Rows
from hostbot.data.views import Views, picture_frames
from hostbot.types import BadInput, Embodiment, EpisodeInfo, EpisodeSource, Event, Frames


def open_dataset(path: str | os.PathLike[str], *, verify: bool = True, max_open_videos: int = 12) -> Dataset:
    """Open a dataset folder of any version; ``verify=False`` ignores what ``meta/hostbot`` records."""
    return steadily(Path(path), verify, lambda files: Dataset(files, max_open_videos=max_open_videos))


class Dataset:
    """A LeRobot dataset as an ``EpisodeSource``; forked or pickled, each process opens its own files."""

    def __init__(self, files: Files, *, max_open_videos: int = 12) -> None:
        self.files, self._max_open_videos = files, max_open_videos
        files.present()
        self.schema: Schema = parse_schema(files.read("meta/info.json"), files.path("meta/info.json"))
        self.index: EpisodeIndex = read_index(files, self.schema)
        self._embodiment = read_embodiment(files)
        self._events = read_events(files, self.index)
        self._views = self.schema.views
        self._widths = _widths(self.schema)
        self._open()
        self._rows.footers()
        self._videos.present()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._rows = Rows(self.files, self.schema, self.index)
        self._videos = Views(self.files, self.schema, self.index, self._max_open_videos)

    def _own(self) -> None:
        """After a fork, let go of the parent's open files: two processes must not share a file position."""
        if self._pid != os.getpid():
            self._inherited = (self._rows, self._videos)
            self._open()

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (str(self.files.root), self.files.verify, self._max_open_videos)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.files.root.resolve().name

    @property
    def fps(self) -> float:
        """Frames a second of every stream."""
        return self.schema.fps

    @property
    def views(self) -> tuple[str, ...]:
        """Short camera names; the whole feature key is accepted as well."""
        return tuple(self._views)

    @property
    def widths(self) -> Mapping[str, int]:
        """Numeric one-dimensional features with their width, LeRobot's own five columns left out."""
        return self._widths

    @property
    def unread(self) -> Mapping[str, str]:
        """Features that ``rows`` does not serve, and why."""
        rest = (f for n, f in self.schema.features.items() if n not in BOOKKEEPING and not f.is_view)
        return {f.name: _why_unread(f) for f in rest if f.width is None}

    @property
    def embodiment(self) -> Embodiment | None:
        """What the action vector means, where hostbot wrote it down."""
        return self._embodiment

    @property
    def tasks(self) -> tuple[str, ...]:
        """Every task, by number."""
        return self.index.tasks

    @property
    def num_frames(self) -> int:
        """Frames of all episodes together."""
        return self.schema.num_frames

    def __len__(self) -> int:
        return len(self.index)

    def episode(self, index: int) -> EpisodeInfo:
        """Length and task of an episode."""
        self._check_episode(index)
        tasks = tuple(self.index.tasks[i] for i in self.index.episode_tasks(index))
        return EpisodeInfo(
            index=index, length=int(self.index.length[index]), instruction=tasks[0], tasks=tasks
        )

    def rows(self, index: int, names: Sequence[str]) -> Mapping[str, Shaped[np.ndarray, "N _"]]:
        """Numeric features of a whole episode, in their own types, always two-dimensional."""
        self._check_episode(index)
        self._own()
        for name in names:
            if name not in self.widths:
                why = self.unread.get(name, "it is not in the dataset")
                raise BadInput(f"{self.name} cannot give {name!r}: {why}; it has {sorted(self.widths)}")
        return self._rows.numbers(index, names)

    def frames(
        self, index: int, view: str, frame_indices: Sequence[int], size: tuple[int, int] | None = None
    ) -> Frames:
        """Exactly these frames of a view, in the order asked for, letterboxed to (h, w) if it is given."""
        self._check_episode(index)
        self._own()
        feature = self.view_feature(view)
        length = int(self.index.length[index])
        if len(frame_indices) and not 0 <= min(frame_indices) <= max(frame_indices) < length:
            span = f"{min(frame_indices)}..{max(frame_indices)}"
            raise BadInput(f"frames {span} were asked of episode {index}, which has 0..{length - 1}")
        if feature.dtype == "image":
            with self._rows.lock:
                return picture_frames(self._rows, feature.name, index, frame_indices, size)
        return self._videos.frames(feature.name, index, frame_indices, size)

    def frame_tasks(self, index: int) -> Int64[np.ndarray, " N"]:
        """The task number of every frame of an episode."""
        self._check_episode(index)
        self._own()
        return self._rows.tasks(index)

    def unread_columns(self, index: int, names: Sequence[str]) -> None:
        """Read columns ``rows`` does not serve, for a check that they can be read."""
        self._check_episode(index)
        self._own()
        with self._rows.lock:
            held = [n for n in names if self._rows.has_column(index, n)]
            for _ in self._rows.batches(index, held) if held else ():
                pass

    def named_files(self) -> list[str]:
        """Relative paths of the data and video files the metadata name, each once."""
        return [*self._rows.named(), *self._videos.named()]

    def events(self, index: int) -> tuple[Event, ...]:
        """Recorded events of an episode; empty where there are none."""
        self._check_episode(index)
        return self._events.get(index, ())

    def view_feature(self, view: str) -> Feature:
        """The feature behind a view's short name or whole key."""
        if view in self._views:
            return self._views[view]
        feature = self.schema.features.get(view)
        if feature is None or not feature.is_view:
            raise BadInput(f"{self.name} has no view {view!r}; it has {list(self._views)}")
        return feature

    def close(self) -> None:
        """Close every open file; the dataset opens them again when asked."""
        self._rows.close()
        self._videos.close()

    def _check_episode(self, index: int) -> None:
        if not 0 <= index < len(self):
            raise BadInput(
                f"episode {index} was asked for, but {self.name} has {len(self)} (0..{len(self) - 1})"
            )


def as_source(dataset: Dataset) -> EpisodeSource:
    """A dataset seen as the protocol every layer above works with, which the type checker holds it to."""
    return dataset


def _reopen(root: str, verify: bool, max_open_videos: int) -> Dataset:
    return open_dataset(root, verify=verify, max_open_videos=max_open_videos)


def _widths(schema: Schema) -> dict[str, int]:
    numeric = {n: f.width for n, f in schema.features.items() if n not in BOOKKEEPING}
    return {n: w for n, w in numeric.items() if w is not None}


def _why_unread(feature: Feature) -> str:
    if feature.dtype in NUMERIC:
        return f"it has {len(feature.shape)} dimensions, {list(feature.shape)}"
    return f"it is of type {feature.dtype}, not numeric"

"""What is in a dataset, from its metadata alone: 2,000 episodes are described in a fraction of a second."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from hostbot.data.index import EpisodeIndex
from hostbot.data.release import ReleaseDataset
from hostbot.data.schema import BOOKKEEPING, Schema
from hostbot.data.stats import statistics_path
from hostbot.data.store import Dataset
from hostbot.types import EpisodeSource

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, kw_only=True)
class ViewInfo:
    """A camera; ``codec`` as ``info.json`` has it (None if silent), ``image`` for pictures in parquet."""

    key: str
    height: int
    width: int
    codec: str | None


@dataclass(frozen=True, kw_only=True)
class FeatureInfo:
    """A feature that is no camera."""

    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """What ``hostbot data info`` shows; ``dataclasses.asdict`` of it is plain JSON."""

    path: str
    layout: str
    """``LeRobot v3.0``, ``LeRobot v2.1``, ``HOST release``, ``videos``."""
    robot_type: str | None
    num_episodes: int
    num_frames: int
    hours: float
    fps: float
    tasks: Mapping[str, int]
    """Episodes of every task; one that changes its task counts for each."""
    views: Mapping[str, ViewInfo]
    features: Mapping[str, FeatureInfo]
    length_quantiles: Mapping[str, float]
    """Frames an episode at 0, 25, 50, 75 and 100 %."""
    embodiment: str | None
    has_statistics: bool
    """Whether `hostbot data stats` was run; LeRobot's own stats.json is not used."""
    num_events: int
    has_checksums: bool
    num_bytes: int
    notes: tuple[str, ...]
    """What the dataset holds that is not served, a sentence each."""


def describe(source: EpisodeSource, path: Path) -> DatasetInfo:
    """What a dataset of any layout is; rows are not read and frames not decoded, but for one of each view."""
    return _describe_lerobot(source, path) if isinstance(source, Dataset) else _describe_other(source, path)


def _describe_lerobot(dataset: Dataset, path: Path) -> DatasetInfo:
    schema, index, files = dataset.schema, dataset.index, dataset.files
    return DatasetInfo(
        path=os.fspath(path),
        layout=f"LeRobot {schema.version}",
        robot_type=schema.robot_type,
        num_episodes=len(index),
        num_frames=schema.num_frames,
        hours=schema.num_frames / schema.fps / 3600,
        fps=schema.fps,
        tasks=_task_counts(index),
        views=_views(schema),
        features=_features(schema),
        length_quantiles=_quantiles(index.length),
        embodiment=dataset.embodiment.name if dataset.embodiment is not None else None,
        has_statistics=statistics_path(path).exists(),
        num_events=sum(len(dataset.events(i)) for i in range(len(dataset))),
        has_checksums=files.has_manifest,
        num_bytes=_bytes_below(path),
        notes=tuple(f"feature {name!r}: {why}" for name, why in dataset.unread.items()),
    )


def _describe_other(source: EpisodeSource, path: Path) -> DatasetInfo:
    episodes = [source.episode(i) for i in range(len(source))]
    lengths = np.array([episode.length for episode in episodes])
    views = {}
    for view in source.views:
        height, width = source.frames(0, view, [0]).shape[1:3]
        views[view] = ViewInfo(key=view, height=height, width=width, codec=None)
    embodiment = source.embodiment
    return DatasetInfo(
        path=os.fspath(path),
        layout="HOST release" if isinstance(source, ReleaseDataset) else "videos",
        robot_type=None,
        num_episodes=len(source),
        num_frames=int(lengths.sum()),
        hours=float(lengths.sum() / source.fps / 3600),
        fps=source.fps,
        tasks=dict(Counter(episode.instruction for episode in episodes)),
        views=views,
        features={n: FeatureInfo(dtype="float32", shape=(w,), names=None) for n, w in source.widths.items()},
        length_quantiles=_quantiles(lengths),
        embodiment=embodiment.name if embodiment is not None else None,
        has_statistics=False,
        num_events=0,
        has_checksums=False,
        num_bytes=_bytes_below(path if path.is_dir() else path.parent),
        notes=source.notes if isinstance(source, ReleaseDataset) else (),
    )


def _task_counts(index: EpisodeIndex) -> dict[str, int]:
    counts = np.bincount(index.task_ids, minlength=len(index.tasks))
    return {task: int(n) for task, n in zip(index.tasks, counts, strict=True)}


def _views(schema: Schema) -> dict[str, ViewInfo]:
    cameras = schema.views.items()
    return {
        name: ViewInfo(
            key=f.name, height=f.size[0], width=f.size[1], codec="image" if f.dtype == "image" else f.codec
        )
        for name, f in cameras
    }


def _features(schema: Schema) -> dict[str, FeatureInfo]:
    plain = (f for f in schema.features.values() if not f.is_view and f.name not in BOOKKEEPING)
    return {f.name: FeatureInfo(dtype=f.dtype, shape=f.shape, names=f.names) for f in plain}


def _quantiles(lengths: Int[np.ndarray, " N"]) -> dict[str, float]:
    if not len(lengths):
        return {}
    values: Any = np.quantile(lengths, QUANTILES)
    return {f"{q:.0%}": float(v) for q, v in zip(QUANTILES, values, strict=True)}


def _bytes_below(folder: str | os.PathLike[str]) -> int:
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                total += _bytes_below(entry.path)
            elif entry.is_file():
                total += entry.stat().st_size
    return total

"""What is in a dataset, from its metadata alone: 2,000 episodes are described in a fraction of a second."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hostbot.data.files import Files
from hostbot.data.index import EpisodeIndex, read_index
from hostbot.data.schema import BOOKKEEPING, Schema, Version, parse_schema
from hostbot.data.sidecar import read_embodiment, read_events, steadily

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
    version: Version
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
    has_stats: bool
    num_events: int
    has_checksums: bool
    num_bytes: int


def dataset_info(path: str | os.PathLike[str]) -> DatasetInfo:
    """Describe a dataset from its metadata; no data or video file is opened, only measured."""
    return steadily(Path(path), True, _describe)


def _describe(files: Files) -> DatasetInfo:
    schema = parse_schema(files.read("meta/info.json"), files.path("meta/info.json"))
    index = read_index(files, schema)
    embodiment = read_embodiment(files)
    return DatasetInfo(
        path=os.fspath(files.root),
        version=schema.version,
        robot_type=schema.robot_type,
        num_episodes=len(index),
        num_frames=schema.num_frames,
        hours=schema.num_frames / schema.fps / 3600,
        fps=schema.fps,
        tasks=_task_counts(index),
        views=_views(schema),
        features=_features(schema),
        length_quantiles=_quantiles(index),
        embodiment=embodiment.name if embodiment is not None else None,
        has_stats=_has_stats(files),
        num_events=sum(len(e) for e in read_events(files, index).values()),
        has_checksums=files.has_manifest,
        num_bytes=_bytes_below(files.root),
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


def _quantiles(index: EpisodeIndex) -> dict[str, float]:
    if not len(index):
        return {}
    values: Any = np.quantile(index.length, QUANTILES)
    return {f"{q:.0%}": float(v) for q, v in zip(QUANTILES, values, strict=True)}


def _has_stats(files: Files) -> bool:
    return any(files.exists(f"meta/{name}") for name in ("stats.json", "episodes_stats.jsonl"))


def _bytes_below(folder: str | os.PathLike[str]) -> int:
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                total += _bytes_below(entry.path)
            elif entry.is_file():
                total += entry.stat().st_size
    return total

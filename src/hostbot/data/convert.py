"""Copy any dataset we read into a LeRobot v3.0 dataset, saying everything that does not come along.

Legend: N frames of an episode, K frames that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from hostbot.config import read_json, to_dict, write_json
from hostbot.data.clean import CleanConfig, Cleaned, moving_frames
from hostbot.data.features import FeatureSpec
from hostbot.data.files import SIDECAR
from hostbot.data.release import ReleaseDataset
from hostbot.data.stats import ACTION, STATE, fingerprint
from hostbot.data.store import Dataset
from hostbot.data.write import DatasetWriter
from hostbot.types import DataError, Embodiment, EpisodeSource, Image

_FRAMES_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class ConvertConfig:
    """How a dataset is copied."""

    size: tuple[int, int] | None = None
    """Height and width of every view in the copy; without it each view keeps the size it has in episode 0."""
    clean: CleanConfig | None = None
    """Remove static frames at these thresholds; needs an embodiment."""
    codec: str = "h264"


@dataclass(frozen=True, kw_only=True)
class ConvertReport:
    """What was copied and what was not."""

    num_episodes: int
    num_frames: int
    num_removed: int
    """Static frames left out."""
    left_out: tuple[str, ...]
    """Sentences: everything the source has and the copy has not."""


def convert(
    source: EpisodeSource,
    out: Path,
    config: ConvertConfig,
    *,
    embodiment: Embodiment | None = None,
    resume: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> ConvertReport:
    """Write ``source`` to ``out``; with ``resume`` an interrupted copy goes on after its last whole episode.

    ``embodiment`` says what the numbers mean where the source does not.
    """
    embodiment = embodiment or source.embodiment
    if len(source) == 0:
        raise DataError(f"{source.name} has no episodes: there is nothing to convert")
    if config.clean is not None and embodiment is None:
        raise DataError(
            f"{source.name} does not say what its numbers mean, so static frames cannot be told; "
            "name it with --embodiment"
        )
    plan = _plan(source, config)
    num_removed = 0
    with DatasetWriter(
        out,
        fps=source.fps,
        features=plan.features,
        views={camera.key: camera.size for camera in plan.cameras},
        robot_type=plan.robot_type or (embodiment.name if embodiment else None),
        embodiment=embodiment,
        resume=resume,
        codec=config.codec,
    ) as writer:
        _same_source(out, source, config, resume=writer.num_episodes > 0)
        for index in range(len(source)):
            rows = source.rows(index, list(source.widths))
            cleaned = _cleaned(source, index, rows, config, embodiment)
            num_removed += cleaned.num_removed
            if index >= writer.num_episodes:
                _copy_episode(source, index, writer, plan, rows, cleaned)
            tick()
        return ConvertReport(
            num_episodes=writer.num_episodes,
            num_frames=writer.num_frames,
            num_removed=num_removed,
            left_out=plan.left_out,
        )


@dataclass(frozen=True, kw_only=True)
class _Camera:
    view: str
    key: str
    size: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What the copy will have, and what it will not."""

    features: dict[str, int | FeatureSpec]
    cameras: tuple[_Camera, ...]
    robot_type: str | None
    left_out: tuple[str, ...]


def _plan(source: EpisodeSource, config: ConvertConfig) -> _Plan:
    left_out = []
    features: dict[str, int | FeatureSpec] = dict(source.widths)
    robot_type = None
    if isinstance(source, Dataset):
        described = source.schema.features
        features = {
            n: FeatureSpec(dtype=described[n].dtype, shape=described[n].shape, names=described[n].names)
            for n in features
        }
        robot_type = source.schema.robot_type
        left_out += [f"feature {name!r}: {why}" for name, why in source.unread.items()]
    if isinstance(source, ReleaseDataset):
        left_out += source.notes
    cameras = []
    for view in source.views:
        height, width = source.frames(0, view, [0]).shape[1:3]
        even = max(2, height // 2 * 2), max(2, width // 2 * 2)
        key = view
        if isinstance(source, Dataset):
            feature = source.view_feature(view)
            key = feature.name if "." in feature.name else view
            if feature.dtype == "image":
                left_out.append(
                    f"view {view!r}: stored as pictures, copied as {config.codec} video, not lossless"
                )
            if key != feature.name:
                left_out.append(f"view {view!r}: the name {feature.name!r} becomes observation.images.{view}")
        if config.size is None and even != (height, width):
            left_out.append(
                f"view {view!r}: {height}x{width} becomes {even[0]}x{even[1]}, a video has even sides"
            )
        cameras.append(_Camera(view=view, key=key, size=config.size or even))
    return _Plan(features=features, cameras=tuple(cameras), robot_type=robot_type, left_out=tuple(left_out))


def _same_source(out: Path, source: EpisodeSource, config: ConvertConfig, *, resume: bool) -> None:
    """Note what the copy is made from; a copy of something else must not be gone on with."""
    path = out / SIDECAR / "source.json"
    made_from = {"fingerprint": fingerprint(source), "config": to_dict(config)}
    if not resume:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, made_from)
    elif not path.exists() or read_json(path, DataError) != made_from:
        raise DataError(
            f"{out} was begun from another dataset or with other options; use those, or a new folder"
        )


def _cleaned(
    source: EpisodeSource,
    index: int,
    rows: Mapping[str, np.ndarray],
    config: ConvertConfig,
    embodiment: Embodiment | None,
) -> Cleaned:
    if config.clean is not None and embodiment is not None:
        return moving_frames(tuple(rows[n] for n in (STATE, ACTION) if n in rows), embodiment, config.clean)
    length = source.episode(index).length
    return Cleaned(kept=np.arange(length), num_frames=length)


def _copy_episode(
    source: EpisodeSource,
    index: int,
    writer: DatasetWriter,
    plan: _Plan,
    rows: Mapping[str, np.ndarray],
    cleaned: Cleaned,
) -> None:
    tasks = _frame_tasks(source, index)
    views = {c.key: _stream(source, index, c.view, cleaned.kept, c.size) for c in plan.cameras}
    with writer.episode() as buffer:
        for frame in cleaned.kept:
            images = {key: next(stream) for key, stream in views.items()}
            buffer.add({name: values[frame] for name, values in rows.items()}, images, tasks[frame])
        for event in cleaned.remap(source.events(index)):
            buffer.event(event.name, event.frame)


def _frame_tasks(source: EpisodeSource, index: int) -> Sequence[str]:
    if isinstance(source, Dataset):
        return [source.tasks[number] for number in source.frame_tasks(index)]
    info = source.episode(index)
    return [info.instruction] * info.length


def _stream(
    source: EpisodeSource, index: int, view: str, kept: Int[np.ndarray, " K"], size: tuple[int, int]
) -> Iterator[Image]:
    """Frames one by one, decoded a block at a time so that memory stays small."""
    for first in range(0, len(kept), _FRAMES_AT_ONCE):
        yield from source.frames(index, view, kept[first : first + _FRAMES_AT_ONCE].tolist(), size)

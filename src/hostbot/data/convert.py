"""Copy any dataset we read into a LeRobot v3.0 dataset, saying everything that does not come along.

Legend: N frames of an episode, K frames that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from hostbot.data.clean import CleanConfig, Cleaned, moving_frames
from hostbot.data.release import ReleaseDataset
from hostbot.data.stats import ACTION, STATE
from hostbot.data.store import Dataset
from hostbot.data.write import DatasetWriter
from hostbot.types import DataError, EpisodeSource, Image

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
    resume: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> ConvertReport:
    """Write ``source`` to ``out``; with ``resume`` an interrupted copy goes on after its last whole episode."""
    if len(source) == 0:
        raise DataError(f"{source.name} has no episodes: there is nothing to convert")
    if config.clean is not None and source.embodiment is None:
        raise DataError(f"{source.name} does not say what its numbers mean, so static frames cannot be told")
    sizes = {view: config.size or _even(source.frames(0, view, [0]).shape) for view in source.views}
    num_frames = num_removed = 0
    with DatasetWriter(
        out,
        fps=source.fps,
        features=dict(source.widths),
        views=sizes,
        robot_type=source.embodiment.name if source.embodiment else None,
        embodiment=source.embodiment,
        resume=resume,
        codec=config.codec,
    ) as writer:
        for index in range(len(source)):
            if index >= writer.num_episodes:
                kept = _copy_episode(source, index, writer, sizes, config)
                num_frames, num_removed = num_frames + len(kept.kept), num_removed + kept.num_removed
            tick()
        return ConvertReport(
            num_episodes=writer.num_episodes,
            num_frames=writer.num_frames,
            num_removed=num_removed,
            left_out=tuple(_left_out(source)),
        )


def _even(shape: tuple[int, ...]) -> tuple[int, int]:
    """The size a video can have: encoders take even sides only."""
    return max(2, shape[1] // 2 * 2), max(2, shape[2] // 2 * 2)


def _copy_episode(
    source: EpisodeSource,
    index: int,
    writer: DatasetWriter,
    sizes: dict[str, tuple[int, int]],
    config: ConvertConfig,
) -> Cleaned:
    length = source.episode(index).length
    rows = source.rows(index, list(source.widths))
    if config.clean is not None and source.embodiment is not None:
        streams = tuple(rows[name] for name in (STATE, ACTION) if name in rows)
        cleaned = moving_frames(streams, source.embodiment, config.clean)
    else:
        cleaned = Cleaned(kept=np.arange(length), num_frames=length)
    tasks = _frame_tasks(source, index)
    views = {view: _stream(source, index, view, cleaned.kept, size) for view, size in sizes.items()}
    with writer.episode() as buffer:
        for frame in cleaned.kept:
            images = {view: next(stream) for view, stream in views.items()}
            buffer.add({name: values[frame] for name, values in rows.items()}, images, tasks[frame])
        for event in cleaned.remap(source.events(index)):
            buffer.event(event.name, event.frame)
    return cleaned


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


def _left_out(source: EpisodeSource) -> Iterator[str]:
    if isinstance(source, Dataset):
        yield from (f"feature {name!r}: {why}" for name, why in source.unread.items())
    if isinstance(source, ReleaseDataset):
        yield from (f"episode {folder.name}: marked bad in the release" for folder in source.rejected)

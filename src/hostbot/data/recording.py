"""A Rerun recording of episodes: every view, every number, the instruction and the events, on one timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hostbot.types import BadInput, EpisodeSource, Image

_FRAMES_AT_ONCE = 64
_JPEG_QUALITY = 85


def write_recording(
    source: EpisodeSource,
    episodes: Sequence[int],
    path: Path,
    *,
    max_side: int = 320,
    tick: Callable[[], None] = lambda: None,
) -> None:
    """Write an .rrd file with an entity tree an episode; pictures have at most ``max_side`` pixels a side."""
    try:
        import rerun as rr
    except ImportError:
        raise BadInput("a recording needs Rerun: pip install 'hostbot[rerun]'") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = rr.RecordingStream("hostbot", recording_id=Path(source.name).name)
    stream.save(path)
    try:
        for index in episodes:
            _log_static(rr, stream, source, index)
            _log_numbers(rr, stream, source, index)
            for view in source.views:
                _log_view(rr, stream, source, index, view, max_side)
            tick()
    finally:
        stream.flush()
        stream.disconnect()


def _at(stream: Any, source: EpisodeSource, frame: int) -> None:
    stream.set_time("frame", sequence=frame)
    stream.set_time("seconds", duration=frame / source.fps)


def _log_static(rr: Any, stream: Any, source: EpisodeSource, index: int) -> None:
    root = f"episode_{index}"
    stream.log(f"{root}/instruction", rr.TextDocument(source.episode(index).instruction), static=True)
    for event in source.events(index):
        _at(stream, source, event.frame)
        stream.log(f"{root}/events", rr.TextLog(event.name))


def _log_numbers(rr: Any, stream: Any, source: EpisodeSource, index: int) -> None:
    embodiment = source.embodiment
    for feature, values in source.rows(index, list(source.widths)).items():
        names = [str(axis) for axis in range(values.shape[1])]
        if embodiment is not None and embodiment.dim == values.shape[1]:
            names = embodiment.axis_names()
        entity = f"episode_{index}/{feature.replace('.', '/')}"
        stream.log(entity, rr.SeriesLines(names=names), static=True)
        for frame, row in enumerate(values):
            _at(stream, source, frame)
            stream.log(entity, rr.Scalars(row))


def _log_view(rr: Any, stream: Any, source: EpisodeSource, index: int, view: str, max_side: int) -> None:
    length = source.episode(index).length
    size = _reduced(source.frames(index, view, [0])[0], max_side)
    for first in range(0, length, _FRAMES_AT_ONCE):
        wanted = list(range(first, min(first + _FRAMES_AT_ONCE, length)))
        for frame, picture in zip(wanted, source.frames(index, view, wanted, size), strict=True):
            _at(stream, source, frame)
            stream.log(
                f"episode_{index}/views/{view}", rr.Image(picture).compress(jpeg_quality=_JPEG_QUALITY)
            )


def _reduced(picture: Image, max_side: int) -> tuple[int, int]:
    scale = min(1.0, max_side / max(picture.shape[:2]))
    return max(1, round(picture.shape[0] * scale)), max(1, round(picture.shape[1] * scale))

"""Open whatever a user has: a LeRobot dataset, the HOST release's episodes, or a folder of videos."""

from __future__ import annotations

from pathlib import Path

from hostbot.data.folder import VideoFolder, find_clips
from hostbot.data.reels import Reels, is_reels
from hostbot.data.release import ReleaseDataset, find_episodes
from hostbot.data.store import open_dataset
from hostbot.types import DataError, EpisodeSource


def open_source(path: Path, fps: float | None = None) -> EpisodeSource:
    """A dataset of any layout we read; ``fps`` is needed, and allowed, only where the layout does not say it."""
    if (path / "meta" / "info.json").exists():
        if fps is not None:
            raise DataError(f"{path} is a LeRobot dataset and says its own frame rate; leave --fps out")
        return open_dataset(path)
    if is_reels(path):
        if fps is not None:
            raise DataError(f"{path} says its own frame rate; leave --fps out")
        return Reels(path)
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if path.is_file() and path.suffix != ".json":
        raise DataError(
            f"{path} is a file; give a dataset's folder (`hostbot video info` looks at one video)"
        )
    if path.is_file() or _has_release_layout(path):
        return ReleaseDataset(
            path, _needed(fps, path, "the HOST release's layout does not say its frame rate")
        )
    if find_clips(path):
        return VideoFolder(path, _needed(fps, path, "videos are read at one control rate"))
    raise DataError(
        f"{path} is no dataset we know: it has neither meta/info.json (LeRobot), nor episode folders with a .json "
        "or instruction.txt and views (HOST release), nor videos"
    )


def _has_release_layout(path: Path) -> bool:
    try:
        return bool(find_episodes(path))
    except DataError:
        return False


def _needed(fps: float | None, path: Path, why: str) -> float:
    if fps is None:
        raise DataError(f"{path}: {why}; give it with --fps")
    return fps

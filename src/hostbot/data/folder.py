"""A folder of people's videos as a dataset of demonstrations: one view, no actions.

Two layouts: ``<task>/<clip>.mp4``, where the task's instruction is in ``<task>/instruction.txt`` or is the
folder's name with spaces for underscores; or ``<clip>.mp4`` beside ``<clip>.txt``, which holds it. Clips of
any rate and size are read at one control rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from hostbot.types import DataError, Embodiment, EpisodeInfo, Event, Frames
from hostbot.video import open_video, resample_times

VIDEO_SUFFIXES = {".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".gif", ".ts", ".3gp", ".mpg", ".mpeg"}
VIEW = "third_person"


def is_video_file(path: Path) -> bool:
    """Whether a file is named like a video."""
    return path.is_file() and path.suffix.lower() in VIDEO_SUFFIXES and not path.name.startswith(".")


def find_clips(root: Path) -> list[Path]:
    """Videos in a folder and in its folders."""
    return sorted(path for depth in ("*", "*/*") for path in root.glob(depth) if is_video_file(path))


class VideoFolder:
    """People's videos as an ``EpisodeSource``."""

    def __init__(self, root: Path, rate_hz: float) -> None:
        if not 0 < rate_hz < 1000:
            raise DataError(f"{root}: the control rate must be above 0 Hz, got {rate_hz}")
        self.root, self.name, self.fps = root, str(root), float(rate_hz)
        self.clips = find_clips(root)
        if not self.clips:
            raise DataError(f"{root} holds no video (looked for {', '.join(sorted(VIDEO_SUFFIXES))})")
        self._reader = lru_cache(maxsize=4)(open_video)
        self._times = lru_cache(maxsize=4096)(self._frame_times)

    views = (VIEW,)
    widths: Mapping[str, int] = {}
    embodiment: Embodiment | None = None

    def __len__(self) -> int:
        return len(self.clips)

    def _frame_times(self, index: int) -> np.ndarray:
        return resample_times(self._reader(self.clips[index]).info.duration_s, self.fps)

    def episode(self, index: int) -> EpisodeInfo:
        """Length at the control rate, and the instruction."""
        instruction = self._instruction(self.clips[index])
        length = len(self._times(index))
        return EpisodeInfo(index=index, length=length, instruction=instruction, tasks=(instruction,))

    def _instruction(self, clip: Path) -> str:
        beside, shared = clip.with_suffix(".txt"), clip.parent / "instruction.txt"
        for path in (beside, shared):
            if path.is_file():
                text = path.read_text(encoding="utf-8", errors="replace").strip()
                if text:
                    return text
                raise DataError(f"{path} is empty: write the task's instruction into it")
        if clip.parent == self.root:
            raise DataError(
                f"{clip} has no instruction: write it into {beside}, or put the clip in a task's folder"
            )
        return clip.parent.name.replace("_", " ")

    def rows(self, index: int, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        """Videos have no numbers."""
        if names:
            raise DataError(f"{self.name} holds videos only; it has no {', '.join(names)}")
        return {}

    def frames(
        self, index: int, view: str, frame_indices: Sequence[int], size: tuple[int, int] | None = None
    ) -> Frames:
        """Frames of a clip at the control rate, letterboxed to ``size`` where one is given."""
        if view != VIEW:
            raise DataError(f"{self.name} has no view {view!r}; it has {VIEW}")
        times = self._times(index)
        wanted = np.asarray(frame_indices, dtype=np.int64)
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < len(times)):
            raise DataError(
                f"{self.clips[index]} has {len(times)} frames at {self.fps} Hz, {wanted.max()} was asked for"
            )
        return self._reader(self.clips[index]).at_times(times[wanted], size, "letterbox")

    def events(self, index: int) -> tuple[Event, ...]:
        """Videos have none."""
        return ()

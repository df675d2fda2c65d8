"""Read the HOST release's episode folders.

An episode is a folder that holds ``<name>.json`` ({"data": [{"follow_left_position": [x, y, z],
"follow_left_rotation": [roll, pitch, yaw], "follow_left_gripper": g, ...}, one entry a frame]}),
``instruction.txt``, a folder of pictures or an mp4 for each view, and perhaps ``info_dtw.json``
({"aligned_progress": {"<frame>": 0..1}}). Rotations become the 6-D form; the follower is the state,
the leader (``master_*``) the action where it was recorded and the follower's own pose where it was not. The
format does not say its frame rate, so the caller must.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from hostbot.config import read_json
from hostbot.data.stats import ACTION, STATE
from hostbot.geometry import convert_rotations, with_rotations
from hostbot.types import DataError, Embodiment, EpisodeInfo, Event, Frames, bimanual
from hostbot.video import PICTURES, Reader, open_video

PROGRESS = "host.progress"
_REJECTED = ("bad_info.json", "bad_info_dtw.json", "bad_action.json")


def find_episodes(path: Path) -> list[Path]:
    """Episode folders at or below a folder, or those that a ``*_video_paths.json`` list names."""
    if path.is_file():
        return _listed(path)
    if is_episode(path):
        return [path]
    found = sorted(
        folder
        for depth in ("*", "*/*", "*/*/*")
        for folder in path.glob(depth)
        if folder.is_dir() and is_episode(folder)
    )
    if not found:
        raise DataError(f"{path} holds no episode of the HOST release's layout (a folder with its own .json)")
    return found


def is_episode(folder: Path) -> bool:
    """Whether a folder has the release's trajectory file, or its instruction beside a folder of pictures.

    An instruction beside mp4 files alone is a task's folder of people's videos (``folder.py``).
    """
    if (folder / f"{folder.name}.json").is_file():
        return True
    return (folder / "instruction.txt").is_file() and any(
        path.is_dir() for path in find_views(folder).values()
    )


def _listed(path: Path) -> list[Path]:
    names = read_json(path, DataError)
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path} must be a list of episode folders")
    folders = [path.parent / name for name in names]
    if missing := [folder for folder in folders if not is_episode(folder)]:
        raise DataError(
            f"{path} names {len(missing)} folder(s) that are no episodes, the first is {missing[0]}"
        )
    return folders


def find_views(folder: Path) -> dict[str, Path]:
    """Views by name: folders of pictures and video files."""
    views = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and any(file.suffix.lower() in PICTURES for file in entry.iterdir()):
            views[entry.name] = entry
        elif entry.suffix.lower() == ".mp4":
            views[entry.stem] = entry
    return views


class ReleaseDataset:
    """The release's episodes as an ``EpisodeSource``."""

    def __init__(self, path: Path, fps: float) -> None:
        if not 0 < fps < 1000:
            raise DataError(f"{path}: the frame rate must be above 0 Hz, got {fps}")
        folders = find_episodes(path)
        self.rejected = [f for f in folders if any((f / name).exists() for name in _REJECTED)]
        """Episodes that the release's own quality filter marked as bad; they are left out."""
        self.folders = [f for f in folders if f not in set(self.rejected)]
        if not self.folders:
            raise DataError(f"{path}: all {len(folders)} episodes are marked bad")
        self.name, self.fps = str(path), float(fps)
        self.views = tuple(find_views(self.folders[0]))
        self.has_actions = _trajectory_file(self.folders[0]).is_file()
        self._check_alike()
        self._without_progress = [f for f in self.folders if not (f / "info_dtw.json").is_file()]
        self._episode = lru_cache(maxsize=4)(_read_episode)
        self._reader = lru_cache(maxsize=8)(self._open)
        self._lengths: dict[int, int] = {}

    def _check_alike(self) -> None:
        for folder in self.folders[1:]:
            views = tuple(find_views(folder))
            if views != self.views:
                raise DataError(f"{folder} has the views {views}, but {self.folders[0]} has {self.views}")
            if _trajectory_file(folder).is_file() != self.has_actions:
                raise DataError(
                    f"{folder} and {self.folders[0]}: one has a trajectory and the other has none"
                )

    @property
    def embodiment(self) -> Embodiment | None:
        """The paper's robot, at the rate that was given."""
        return bimanual(rate_hz=self.fps, views=self.views) if self.has_actions else None

    @property
    def widths(self) -> Mapping[str, int]:
        """State and action, and progress where every episode has it."""
        widths = dict.fromkeys((STATE, ACTION), bimanual().dim) if self.has_actions else {}
        return {**widths, **({} if self._without_progress else {PROGRESS: 1})}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the folders hold that is not served."""
        told = [f"episode {folder.name} is marked bad in the release" for folder in self.rejected]
        missing = len(self._without_progress)
        if 0 < missing < len(self.folders):
            told.append(
                f"{PROGRESS}: {missing} of {len(self.folders)} episodes have no info_dtw.json, so none is served"
            )
        return tuple(told)

    def __len__(self) -> int:
        return len(self.folders)

    def episode(self, index: int) -> EpisodeInfo:
        """Length and instruction."""
        folder = self.folders[index]
        if index not in self._lengths:
            self._lengths[index] = self._count(index)
        instruction = _instruction(folder)
        return EpisodeInfo(
            index=index, length=self._lengths[index], instruction=instruction, tasks=(instruction,)
        )

    def _count(self, index: int) -> int:
        lengths = {view: len(self._reader(index, view)) for view in self.views}
        if self.has_actions:
            lengths["trajectory"] = len(self._episode(self.folders[index])[STATE])
        if len(set(lengths.values())) != 1:
            raise DataError(
                f"{self.folders[index]}: views and trajectory must have one length, got {lengths}"
            )
        return next(iter(lengths.values()))

    def rows(self, index: int, names: Sequence[str]) -> Mapping[str, Float32[np.ndarray, "N _"]]:
        """State, action and progress of an episode."""
        length = self.episode(index).length
        found = {}
        for name in names:
            if name == PROGRESS and not self._without_progress:
                found[name] = _read_progress(self.folders[index] / "info_dtw.json", length)
            elif name in (STATE, ACTION) and self.has_actions:
                found[name] = self._episode(self.folders[index])[name]
            else:
                raise DataError(f"{self.name} has no feature {name!r}; it has {', '.join(self.widths)}")
        return found

    def frames(
        self, index: int, view: str, frame_indices: Sequence[int], size: tuple[int, int] | None = None
    ) -> Frames:
        """Frames of a view, letterboxed to ``size`` where one is given."""
        if view not in self.views:
            raise DataError(f"{self.name} has no view {view!r}; it has {', '.join(self.views)}")
        self.episode(index)
        return self._reader(index, view).frames(frame_indices, size)

    def _open(self, index: int, view: str) -> Reader:
        return open_video(find_views(self.folders[index])[view], folder_fps=self.fps)

    def events(self, index: int) -> tuple[Event, ...]:
        """The format has none."""
        return ()


def _trajectory_file(folder: Path) -> Path:
    return folder / f"{folder.name}.json"


def _instruction(folder: Path) -> str:
    path = folder / "instruction.txt"
    try:
        text = path.read_bytes().decode("utf-8").strip()
    except FileNotFoundError:
        raise DataError(f"{path} is missing: every episode needs its instruction") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is no UTF-8 text") from None
    if not text:
        raise DataError(f"{path} is empty: write the task's instruction into it")
    return text


def _read_episode(folder: Path) -> dict[str, Float32[np.ndarray, "N 20"]]:
    path = _trajectory_file(folder)
    content = read_json(path, DataError)
    frames = content.get("data") if isinstance(content, dict) else None
    if not isinstance(frames, list) or not frames or not all(isinstance(f, dict) for f in frames):
        raise DataError(f'{path} must hold {{"data": [one object a frame]}}')
    state = _vectors(path, frames, "follow")
    leads = any(key.startswith("master_") for frame in frames for key in frame)
    return {STATE: state, ACTION: _vectors(path, frames, "master") if leads else state}


def _vectors(path: Path, frames: list[dict[str, Any]], who: str) -> Float32[np.ndarray, "N 20"]:
    columns = [
        _column(path, frames, f"{who}_{side}_{what}", width)
        for side in ("left", "right")
        for what, width in (("position", 3), ("rotation", 3), ("gripper", 1))
    ]
    euler = with_rotations(bimanual(), "euler")
    return convert_rotations(np.concatenate(columns, axis=1), euler, "rot6d").astype(np.float32)


def _column(path: Path, frames: list[dict[str, Any]], key: str, width: int) -> np.ndarray:
    values = np.empty((len(frames), width))
    for number, frame in enumerate(frames):
        try:
            values[number] = np.asarray(frame[key], dtype=np.float64).reshape(width)
        except KeyError:
            raise DataError(f"{path}: frame {number} lacks {key!r}") from None
        except (TypeError, ValueError):
            raise DataError(f"{path}: frame {number} must have {width} number(s) as {key!r}") from None
    if not np.isfinite(values).all():
        first = int(np.argmin(np.isfinite(values).all(1)))
        raise DataError(f"{path}: {key!r} is not a finite number at frame {first}")
    return values


def _read_progress(path: Path, length: int) -> Float32[np.ndarray, "N 1"]:
    content = read_json(path, DataError)
    table = content.get("aligned_progress") if isinstance(content, dict) else None
    try:
        known = sorted((int(frame), float(value)) for frame, value in table.items())  # type: ignore[union-attr]
    except (AttributeError, TypeError, ValueError):
        raise DataError(f'{path} must hold {{"aligned_progress": {{"<frame>": number}}}}') from None
    frames, values = np.array(known, dtype=np.float64).reshape(-1, 2).T
    if not len(frames) or frames[0] < 0 or frames[-1] >= length or not ((values >= 0) & (values <= 1)).all():
        raise DataError(f"{path}: progress must be in [0, 1] at frames 0..{length - 1}")
    return np.interp(np.arange(length), frames, values).astype(np.float32)[:, None]

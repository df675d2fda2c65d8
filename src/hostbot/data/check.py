"""Look at every byte and every frame of a dataset, and list what is wrong with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hostbot.data.files import Files
from hostbot.data.journal import STAGING, lock, settle
from hostbot.data.schema import BOOKKEEPING
from hostbot.data.sidecar import open_files
from hostbot.data.store import Dataset, open_dataset
from hostbot.types import BadInput

_BLOCK = 64
Progress = Callable[[int, int], None]
"""Called with episodes done and episodes in all."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a full check found."""

    path: str
    problems: tuple[str, ...]
    num_episodes: int
    """Episodes whose rows and frames were all read."""
    num_frames: int
    """Video frames decoded, of one camera; every camera has as many."""
    num_files_verified: int
    """Of these, the ones whose content is what was recorded when they were written."""
    num_files: int
    """Data and video files of the dataset."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass
class _Tally:
    problems: list[str] = field(default_factory=list)
    failures: int = 0

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep a complaint, once, and go on."""
        try:
            yield
        except BadInput as error:
            self.failures += 1
            if str(error) not in self.problems:
                self.problems.append(str(error))


def check_dataset(
    path: str | os.PathLike[str], *, verify: bool = True, progress: Progress | None = None
) -> Report:
    """Read every row, decode every frame and compare every checksum; problems are listed, not raised."""
    tally = _Tally()
    try:
        dataset = open_dataset(path, verify=verify)
    except BadInput as error:
        return _report(path, _Tally([str(error)]), 0, 0, 0, 0)
    used, verified = data_files(dataset), 0
    for relative in dataset.files.manifest:
        with tally.noting():
            dataset.files.checked(relative)
            verified += relative in used
    tally.problems += [
        f"{Path(path) / stray} belongs to no episode; LeRobot would read it: remove it"
        for stray in stray_files(dataset.files, used)
    ]
    episodes = frames = 0
    for index in range(len(dataset)):
        before = tally.failures
        with tally.noting():
            _read_rows(dataset, index)
        for view in dataset.views:
            with tally.noting():
                _read_frames(dataset, index, view)
        if tally.failures == before:
            episodes += 1
            frames += dataset.episode(index).length
        if progress is not None:
            progress(index + 1, len(dataset))
    dataset.close()
    return _report(path, tally, episodes, frames, verified, len(used))


def repair_dataset(path: str | os.PathLike[str]) -> None:
    """Finish the commit of a writer killed half-way, so that LeRobot too finds every file in its place.

    hostbot's own reader needs no repair; damage to files is not repaired but reported by ``check_dataset``.
    """
    root = open_files(Path(path)).root
    with lock(root):
        settle(root)
        shutil.rmtree(root / STAGING, ignore_errors=True)


def _report(
    path: str | os.PathLike[str], tally: _Tally, episodes: int, frames: int, verified: int, files: int
) -> Report:
    return Report(
        path=os.fspath(path),
        problems=tuple(tally.problems),
        num_episodes=episodes,
        num_frames=frames,
        num_files_verified=verified,
        num_files=files,
    )


def _read_rows(dataset: Dataset, index: int) -> None:
    dataset.rows(index, list(dataset.widths))
    dataset.unread_columns(index, [n for n in dataset.unread if n not in BOOKKEEPING])


def _read_frames(dataset: Dataset, index: int, view: str) -> None:
    length = dataset.episode(index).length
    for start in range(0, length, _BLOCK):
        dataset.frames(index, view, range(start, min(start + _BLOCK, length)))


def data_files(dataset: Dataset) -> set[str]:
    """Relative paths of every data and video file the metadata name."""
    return set(dataset.named_files())


def stray_files(files: Files, used: set[str]) -> list[str]:
    """Parquet files below ``data`` that no episode names."""
    return [f for f in files.on_disk("data", ".parquet") if f not in used]

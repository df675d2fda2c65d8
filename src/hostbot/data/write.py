"""Write LeRobot v3.0 datasets that the real ``lerobot`` loads and a crash cannot spoil.

Legend: N frames of an episode. Each episode is first its own data file and its own mp4 a camera, committed
as one (``journal.py``) before ``add_episode`` returns, unless several are asked to be committed together.
Every ``batch`` episodes, and at ``finalize``, these small files are joined by copying packets and row groups
into files of up to 200 MB of video and 100 MB of rows. So a dataset is whole for every reader after every
commit, nothing is encoded twice, and 2,000 episodes do not leave 2,000 files.

An mp4 is also kept below 1,024 s: beyond that LeRobot's float32 seconds miss its own tolerance of 1e-4 s.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from hostbot.data.episode import EpisodeBuffer, data_table
from hostbot.data.features import FeatureSpec, feature_specs
from hostbot.data.files import Files
from hostbot.data.join import Joiner
from hostbot.data.journal import Staging, lock, settle
from hostbot.data.layout import episode_row, stream_path
from hostbot.data.schema import DATA_FILE_MB, VIDEO_FILE_MB
from hostbot.data.state import Kind, State, restore, stage_table
from hostbot.types import BadInput, DataError, Embodiment, Event, Image


class DatasetWriter:
    """A v3.0 dataset being written; use it in a ``with``, which finalizes it.

    ``features`` gives numeric features by width (``{"action": 20}``) or by ``FeatureSpec``; ``views`` gives
    cameras by name and (height, width), a short name becoming ``observation.images.<name>``. ``resume``
    continues a dataset written by hostbot; without it the folder must be new or empty. Without ``durable`` nothing is
    flushed to disk: a kill still loses nothing, a power cut may; for what can be made again. ``together`` episodes are
    committed at once, which is faster where they are short: a kill then loses up to as many less one.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        fps: float,
        features: Mapping[str, int | FeatureSpec],
        views: Mapping[str, tuple[int, int]] | None = None,
        robot_type: str | None = None,
        embodiment: Embodiment | None = None,
        resume: bool = False,
        batch: int = 100,
        codec: str = "h264",
        gop: int = 30,
        data_file_mb: float = DATA_FILE_MB,
        video_file_mb: float = VIDEO_FILE_MB,
        durable: bool = True,
        together: int = 1,
    ) -> None:
        if int(fps) != fps or not 0 < fps <= 1000:
            raise BadInput(f"LeRobot keeps fps as a whole number from 1 to 1000, got {fps}")
        self.root, self.batch, self._durable = Path(root), max(1, batch), durable
        self._together, self._pending = max(1, together), 0
        self._kind = Kind(
            fps=int(fps),
            specs=feature_specs(features, views or {}, embodiment),
            encoder={"codec": codec, "gop": gop},
            robot_type=robot_type,
            embodiment=embodiment,
        )
        self._limits = (int(data_file_mb * 1e6), int(video_file_mb * 1e6))
        if not resume and self.root.exists() and any(self.root.iterdir()):
            raise DataError(
                f"{self.root} is not empty; give a new folder, or resume=True to continue a dataset"
            )
        self._lock = lock(self.root)
        try:
            self._start(resume)
        except BaseException:
            self._lock.close()
            raise

    def _start(self, resume: bool) -> None:
        settle(self.root, self._durable)
        files = Files(self.root)
        self._state = State()
        self._staging = Staging(self.root, files.manifest, self._durable)
        if files.has_manifest:
            self._kind, self._state = restore(files, self._kind)
        elif resume and files.exists("meta/info.json"):
            raise DataError(f"{self.root} was not written by hostbot and cannot be resumed; convert it first")
        else:
            self._commit(self._state)

    @property
    def num_episodes(self) -> int:
        """Episodes written so far."""
        return self._state.num_episodes

    @property
    def num_frames(self) -> int:
        """Frames written so far."""
        return self._state.num_frames

    def add_episode(
        self,
        rows: Mapping[str, np.ndarray | Sequence[Any]],
        views: Mapping[str, Iterable[Image]],
        tasks: str | Sequence[str],
        events: Iterable[Event] = (),
    ) -> int:
        """Write one episode and return its number; unless it waits for others (``together``), no crash can lose it.

        ``rows`` holds every feature with N rows, ``views`` an iterable of N frames a camera, ``tasks`` the
        episode's task or one a frame.
        """
        lengths = {name: len(values) for name, values in rows.items()}
        if not isinstance(tasks, str):
            lengths["tasks"] = len(tasks)
        if len(set(lengths.values())) != 1:
            raise BadInput(
                f"the features of an episode must have one length, got {lengths}; "
                "without features give a task for every frame"
            )
        count = next(iter(lengths.values()))
        with self.episode() as buffer:
            streams = {name: iter(frames) for name, frames in views.items()}
            for n in range(count):
                images = {name: next(stream, None) for name, stream in streams.items()}
                short = [name for name, image in images.items() if image is None]
                if short:
                    raise BadInput(f"view {short[0]!r} has {n} frames but the features have {count} rows")
                row = {name: values[n] for name, values in rows.items()}
                buffer.add(row, images, tasks if isinstance(tasks, str) else tasks[n])  # type: ignore[arg-type]
            for name, stream in streams.items():
                if next(stream, None) is not None:
                    raise BadInput(f"view {name!r} has more frames than the {count} rows of the features")
            for event in events:
                buffer.event(event.name, event.frame)
        return self.num_episodes - 1

    @contextmanager
    def episode(self) -> Iterator[EpisodeBuffer]:
        """An episode written frame by frame; there when the block ends, forgotten if it raises."""
        if self._lock.closed:
            raise BadInput(f"the writer of {self.root} is finalized; open it again with resume=True")
        kind, target = self._kind, self._video_target
        buffer, before = EpisodeBuffer(kind.specs, kind.fps, kind.encoder, target), self._staging.added
        state, pending = self._state, self._pending
        try:
            yield buffer
            buffer.close()
            self._add(buffer)
        except BaseException:
            buffer.abort()
            self._staging.discard(but=before)
            if self._pending > pending:  # staged, not committed: its files have just gone
                self._kind, self._state, self._pending = kind, state, pending
            raise
        if self.num_episodes - self._state.num_joined >= self.batch:
            self._join()

    def finalize(self) -> None:
        """Commit what is not yet, join what is still in one-episode files and release the folder."""
        if self._lock.closed:
            return
        try:
            self._settle()
            if self._state.num_joined < self.num_episodes:
                self._join()
        finally:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finalize()

    def _video_target(self, key: str) -> Path:
        return self._staging.path(stream_path(key, self._state.slot(key)))

    def _add(self, buffer: EpisodeBuffer) -> None:
        """Stage a finished episode; with its turn, commit: files, then all metadata, as one."""
        kind, state = self._kind, self._state
        tasks = dict(state.tasks)
        task_index = [tasks.setdefault(task, len(tasks)) for task in buffer.tasks]
        table = data_table(kind.specs, buffer, state.num_episodes, state.num_frames, task_index, kind.fps)
        stats = buffer.stats(table)
        slots = {stream: state.slot(stream) for stream in ("data", "meta", *kind.video_keys)}
        stage_table(self._staging, stream_path("data", slots["data"]), table)
        for key in kind.video_keys:
            self._staging.add(stream_path(key, slots[key]))
        row = episode_row(
            state.num_episodes, buffer, state.num_frames, slots, kind.video_keys, kind.fps, stats
        )
        stage_table(self._staging, stream_path("meta", slots["meta"]), row)
        specs = {n: buffer.described(n) if s.dtype == "video" else s for n, s in kind.specs.items()}
        self._kind = replace(kind, specs=specs)
        self._state, self._pending = (
            state.plus(len(buffer), tasks, stats, buffer.events, slots),
            self._pending + 1,
        )
        if self._pending >= self._together:
            self._settle()

    def _settle(self) -> None:
        """Commit the episodes that are only staged."""
        if self._pending:
            self._commit(self._state)

    def _join(self) -> None:
        """Join the one-episode files into large ones, as one commit; their metadata move with them."""
        self._settle()
        state, streams = self._state, ("data", *self._kind.video_keys)
        try:
            joiner = Joiner(self._staging, Files(self.root), state.tails, self._kind.fps, self._limits)
            tails, replaced = joiner.join(streams, state.num_episodes - state.num_joined)
        except BaseException:
            self._staging.discard()
            raise
        self._commit(state.joined(tails), replaced)

    def _commit(self, state: State, without: frozenset[str] = frozenset()) -> None:
        """Make what is staged true; if that fails half-way, only a new writer may go on."""
        try:
            state.stage(self._staging, self._kind)
            self._staging.commit(without)
        except BaseException:
            self._lock.close()
            raise
        self._state, self._pending = state, 0

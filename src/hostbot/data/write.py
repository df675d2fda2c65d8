"""Write LeRobot v3.0 datasets that the real ``lerobot`` loads and a crash cannot spoil.

Legend: N frames of an episode. Each episode is first its own data file and its own mp4 a camera, committed
as one (``journal.py``) before ``add_episode`` returns. Every ``batch`` episodes, and at ``finalize``, these
small files are joined by copying packets and row groups into files of up to 200 MB of video and 100 MB of
rows. So a dataset is whole for every reader after every episode, nothing is encoded twice, and 2,000
episodes do not leave 2,000 files.

An mp4 is also kept below 1,024 s: beyond that LeRobot's float32 seconds miss its own tolerance of 1e-4 s.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from hostbot.data.episode import EpisodeBuffer, data_table
from hostbot.data.feature_stats import Stats, aggregate, from_json, to_json
from hostbot.data.features import FeatureSpec, feature_specs
from hostbot.data.files import EMBODIMENT, EVENTS, SIDECAR, Files, parse_json
from hostbot.data.index import dump_tasks
from hostbot.data.join import Joiner
from hostbot.data.journal import Staging, lock, settle
from hostbot.data.layout import episode_row, stream_path
from hostbot.data.merge import Slot, parquet_writer
from hostbot.data.schema import CHUNKS_SIZE, DATA_FILE_MB, V3_DATA, V3_VIDEO, VIDEO_FILE_MB
from hostbot.data.sidecar import dump_embodiment, dump_events
from hostbot.data.store import Dataset
from hostbot.types import BadInput, DataError, Embodiment, Event, Image

WRITER = f"{SIDECAR}/writer.json"


class DatasetWriter:
    """A v3.0 dataset being written; use it in a ``with``, which finalizes it.

    ``features`` gives numeric features by width (``{"action": 20}``) or by ``FeatureSpec``; ``views`` gives
    cameras by name and (height, width), a short name becoming ``observation.images.<name>``. ``resume``
    continues a dataset written by hostbot; without it the folder must be new or empty.
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
    ) -> None:
        if int(fps) != fps or not 0 < fps <= 1000:
            raise BadInput(f"LeRobot keeps fps as a whole number from 1 to 1000, got {fps}")
        self.root, self.fps, self.batch = Path(root), int(fps), max(1, batch)
        self.robot_type, self.embodiment = robot_type, embodiment
        self.specs = feature_specs(features, views or {}, self.fps, embodiment)
        self._encoder = {"codec": codec, "gop": gop}
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
        self._tasks: dict[str, int] = {}
        self._stats: dict[str, Stats] = {}
        self._events: list[tuple[int, int, str]] = []
        self._num_episodes = self._num_frames = self._num_joined = 0
        settle(self.root)
        files = Files(self.root)
        self._staging = Staging(self.root, files.manifest)
        self._tails: dict[str, Slot | None] = dict.fromkeys(["data", "meta", *self.video_keys])
        """The last joined file of every stream."""
        self._last: dict[str, Slot] = {}
        """The last file of every stream, joined or not."""
        if files.has_manifest:
            self._restore(files)
        elif resume and files.exists("meta/info.json"):
            raise DataError(f"{self.root} was not written by hostbot and cannot be resumed; convert it first")
        else:
            self._commit_empty()

    @property
    def video_keys(self) -> tuple[str, ...]:
        """Feature keys of the cameras."""
        return tuple(s.name for s in self.specs.values() if s.dtype == "video")

    @property
    def num_episodes(self) -> int:
        """Episodes committed so far."""
        return self._num_episodes

    @property
    def num_frames(self) -> int:
        """Frames committed so far."""
        return self._num_frames

    def add_episode(
        self,
        rows: Mapping[str, np.ndarray | Sequence[Any]],
        views: Mapping[str, Iterable[Image]],
        tasks: str | Sequence[str],
        events: Iterable[Event] = (),
    ) -> int:
        """Write one episode and return its number; once this returns, a crash cannot lose it.

        ``rows`` holds every feature with N rows, ``views`` an iterable of N frames a camera, ``tasks`` the
        episode's task or one a frame.
        """
        lengths = {name: len(values) for name, values in rows.items()}
        if not isinstance(tasks, str):
            lengths["tasks"] = len(tasks)
        if len(set(lengths.values())) != 1:
            raise BadInput(f"the features of an episode must have one length, got {lengths}")
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
        return self._num_episodes - 1

    @contextmanager
    def episode(self) -> Iterator[EpisodeBuffer]:
        """An episode written frame by frame; committed when the block ends, forgotten if it raises."""
        if self._lock.closed:
            raise BadInput(f"the writer of {self.root} is finalized; open it again with resume=True")
        buffer = EpisodeBuffer(self.specs, self.fps, self._encoder, self._video_target)
        try:
            yield buffer
            buffer.close()
            self._commit(buffer)
        except BaseException:
            buffer.abort()
            self._staging.discard()
            raise
        if self._num_episodes - self._num_joined >= self.batch:
            self._join()

    def finalize(self) -> None:
        """Join what is still in one-episode files and release the folder."""
        if self._lock.closed:
            return
        try:
            if self._num_joined < self._num_episodes:
                self._join()
        finally:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finalize()

    def _slot(self, stream: str) -> Slot:
        """Where the next one-episode file of a stream goes."""
        return self._last[stream].next() if stream in self._last else Slot(chunk=0, file=0)

    def _video_target(self, key: str) -> Path:
        return self._staging.path(stream_path(key, self._slot(key)))

    def _commit(self, buffer: EpisodeBuffer) -> None:
        """Commit a finished episode: its files, then all metadata, as one."""
        number, first, length = self._num_episodes, self._num_frames, len(buffer)
        tasks = dict(self._tasks)
        task_index = [tasks.setdefault(task, len(tasks)) for task in buffer.tasks]
        table = data_table(self.specs, buffer, number, first, task_index, self.fps)
        stats = buffer.stats(table, self.specs)
        slots = {stream: self._slot(stream) for stream in self._tails}
        self._write_table(stream_path("data", slots["data"]), table)
        for key in self.video_keys:
            self._staging.add(stream_path(key, slots[key]))
            self.specs[key] = buffer.described(key)
        row = episode_row(number, buffer, first, slots, self.video_keys, self.fps, stats)
        self._write_table(stream_path("meta", slots["meta"]), row)
        merged = {name: aggregate(self._stats.get(name), s) for name, s in stats.items()}
        events = self._events + [(number, event.frame, event.name) for event in buffer.events]
        self._write_meta(number + 1, first + length, tasks, merged, events, self._num_joined)
        self._staging.commit()
        self._tasks, self._stats, self._events = tasks, merged, events
        self._num_episodes, self._num_frames = number + 1, first + length
        self._last |= slots

    def _write_table(self, relative: str, table: pa.Table) -> None:
        with parquet_writer(self._staging.path(relative), table.schema) as writer:
            writer.write_table(table, row_group_size=max(1, len(table)))
        self._staging.add(relative)

    def _write_meta(
        self,
        num_episodes: int,
        num_frames: int,
        tasks: Mapping[str, int],
        stats: Mapping[str, Stats],
        events: Sequence[tuple[int, int, str]],
        num_joined: int,
    ) -> None:
        put = self._staging.write
        self._write_table("meta/tasks.parquet", dump_tasks(tuple(tasks)))
        self._write_table(EVENTS, dump_events(events))
        put("meta/stats.json", _dumps(to_json(stats)))
        put(WRITER, _dumps({"joined_episodes": num_joined, "encoder": self._encoder}))
        if self.embodiment is not None:
            put(EMBODIMENT, _dumps(dump_embodiment(self.embodiment)))
        put("meta/info.json", _dumps(self._info(num_episodes, num_frames, len(tasks))))

    def _info(self, num_episodes: int, num_frames: int, num_tasks: int) -> dict[str, Any]:
        return {
            "codebase_version": "v3.0",
            "robot_type": self.robot_type,
            "total_episodes": num_episodes,
            "total_frames": num_frames,
            "total_tasks": num_tasks,
            "chunks_size": CHUNKS_SIZE,
            "data_files_size_in_mb": DATA_FILE_MB,
            "video_files_size_in_mb": VIDEO_FILE_MB,
            "fps": self.fps,
            "splits": {"train": f"0:{num_episodes}"},
            "data_path": V3_DATA,
            "video_path": V3_VIDEO if self.video_keys else None,
            "features": {name: spec.to_json() for name, spec in self.specs.items()},
        }

    def _commit_empty(self) -> None:
        self._write_meta(0, 0, {}, {}, [], 0)
        self._staging.commit()

    def _restore(self, files: Files) -> None:
        """Continue where the last commit left off, after checking that this is the same kind of dataset."""
        dataset = Dataset(files)
        schema, index = dataset.schema, dataset.index
        theirs = {n: (f.dtype, f.shape) for n, f in schema.features.items()}
        ours = {n: (s.dtype, s.shape) for n, s in self.specs.items()}
        state = parse_json(files.read(WRITER), files.path(WRITER))
        if (schema.fps, theirs, state.get("encoder")) != (self.fps, ours, self._encoder):
            raise DataError(
                f"{self.root} has another fps, encoder or features than asked for; resume with its own"
            )
        if len(dataset):
            info = parse_json(files.read("meta/info.json"), files.path("meta/info.json"))
            self.specs = {n: s.with_info(info["features"][n].get("info")) for n, s in self.specs.items()}
        self.embodiment = self.embodiment or dataset.embodiment
        self.robot_type = self.robot_type or schema.robot_type
        self._tasks = {task: i for i, task in enumerate(index.tasks)}
        self._stats = from_json(parse_json(files.read("meta/stats.json"), files.path("meta/stats.json")))
        self._events = [(i, e.frame, e.name) for i in range(len(dataset)) for e in dataset.events(i)]
        self._num_episodes, self._num_frames = len(index), schema.num_frames
        self._num_joined = int(state["joined_episodes"])
        places = {"data": index.data, **index.videos}
        for stream, where in places.items():
            for episode, held in ((self._num_joined - 1, self._tails), (len(index) - 1, self._last)):
                if episode >= 0:
                    slot = Slot(chunk=int(where.chunk[episode]), file=int(where.file[episode]))
                    frames = int(where.start[episode] + index.length[episode])
                    held[stream] = slot.plus(files.manifest[stream_path(stream, slot)][0], frames)
        meta = files.listing("meta/episodes", ".parquet")
        joined = len(meta) - (self._num_episodes - self._num_joined)
        for count, held in ((joined, self._tails), (len(meta), self._last)):
            if count:
                slot = Slot(chunk=(count - 1) // CHUNKS_SIZE, file=(count - 1) % CHUNKS_SIZE)
                held["meta"] = slot.plus(files.manifest[stream_path("meta", slot)][0], 1)
        dataset.close()

    def _join(self) -> None:
        """Join the one-episode files into large ones, as one commit; their metadata move with them."""
        pending = self._num_episodes - self._num_joined
        joiner = Joiner(self._staging, Files(self.root), self._tails, self.fps, self._limits)
        tails, replaced = joiner.join(pending)
        self._write_meta(
            self._num_episodes, self._num_frames, self._tasks, self._stats, self._events, self._num_episodes
        )
        self._staging.commit(without=replaced)
        self._num_joined, self._tails, self._last = self._num_episodes, dict(tails), tails


def _dumps(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()

"""What a writer knows of its dataset as a whole, staged with every commit and read back to resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from hostbot.config import to_dict
from hostbot.data.feature_stats import Stats, aggregate, from_json, to_json
from hostbot.data.features import FeatureSpec
from hostbot.data.files import EMBODIMENT, EVENTS, SIDECAR, Files, parse_json
from hostbot.data.journal import Staging
from hostbot.data.layout import stream_path
from hostbot.data.merge import Slot, parquet_writer
from hostbot.data.schema import CHUNKS_SIZE, DATA_FILE_MB, V3_DATA, V3_VIDEO, VIDEO_FILE_MB
from hostbot.data.sidecar import dump_events
from hostbot.data.store import Dataset
from hostbot.data.tasks import dump_tasks
from hostbot.types import DataError, Embodiment, Event

WRITER = f"{SIDECAR}/writer.json"
"""{"joined_episodes": episodes in large files, "encoder": {"codec", "gop"}}"""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What does not change from episode to episode."""

    fps: int
    specs: Mapping[str, FeatureSpec]
    encoder: Mapping[str, Any]
    robot_type: str | None
    embodiment: Embodiment | None

    @property
    def video_keys(self) -> tuple[str, ...]:
        """Feature keys of the cameras."""
        return tuple(s.name for s in self.specs.values() if s.dtype == "video")


@dataclass(frozen=True, kw_only=True)
class State:
    """What every commit changes."""

    num_episodes: int = 0
    num_frames: int = 0
    num_joined: int = 0
    """Episodes that are in large files; those after them are each in files of their own."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    stats: Mapping[str, Stats] = field(default_factory=dict)
    events: tuple[tuple[int, int, str], ...] = ()
    tails: Mapping[str, Slot] = field(default_factory=dict)
    """The last large file of every stream."""
    last: Mapping[str, Slot] = field(default_factory=dict)
    """The last file of every stream, large or not."""

    def slot(self, stream: str) -> Slot:
        """Where the next one-episode file of a stream goes."""
        return self.last[stream].next() if stream in self.last else Slot(chunk=0, file=0)

    def plus(
        self,
        length: int,
        tasks: Mapping[str, int],
        stats: Mapping[str, Stats],
        events: list[Event],
        slots: Mapping[str, Slot],
    ) -> State:
        """The state after one more episode."""
        return replace(
            self,
            num_episodes=self.num_episodes + 1,
            num_frames=self.num_frames + length,
            tasks=tasks,
            stats={name: aggregate(self.stats.get(name), s) for name, s in stats.items()},
            events=self.events + tuple((self.num_episodes, e.frame, e.name) for e in events),
            last={**self.last, **slots},
        )

    def joined(self, tails: Mapping[str, Slot]) -> State:
        """The state after every episode has moved into large files."""
        return replace(self, num_joined=self.num_episodes, tails=tails, last=tails)

    def stage(self, staging: Staging, kind: Kind) -> None:
        """Write all metadata but ``meta/episodes``."""
        stage_table(staging, "meta/tasks.parquet", dump_tasks(tuple(self.tasks)))
        stage_table(staging, EVENTS, dump_events(self.events))
        staging.write("meta/stats.json", _dumps(to_json(self.stats)))
        staging.write(WRITER, _dumps({"joined_episodes": self.num_joined, "encoder": dict(kind.encoder)}))
        if kind.embodiment is not None:
            staging.write(EMBODIMENT, _dumps(to_dict(kind.embodiment)))
        staging.write("meta/info.json", _dumps(self._info(kind)))

    def _info(self, kind: Kind) -> dict[str, Any]:
        return {
            "codebase_version": "v3.0",
            "robot_type": kind.robot_type,
            "total_episodes": self.num_episodes,
            "total_frames": self.num_frames,
            "total_tasks": len(self.tasks),
            "chunks_size": CHUNKS_SIZE,
            "data_files_size_in_mb": DATA_FILE_MB,
            "video_files_size_in_mb": VIDEO_FILE_MB,
            "fps": kind.fps,
            "splits": {"train": f"0:{self.num_episodes}"},
            "data_path": V3_DATA,
            "video_path": V3_VIDEO if kind.video_keys else None,
            "features": {name: spec.to_json() for name, spec in kind.specs.items()},
        }


def restore(files: Files, kind: Kind) -> tuple[Kind, State]:
    """The kind and state of a dataset on disk, which must be what the writer was opened for."""
    dataset = Dataset(files)
    schema, index = dataset.schema, dataset.index
    theirs = {n: (f.dtype, f.shape) for n, f in schema.features.items()}
    ours = {n: (s.dtype, s.shape) for n, s in kind.specs.items()}
    noted = parse_json(files.read(WRITER), files.path(WRITER))
    if (schema.fps, theirs, noted.get("encoder")) != (kind.fps, ours, dict(kind.encoder)):
        raise DataError(
            f"{files.root} has another fps, encoder or features than asked for; resume with its own"
        )
    info = parse_json(files.read("meta/info.json"), files.path("meta/info.json"))
    kind = replace(
        kind,
        specs={n: s.with_info(info["features"][n].get("info")) for n, s in kind.specs.items()},
        embodiment=kind.embodiment or dataset.embodiment,
        robot_type=kind.robot_type or schema.robot_type,
    )
    joined = int(noted["joined_episodes"])
    state = State(
        num_episodes=len(index),
        num_frames=schema.num_frames,
        num_joined=joined,
        tasks={task: i for i, task in enumerate(index.tasks)},
        stats=from_json(parse_json(files.read("meta/stats.json"), files.path("meta/stats.json"))),
        events=tuple((i, e.frame, e.name) for i in range(len(dataset)) for e in dataset.events(i)),
        tails=_slots_after(joined, dataset),
        last=_slots_after(len(index), dataset),
    )
    dataset.close()
    return kind, state


def _slots_after(count: int, dataset: Dataset) -> dict[str, Slot]:
    """The file each stream had reached after ``count`` episodes."""
    if count == 0:
        return {}
    index, files, last = dataset.index, dataset.files, count - 1
    slots = {}
    for stream, places in {"data": index.data, **index.videos}.items():
        slot = Slot(chunk=int(places.chunk[last]), file=int(places.file[last]))
        frames = int(places.start[last] + index.length[last])
        slots[stream] = slot.plus(files.manifest[stream_path(stream, slot)][0], frames)
    listed = files.listing("meta/episodes", ".parquet")
    reached = len(listed) - (len(index) - count) - 1
    slot = Slot(chunk=reached // CHUNKS_SIZE, file=reached % CHUNKS_SIZE)
    slots["meta"] = slot.plus(files.manifest[listed[reached]][0], 1)
    return slots


def stage_table(staging: Staging, relative: str, table: pa.Table) -> None:
    """Write a table as one row group and add it."""
    with parquet_writer(staging.path(relative), table.schema) as writer:
        writer.write_table(table, row_group_size=max(1, len(table)))
    staging.add(relative)


def _dumps(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()

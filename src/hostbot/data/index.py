"""Where every episode lies, as compact arrays: which file, which row, which frame of which mp4.

Legend: N episodes, K tasks. Frames inside an mp4 are numbered, never addressed by seconds: LeRobot's float32
seconds miss a frame now and then in long files. Only these columns of ``meta/episodes`` are ever read; the
statistics beside them, most of the file, are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int32, Int64

from hostbot.data.files import Files, parse_json, reading
from hostbot.data.schema import MAX_EPISODE, MAX_EPISODES, Schema, get
from hostbot.data.tasks import ordered, read_tasks, task_numbers
from hostbot.types import DataError

MARK = b"hostbot_manifest"
"""Key in the schema of ``meta/episodes`` files that says a manifest belongs to the dataset."""
_LIMIT = 10**9


@dataclass(frozen=True, kw_only=True)
class Places:
    """File and first position in it of every episode, for the rows or for one camera."""

    chunk: Int32[np.ndarray, " N"]
    file: Int32[np.ndarray, " N"]
    start: Int64[np.ndarray, " N"]

    def key(self) -> Int64[np.ndarray, " N"]:
        """One number a file, for grouping."""
        return (self.chunk.astype(np.int64) << 32) | self.file.astype(np.int64)

    def first_of_file(self) -> Int64[np.ndarray, " N"]:
        """For every episode the first episode of the same file, which stands for the file."""
        _, first, inverse = np.unique(self.key(), return_index=True, return_inverse=True)
        return np.asarray(first[inverse], np.int64)


@dataclass(frozen=True, kw_only=True)
class EpisodeIndex:
    """Everything needed to find an episode."""

    length: Int64[np.ndarray, " N"]
    first: Int64[np.ndarray, " N"]
    """Global number of each episode's first frame."""
    data: Places
    videos: Mapping[str, Places]
    tasks: tuple[str, ...]
    task_offset: Int64[np.ndarray, " N+1"]
    task_ids: Int32[np.ndarray, " _"]

    def __len__(self) -> int:
        return len(self.length)

    def episode_tasks(self, index: int) -> Int32[np.ndarray, " _"]:
        """Numbers of the tasks of an episode, the first being its instruction."""
        return self.task_ids[self.task_offset[index] : self.task_offset[index + 1]]

    def file_totals(self, places: Places) -> Int64[np.ndarray, " N"]:
        """For every episode the rows or frames that the file it is in must have."""
        firsts, ends = places.first_of_file(), places.start + self.length
        totals = np.zeros(len(self), np.int64)
        np.maximum.at(totals, firsts, ends)
        return totals[firsts]


def read_index(files: Files, schema: Schema) -> EpisodeIndex:
    """The index of a dataset of any version, checked for gaps."""
    return _read_v3(files, schema) if schema.version == "v3.0" else _read_v2(files, schema)


def _lines(files: Files, relative: str) -> Iterator[dict[str, Any]]:
    path = files.checked(relative)
    with reading(path), path.open("rb") as file:
        for line in file:
            if line.strip():
                yield parse_json(line, path)


def _read_v2(files: Files, schema: Schema) -> EpisodeIndex:
    path = files.path("meta/tasks.jsonl")
    named = {
        get(r, "task_index", int, path): get(r, "task", str, path) for r in _lines(files, "meta/tasks.jsonl")
    }
    tasks = ordered(named, path, schema)
    number = {task: i for i, task in enumerate(tasks)}
    path = files.path("meta/episodes.jsonl")
    lengths, ids, offsets = [], [], [0]
    for position, record in enumerate(_lines(files, "meta/episodes.jsonl")):
        get(record, "episode_index", int, path, lambda n, p=position: n == p)  # type: ignore[misc]
        lengths.append(get(record, "length", int, path, lambda n: 0 < n <= MAX_EPISODE))
        ids += task_numbers(get(record, "tasks", list, path), number, position, path)
        offsets.append(len(ids))
    length = np.array(lengths, np.int64)
    first = np.cumsum(length) - length
    episode = np.arange(len(length), dtype=np.int32)
    whole = Places(chunk=episode // schema.chunks_size, file=episode, start=np.zeros(len(length), np.int64))
    index = EpisodeIndex(
        length=length,
        first=first,
        data=whole,
        videos=dict.fromkeys(schema.video_keys, whole),
        tasks=tasks,
        task_offset=np.array(offsets, np.int64),
        task_ids=np.array(ids, np.int32),
    )
    _check_totals(index, schema, files)
    return index


def _read_v3(files: Files, schema: Schema) -> EpisodeIndex:
    tasks = read_tasks(files, schema)
    number = {task: i for i, task in enumerate(tasks)}
    names = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    names += ["dataset_from_index", "dataset_to_index"]
    for key in schema.video_keys:
        names += [
            f"videos/{key}/{n}" for n in ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
        ]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    ids: list[int] = []
    offsets = [0]
    listing = files.listing("meta/episodes", ".parquet")
    if not listing and schema.num_episodes:
        raise DataError(f"{files.root}/meta/episodes has no parquet file; restore it from a copy")
    for relative in listing:
        path = files.checked(relative)
        with reading(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
            _check_episode_file(file, [*names, "tasks"], path, files)
            for batch in file.iter_batches(4096, columns=[*names, "tasks"]):
                for name in names:
                    parts[name].append(_plain(batch.column(name), f"column {name}", path))
                for episode, listed in enumerate(batch.column("tasks").to_pylist(), len(offsets) - 1):
                    ids += task_numbers(listed, number, episode, path)
                    offsets.append(len(ids))
    columns = {n: np.concatenate(p) if p else np.zeros(0, np.int64) for n, p in parts.items()}
    return _assemble(columns, tasks, offsets, ids, schema, files)


def _check_episode_file(file: pq.ParquetFile, names: list[str], path: Path, files: Files) -> None:
    missing = sorted(set(names) - set(file.schema_arrow.names))
    if missing:
        raise DataError(f"{path} lacks the column {missing[0]!r}; restore it from a copy")
    if file.metadata.num_rows > MAX_EPISODES:
        raise DataError(f"{path} claims {file.metadata.num_rows} episodes; restore it from a copy")
    if MARK in (file.schema_arrow.metadata or {}) and not files.has_manifest and files.verify:
        raise DataError(
            f"{files.root}/meta/hostbot/manifest.json is missing; restore meta/hostbot, or open with "
            "verify=False to read without checksums, events and embodiment"
        )


def _plain(column: pa.Array, what: str, path: Path) -> np.ndarray:
    if column.null_count or not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise DataError(f"{path} has a {what} that is not all numbers; restore it from a copy")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _assemble(
    columns: Mapping[str, np.ndarray],
    tasks: tuple[str, ...],
    offsets: list[int],
    ids: list[int],
    schema: Schema,
    files: Files,
) -> EpisodeIndex:
    path = files.root / "meta/episodes"
    length = columns["length"]
    first, to = columns["dataset_from_index"], columns["dataset_to_index"]
    _demand(columns["episode_index"] == np.arange(len(length)), path, "is not numbered in order without gaps")
    _demand((length > 0) & (length <= MAX_EPISODE), path, "has an impossible length")
    length = length.astype(np.int64)
    right = (first == np.cumsum(length) - length) & (to == first + length)
    _demand(right, path, "has dataset_from_index and dataset_to_index that do not follow from the lengths")
    data = _places(columns, "data", first, path)
    key = data.key()
    _demand(np.diff(key, prepend=key[:1]) >= 0, path, "lies in an earlier data file than the one before it")
    _, opener, group = np.unique(key, return_index=True, return_inverse=True)
    data = Places(chunk=data.chunk, file=data.file, start=(first - first[opener][group]).astype(np.int64))
    index = EpisodeIndex(
        length=length,
        first=first.astype(np.int64),
        data=data,
        videos={k: _video_places(columns, k, length, schema.fps, path) for k in schema.video_keys},
        tasks=tasks,
        task_offset=np.array(offsets, np.int64),
        task_ids=np.array(ids, np.int32),
    )
    _check_totals(index, schema, files)
    return index


def _places(columns: Mapping[str, np.ndarray], name: str, start: np.ndarray, path: Path) -> Places:
    chunk, file = columns[f"{name}/chunk_index"], columns[f"{name}/file_index"]
    sane = (chunk >= 0) & (chunk < _LIMIT) & (file >= 0) & (file < _LIMIT)
    _demand(sane, path, f"has an impossible {name} file number")
    return Places(chunk=chunk.astype(np.int32), file=file.astype(np.int32), start=start)


def _video_places(
    columns: Mapping[str, np.ndarray], key: str, length: np.ndarray, fps: float, path: Path
) -> Places:
    begin = columns[f"videos/{key}/from_timestamp"] * fps
    end = columns[f"videos/{key}/to_timestamp"] * fps
    sane = np.isfinite(begin) & np.isfinite(end) & (begin > -0.25) & (begin < _LIMIT)
    _demand(sane, path, f"has impossible timestamps for {key}")
    start = np.rint(begin).astype(np.int64)
    _demand(np.abs(begin - start) <= 0.25, path, f"starts between two frames of {key}; is fps right?")
    _demand(
        np.abs(end - begin - length) <= 0.5, path, f"spans another number of frames in {key} than its length"
    )
    places = _places(columns, f"videos/{key}", start, path)
    order = np.lexsort((start, places.key()))
    same = np.diff(places.key()[order], prepend=-1) == 0
    free = start[order] >= np.roll((start + length)[order], 1)
    _demand((free | ~same)[np.argsort(order)], path, f"overlaps another episode in {key}")
    return places


def _demand(right: np.ndarray, path: Path, complaint: str) -> None:
    if not right.all():
        raise DataError(f"{path}: episode {int(np.argmin(right))} {complaint}; restore it from a copy")


def _check_totals(index: EpisodeIndex, schema: Schema, files: Files) -> None:
    counted = (len(index), int(index.length.sum()))
    stated = (schema.num_episodes, schema.num_frames)
    if counted != stated:
        raise DataError(
            f"{files.root}/meta/info.json says {stated[0]} episodes and {stated[1]} frames but the "
            f"episode list has {counted[0]} and {counted[1]}; restore the meta folder from a copy"
        )

"""Rows of one episode out of parquet files that hold many, without reading the rest.

Legend: N frames of an episode. LeRobot writes one row group an episode, but converted and merged datasets
do not, so that rows are found by number; a row group that holds more than the episode is streamed through,
never held.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int64, Shaped

from hostbot.data.files import Files, reading
from hostbot.data.index import EpisodeIndex
from hostbot.data.schema import BOOKKEEPING, NUMERIC, Feature, Schema
from hostbot.types import DataError

_BATCH_ROWS = 4096
K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The last few things opened; the oldest is closed when one too many is opened."""

    def __init__(self, capacity: int, opener: Callable[[K], V], closer: Callable[[V], None]) -> None:
        self.capacity, self._opener, self._closer = capacity, opener, closer
        self._held: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V:
        """The thing under this key, opened if it is not open."""
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key]
        value = self._held[key] = self._opener(key)
        while len(self._held) > self.capacity:
            self._closer(self._held.popitem(last=False)[1])
        return value

    def clear(self) -> None:
        """Close everything."""
        while self._held:
            self._closer(self._held.popitem()[1])


@dataclass(frozen=True)
class _Open:
    path: Path
    file: pq.ParquetFile
    bounds: Int64[np.ndarray, " groups+1"]


class Rows:
    """The data parquet files of a dataset, a few open at a time."""

    def __init__(self, files: Files, schema: Schema, index: EpisodeIndex, max_open: int = 8) -> None:
        self.files, self.schema, self.index = files, schema, index
        self._open: Recent[int, _Open] = Recent(max_open, self._opener, lambda o: o.file.close())
        self._firsts, self._totals = index.data.first_of_file(), index.file_totals(index.data)
        self._sound = np.zeros(len(index), bool)
        self.lock = threading.RLock()

    def relative(self, episode: int) -> str:
        """The data file that holds an episode."""
        chunk, file = int(self.index.data.chunk[episode]), int(self.index.data.file[episode])
        if self.schema.version == "v3.0":
            return self.schema.data_path.format(chunk_index=chunk, file_index=file)
        return self.schema.data_path.format(episode_chunk=chunk, episode_index=file)

    def numbers(self, episode: int, names: Sequence[str]) -> dict[str, Shaped[np.ndarray, "N _"]]:
        """Numeric features of an episode; non-finite values and false row numbers are refused."""
        table = self.table(episode, names)
        path = self.files.path(self.relative(episode))
        return {n: _matrix(table[n], self.schema.features[n], episode, path) for n in names}

    def tasks(self, episode: int) -> Int64[np.ndarray, " N"]:
        """The task of every frame of an episode."""
        column = self.table(episode, ["task_index"])["task_index"]
        return np.asarray(_values(column, 1, "task_index", episode, self.files.path(self.relative(episode))))[
            :, 0
        ]

    def table(self, episode: int, names: Sequence[str]) -> pa.Table:
        """Columns of an episode, after its row numbers have once been found right."""
        with self.lock:
            wanted = list(dict.fromkeys([*names, *(() if self._sound[episode] else BOOKKEEPING)]))
            batches = list(self.batches(episode, wanted))
            table = pa.Table.from_batches(batches)
            if not self._sound[episode]:
                self._check(episode, table, self.files.path(self.relative(episode)))
                self._sound[episode] = True
            return table

    def batches(
        self, episode: int, names: Sequence[str], batch_rows: int = _BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The rows of an episode, a batch at a time, in order and complete."""
        held = self._open.get(int(self._firsts[episode]))
        start = int(self.index.data.start[episode])
        stop = start + int(self.index.length[episode])
        first = int(np.searchsorted(held.bounds, start, "right")) - 1
        last = int(np.searchsorted(held.bounds, stop, "left"))
        position, served = int(held.bounds[first]), 0
        with reading(held.path):
            groups = list(range(first, last))
            for batch in held.file.iter_batches(batch_rows, groups, columns=list(names), use_threads=False):
                skip = max(0, start - position)
                part = batch.slice(skip, max(0, min(len(batch), stop - position) - skip))
                position += len(batch)
                if len(part):
                    served += len(part)
                    yield part
                if position >= stop:
                    break
        if served != stop - start:
            raise DataError(f"{held.path} ends inside episode {episode}; restore it from a copy")

    def has_column(self, episode: int, name: str) -> bool:
        """Whether the file of an episode has a column (language columns may be missing)."""
        return name in self._open.get(int(self._firsts[episode])).file.schema_arrow.names

    def named(self) -> list[str]:
        """Every data file, once."""
        return [self.relative(int(e)) for e in np.unique(self._firsts)]

    def footers(self) -> None:
        """Open every data file once: present, readable, with the columns and rows the metadata promise."""
        for episode in np.unique(self._firsts).tolist():
            # Checksums wait until a file's rows are read: they cost a read of all of it.
            self._footer(episode, self.files.path(self.relative(episode))).file.close()

    def close(self) -> None:
        """Close every open file."""
        self._open.clear()

    def _opener(self, episode: int) -> _Open:
        return self._footer(episode, self.files.checked(self.relative(episode)))

    def _footer(self, episode: int, path: Path) -> _Open:
        """A data file, opened, with the columns and rows the metadata promise."""
        with reading(path):
            file = pq.ParquetFile(path, page_checksum_verification=True)
            groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
            expected = int(self._totals[episode])
            if file.metadata.num_rows != expected or sum(groups) != expected or min(groups, default=0) < 0:
                raise DataError(
                    f"{path} has {file.metadata.num_rows} rows but its episodes have {expected} "
                    "frames; restore it from a copy"
                )
            check_columns(file.schema_arrow, self.schema, path)
        return _Open(path, file, np.cumsum([0, *groups]))

    def _check(self, episode: int, table: pa.Table, path: Path) -> None:
        length, first = int(self.index.length[episode]), int(self.index.first[episode])
        book = {name: _values(table[name], 1, name, episode, path)[:, 0] for name in BOOKKEEPING}
        frame = np.arange(length)
        steps = np.diff(book["timestamp"].astype(np.float64), prepend=-1 / self.schema.fps)
        tolerance = 1e-3 + 2.5e-7 * length / self.schema.fps
        tasks = np.isin(book["task_index"], self.index.episode_tasks(episode))
        for right, complaint in (
            (book["frame_index"] == frame, "frame_index does not count up from 0"),
            (book["episode_index"] == episode, "episode_index is another episode's"),
            (book["index"] == first + frame, "index does not continue from the episode before"),
            (np.abs(steps - 1 / self.schema.fps) <= tolerance, "timestamp does not advance by 1/fps"),
            (tasks, "task_index is not one of the episode's tasks"),
        ):
            if not right.all():
                where = int(np.argmin(right))
                raise DataError(
                    f"{path}: in episode {episode}, frame {where}, {complaint}; restore it from a copy"
                )


def check_columns(found: pa.Schema, schema: Schema, path: Path) -> None:
    """Every feature has its column, of the width ``info.json`` promises."""
    for name, feature in schema.columns.items():
        if name not in found.names:
            if feature.dtype == "language":
                continue
            raise DataError(
                f"{path} has no column for the feature {name!r}; restore it, or correct meta/info.json"
            )
        if found.names.count(name) != 1:
            raise DataError(f"{path} has two columns called {name!r}; restore it from a copy")
        kind = found.field(name).type
        if feature.width is None:
            if not _is_plausible(kind, feature):
                raise DataError(
                    f"{path} has {name!r} as {kind} but meta/info.json says {feature.dtype} of "
                    f"{list(feature.shape)}; correct the one that is wrong"
                )
            continue
        width = kind.list_size if pa.types.is_fixed_size_list(kind) else None
        value = kind.value_type if _is_list(kind) else kind
        numeric = pa.types.is_integer(value) or pa.types.is_floating(value) or pa.types.is_boolean(value)
        scalar = not _is_list(kind)
        if not numeric or (scalar and feature.width != 1) or width not in (None, feature.width):
            raise DataError(
                f"{path} has {name!r} as {kind} but meta/info.json says {feature.dtype} of {feature.width}; "
                "correct the one that is wrong"
            )


def _is_plausible(kind: pa.DataType, feature: Feature) -> bool:
    """Whether a column can hold a feature that is no plain vector; unknown types pass, unread."""
    if feature.dtype == "string":
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
    if feature.dtype == "image":
        return bool(pa.types.is_struct(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
    return feature.dtype not in NUMERIC or _is_list(kind) or isinstance(kind, pa.ExtensionType)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _values(column: pa.ChunkedArray, width: int, name: str, episode: int, path: Path) -> np.ndarray:
    """A column as an array of (rows, width) in its own type."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    rows = len(array)
    whole = array.null_count == 0
    if whole and _is_list(array.type):
        if not pa.types.is_fixed_size_list(array.type):
            whole = bool((np.asarray(array.value_lengths()) == width).all())
        array = array.flatten()
        whole = whole and array.null_count == 0
    if not whole or len(array) != rows * width:
        raise DataError(
            f"{path}: {name!r} of episode {episode} has a row without {width} numbers; restore it"
        )
    return np.asarray(array.to_numpy(zero_copy_only=False)).reshape(rows, width)


def _matrix(column: pa.ChunkedArray, feature: Feature, episode: int, path: Path) -> Shaped[np.ndarray, "N _"]:
    """A feature in the type ``info.json`` gives it, exactly; numbers that do not fit it are refused."""
    values = _values(column, feature.width or 1, feature.name, episode, path)
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = values.astype(feature.dtype)
    sound = np.isfinite(numbers) if numbers.dtype.kind == "f" else numbers == values
    if not sound.all():
        frame = int(np.argmin(sound.all(axis=1)))
        fault = "is not finite" if numbers.dtype.kind == "f" else f"does not fit {feature.dtype}"
        raise DataError(
            f"{path}: {feature.name!r} of episode {episode} {fault} at frame {frame}; "
            "repair or remove the episode"
        )
    return numbers

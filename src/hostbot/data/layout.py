"""Rows of ``meta/episodes`` and the files they name, as v3.0 lays them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hostbot.data.episode import EpisodeBuffer
from hostbot.data.feature_stats import Stats
from hostbot.data.index import MARK
from hostbot.data.merge import Slot
from hostbot.data.schema import V3_DATA, V3_VIDEO

EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


def stream_path(stream: str, slot: Slot) -> str:
    """Relative path of a file of a stream: ``data``, ``meta`` or a camera's key."""
    template = {"data": V3_DATA, "meta": EPISODES}.get(stream, V3_VIDEO)
    return template.format(video_key=stream, chunk_index=slot.chunk, file_index=slot.file)


def slots_of(rows: pa.Table, stream: str) -> list[Slot]:
    """The file of a stream each row of ``meta/episodes`` names."""
    prefix = "data" if stream == "data" else f"videos/{stream}"
    columns = [rows[f"{prefix}/{name}"].to_pylist() for name in ("chunk_index", "file_index")]
    return [Slot(chunk=chunk, file=file) for chunk, file in zip(*columns, strict=True)]


def moved_rows(rows: pa.Table, moved: Mapping[str, Sequence[tuple[Slot, int]]], fps: int) -> pa.Table:
    """``meta/episodes`` rows that point to the joined files."""
    lengths = rows["length"].to_pylist()
    for stream, placed in moved.items():
        prefix = "data" if stream == "data" else f"videos/{stream}"
        new: dict[str, pa.Array] = {
            "chunk_index": pa.array([slot.chunk for slot, _ in placed], pa.int64()),
            "file_index": pa.array([slot.file for slot, _ in placed], pa.int64()),
        }
        if stream != "data":
            starts = [start for _, start in placed]
            new["from_timestamp"] = pa.array([s / fps for s in starts], pa.float64())
            new["to_timestamp"] = pa.array(
                [(s + n) / fps for s, n in zip(starts, lengths, strict=True)], pa.float64()
            )
        for name, array in new.items():
            rows = rows.set_column(rows.schema.get_field_index(f"{prefix}/{name}"), f"{prefix}/{name}", array)
    return rows


def episode_row(
    number: int,
    buffer: EpisodeBuffer,
    first: int,
    slots: Mapping[str, Slot],
    video_keys: Sequence[str],
    fps: int,
    stats: Mapping[str, Stats],
) -> pa.Table:
    """One row of ``meta/episodes``."""
    length = len(buffer)
    row: dict[str, tuple[Any, pa.DataType]] = {
        "episode_index": (number, pa.int64()),
        "tasks": (list(dict.fromkeys(buffer.tasks)), pa.list_(pa.string())),
        "length": (length, pa.int64()),
        "data/chunk_index": (slots["data"].chunk, pa.int64()),
        "data/file_index": (slots["data"].file, pa.int64()),
        "dataset_from_index": (first, pa.int64()),
        "dataset_to_index": (first + length, pa.int64()),
    }
    for key in video_keys:
        row[f"videos/{key}/chunk_index"] = (slots[key].chunk, pa.int64())
        row[f"videos/{key}/file_index"] = (slots[key].file, pa.int64())
        row[f"videos/{key}/from_timestamp"] = (0.0, pa.float64())
        row[f"videos/{key}/to_timestamp"] = (length / fps, pa.float64())
    for feature, entries in stats.items():
        for name, value in entries.items():
            kind = pa.int64() if name == "count" else pa.float64()
            values = np.atleast_1d(value)
            for _ in range(values.ndim):
                kind = pa.list_(kind)
            row[f"stats/{feature}/{name}"] = (values.tolist(), kind)
    row["meta/episodes/chunk_index"] = (slots["meta"].chunk, pa.int64())
    row["meta/episodes/file_index"] = (slots["meta"].file, pa.int64())
    table = pa.table({name: pa.array([value], kind) for name, (value, kind) in row.items()})
    return table.replace_schema_metadata({MARK: b"1"})

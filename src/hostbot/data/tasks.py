"""The table of tasks: every sentence once, numbered from 0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hostbot.data.files import Files, reading
from hostbot.data.schema import Schema
from hostbot.types import DataError


def read_tasks(files: Files, schema: Schema) -> tuple[str, ...]:
    """``meta/tasks.parquet``, whose string column is the frame's index and bears one of two names."""
    path = files.checked("meta/tasks.parquet")
    with reading(path):
        table = pq.read_table(path, page_checksum_verification=True, partitioning=None)
        column = next((n for n in ("task", "__index_level_0__") if n in table.column_names), None)
        if column is None or "task_index" not in table.column_names:
            raise DataError(
                f"{path} must have the columns task and task_index, not {table.column_names}; restore it"
            )
        numbers, names = table["task_index"].to_pylist(), table[column].to_pylist()
    if not all(isinstance(i, int) and isinstance(n, str) for i, n in zip(numbers, names, strict=True)):
        raise DataError(f"{path} has a task without a number or a name; restore it from a copy")
    return ordered(dict(zip(numbers, names, strict=True)), path, schema)


def ordered(named: Mapping[int, str], path: Path, schema: Schema) -> tuple[str, ...]:
    """Tasks by number, which must be 0 to the number ``info.json`` states."""
    if sorted(named) != list(range(len(named))) or len(named) != schema.num_tasks:
        raise DataError(
            f"{path} must number its tasks 0 to {schema.num_tasks - 1} as meta/info.json counts them, "
            f"but has {len(named)} numbers up to {max(named, default=-1)}; restore it from a copy"
        )
    return tuple(named[i] for i in range(len(named)))


def task_numbers(names: object, number: Mapping[str, int], episode: int, path: Path) -> list[int]:
    """Numbers of the tasks an episode lists."""
    listed = [names] if isinstance(names, str) else names
    if (
        not isinstance(listed, list)
        or not listed
        or not all(isinstance(n, str) and n in number for n in listed)
    ):
        raise DataError(
            f"{path} gives episode {episode} tasks that meta/tasks does not list; restore both files"
        )
    return [number[name] for name in listed]


def dump_tasks(tasks: tuple[str, ...]) -> pa.Table:
    """``tasks.parquet`` as pandas would write a frame indexed by the task, which LeRobot relies on."""
    column = {"numpy_type": "object", "metadata": None}
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {"name": "task_index", "field_name": "task_index", "pandas_type": "int64"}
            | {"numpy_type": "int64", "metadata": None},
            {"name": "task", "field_name": "task", "pandas_type": "unicode"} | column,
        ],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.2.0",
    }
    table = pa.table(
        {"task_index": pa.array(range(len(tasks)), pa.int64()), "task": pa.array(tasks, pa.string())}
    )
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})

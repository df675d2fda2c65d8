"""Put several datasets of one kind one after the other, as when many processes each recorded a part.

Videos are taken over file by file, untouched (linked where the disk allows it); rows are copied with their numbers
moved on; nothing is decoded. The result is committed as one, like every other change to a dataset.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hostbot.data.feature_stats import aggregate, from_json
from hostbot.data.features import FeatureSpec
from hostbot.data.files import Files, parse_json
from hostbot.data.journal import Staging, lock
from hostbot.data.layout import slots_of, stream_path
from hostbot.data.merge import Slot, parquet_writer
from hostbot.data.state import WRITER, Kind, State
from hostbot.data.store import Dataset, open_dataset
from hostbot.types import DataError


def concatenate(parts: Sequence[Path], out: Path, *, tick: Callable[[], None] = lambda: None) -> None:
    """Write the episodes of all parts, in order, as one dataset; the parts stay as they are."""
    if not parts:
        raise DataError(f"{out}: there is nothing to put together")
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} is not empty; give a new folder")
    kind = _kind(open_dataset(parts[0]))
    held = lock(out)
    staging = Staging(out, {})
    try:
        state = State(last={}, tails={})
        for part in parts:
            dataset = open_dataset(part)
            _check_alike(dataset, part, kind, parts[0])
            state = _append(dataset, staging, state, kind)
            dataset.close()
            tick()
        state.joined(state.last).stage(staging, kind)
        staging.commit()
    except BaseException:
        shutil.rmtree(out)
        raise
    finally:
        held.close()


def _kind(dataset: Dataset) -> Kind:
    files = dataset.files
    if not files.has_manifest:
        raise DataError(f"{files.root} was not written by hostbot; convert it first (hostbot data convert)")
    features = parse_json(files.read("meta/info.json"), files.path("meta/info.json"))["features"]
    specs = {}
    for name, feature in dataset.schema.features.items():
        info = features[name].get("info") or {}
        specs[name] = FeatureSpec(
            name=name, dtype=feature.dtype, shape=feature.shape, names=feature.names, info=info
        )
    noted = parse_json(files.read(WRITER), files.path(WRITER))
    return Kind(
        fps=int(dataset.fps),
        specs=specs,
        encoder=noted["encoder"],
        robot_type=dataset.schema.robot_type,
        embodiment=dataset.embodiment,
    )


def _check_alike(dataset: Dataset, part: Path, kind: Kind, first: Path) -> None:
    found = _kind(dataset)
    for what in ("fps", "specs", "encoder", "robot_type", "embodiment"):
        if getattr(found, what) != getattr(kind, what):
            name = "features" if what == "specs" else what
            raise DataError(f"{part} and {first} differ in their {name}, so they cannot be one dataset")


def _append(dataset: Dataset, staging: Staging, state: State, kind: Kind) -> State:
    """Take one part over: its data files, its videos, its rows of ``meta/episodes``."""
    files, index = dataset.files, dataset.index
    tasks = dict(state.tasks)
    numbers = np.array([tasks.setdefault(task, len(tasks)) for task in index.tasks], np.int64)
    last = dict(state.last)
    moved: dict[str, dict[tuple[int, int], Slot]] = {}
    for stream, places in {"data": index.data, **index.videos}.items():
        for chunk, file in dict.fromkeys(zip(places.chunk.tolist(), places.file.tolist(), strict=True)):
            source = files.checked(stream_path(stream, Slot(chunk=chunk, file=file)))
            slot = last[stream].next() if stream in last else Slot(chunk=0, file=0)
            target = stream_path(stream, slot)
            if stream == "data":
                _copy_rows(source, staging.path(target), state, numbers)
            else:
                _take_over(source, staging.path(target))
            staging.add(target)
            moved.setdefault(stream, {})[chunk, file] = last[stream] = slot
    last["meta"] = last["meta"].next() if "meta" in last else Slot(chunk=0, file=0)
    _copy_episodes(files, staging, state, moved, last["meta"])
    stats = from_json(parse_json(files.read("meta/stats.json"), files.path("meta/stats.json")))
    events = tuple(
        (state.num_episodes + i, e.frame, e.name) for i in range(len(dataset)) for e in dataset.events(i)
    )
    return replace(
        state,
        num_episodes=state.num_episodes + len(dataset),
        num_frames=state.num_frames + dataset.num_frames,
        tasks=tasks,
        stats={name: aggregate(state.stats.get(name), s) for name, s in stats.items()},
        events=state.events + events,
        last=last,
    )


def _copy_rows(source: Path, target: Path, state: State, task_numbers: np.ndarray) -> None:
    with (
        pq.ParquetFile(source, page_checksum_verification=True) as file,
        parquet_writer(target, file.schema_arrow) as out,
    ):
        for group in range(file.metadata.num_row_groups):
            table = file.read_row_group(group)
            shifts = {"index": state.num_frames, "episode_index": state.num_episodes}
            for name, shift in shifts.items():
                table = _with(table, name, table[name].to_numpy() + shift)
            table = _with(table, "task_index", task_numbers[table["task_index"].to_numpy()])
            out.write_table(table, row_group_size=max(1, len(table)))


def _copy_episodes(
    files: Files, staging: Staging, state: State, moved: dict[str, dict[tuple[int, int], Slot]], slot: Slot
) -> None:
    listed = files.listing("meta/episodes", ".parquet")
    rows = pa.concat_tables([pq.read_table(files.checked(f), partitioning=None) for f in listed])
    for name, shift in (
        ("episode_index", state.num_episodes),
        ("dataset_from_index", state.num_frames),
        ("dataset_to_index", state.num_frames),
    ):
        rows = _with(rows, name, rows[name].to_numpy() + shift)
    for stream, slots in moved.items():
        prefix = "data" if stream == "data" else f"videos/{stream}"
        placed = [slots[old.chunk, old.file] for old in slots_of(rows, stream)]
        rows = _with(rows, f"{prefix}/chunk_index", np.array([s.chunk for s in placed], np.int64))
        rows = _with(rows, f"{prefix}/file_index", np.array([s.file for s in placed], np.int64))
    for name, value in (("chunk_index", slot.chunk), ("file_index", slot.file)):
        rows = _with(rows, f"meta/episodes/{name}", np.full(len(rows), value, np.int64))
    target = stream_path("meta", slot)
    with parquet_writer(staging.path(target), rows.schema) as writer:
        writer.write_table(rows)
    staging.add(target)


def _with(table: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))


def _take_over(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)

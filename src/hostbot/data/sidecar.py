"""The embodiment and the events that hostbot keeps beside a LeRobot dataset (``files.py`` says where)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from hostbot.config import from_dict, to_dict, write_json
from hostbot.data.files import EMBODIMENT, EVENTS, Files, parse_json, reading
from hostbot.data.index import EpisodeIndex
from hostbot.types import DataError, Embodiment, Event

T = TypeVar("T")
_PATIENCE_S = 5.0


def open_files(root: Path, verify: bool = True) -> Files:
    """The files of a folder that is a LeRobot dataset, or a sentence."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; give the folder that holds meta/info.json")
    files = Files(root, verify)
    if not files.exists("meta/info.json"):
        raise DataError(
            f"{root} is not a LeRobot dataset: it has no meta/info.json; give the folder that holds it"
        )
    return files


def steadily(root: Path, verify: bool, build: Callable[[Files], T]) -> T:
    """Open a folder and read it, again where a writer commits meanwhile: two states must not mix."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        files = open_files(root, verify)
        try:
            return build(files)
        except DataError:
            if time.monotonic() > deadline or not files.has_moved():
                raise
        time.sleep(0.01)


def read_embodiment(files: Files) -> Embodiment | None:
    """``meta/hostbot/embodiment.json``: written with the dataset, or by ``hostbot data stats`` beside another's."""
    if not files.exists(EMBODIMENT):
        return None
    path = files.path(EMBODIMENT)
    return from_dict(Embodiment, parse_json(files.read(EMBODIMENT), path), str(path))


def write_embodiment(root: Path, embodiment: Embodiment) -> None:
    """Say what the numbers of a dataset mean that does not say it itself."""
    path = root / EMBODIMENT
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, to_dict(embodiment))


def read_events(files: Files, index: EpisodeIndex) -> dict[int, tuple[Event, ...]]:
    """``meta/hostbot/events.parquet``, where the sidecar has one."""
    if EVENTS not in files.manifest:
        return {}
    path = files.checked(EVENTS)
    with reading(path):
        table = pq.read_table(path, page_checksum_verification=True, partitioning=None)
        columns = [table[name].to_pylist() for name in ("episode_index", "frame", "name")]
    events: dict[int, list[Event]] = {}
    for episode, frame, name in zip(*columns, strict=True):
        if not 0 <= episode < len(index) or not 0 <= frame < index.length[episode]:
            raise DataError(
                f"{path} has an event at episode {episode}, frame {frame}, which is not there; restore it"
            )
        events.setdefault(episode, []).append(Event(name=name, frame=frame))
    return {episode: tuple(listed) for episode, listed in events.items()}


def dump_events(events: Sequence[tuple[int, int, str]]) -> pa.Table:
    """``events.parquet`` from (episode, frame, name)."""
    columns = list(zip(*events, strict=True)) or [(), (), ()]
    fields = (("episode_index", pa.int64()), ("frame", pa.int64()), ("name", pa.string()))
    return pa.table({n: pa.array(c, k) for c, (n, k) in zip(columns, fields, strict=True)})

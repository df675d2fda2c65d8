"""The embodiment and the events that hostbot keeps beside a LeRobot dataset (``files.py`` says where)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hostbot.data.files import EMBODIMENT, EVENTS, Files, parse_json, reading
from hostbot.data.index import EpisodeIndex
from hostbot.types import DataError, Embodiment, Event, Part


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


def read_embodiment(files: Files) -> Embodiment | None:
    """``meta/hostbot/embodiment.json``, where the sidecar has one."""
    if EMBODIMENT not in files.manifest:
        return None
    path = files.path(EMBODIMENT)
    raw = parse_json(files.read(EMBODIMENT), path)
    with reading(path):
        parts = tuple(Part(name=p["name"], kind=p["kind"], limb=p["limb"]) for p in raw["parts"])
        return Embodiment(name=raw["name"], parts=parts, rate_hz=raw["rate_hz"], views=tuple(raw["views"]))


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


def dump_embodiment(embodiment: Embodiment) -> dict[str, Any]:
    """``embodiment.json``."""
    parts = [{"name": p.name, "kind": p.kind, "limb": p.limb} for p in embodiment.parts]
    views = list(embodiment.views)
    return {"name": embodiment.name, "rate_hz": embodiment.rate_hz, "views": views, "parts": parts}


def dump_events(events: Sequence[tuple[int, int, str]]) -> pa.Table:
    """``events.parquet`` from (episode, frame, name)."""
    columns = list(zip(*events, strict=True)) or [(), (), ()]
    fields = (("episode_index", pa.int64()), ("frame", pa.int64()), ("name", pa.string()))
    return pa.table({n: pa.array(c, k) for c, (n, k) in zip(columns, fields, strict=True)})

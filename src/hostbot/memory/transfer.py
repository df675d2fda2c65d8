"""A memory as a plain folder to copy, keep or publish, and back: ``memory.json``, ``vectors.safetensors``, ``videos/``.

Legend: N entries, t text width, i scene width.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from hostbot.config import from_dict, read_json, to_dict, write_json
from hostbot.memory.embed import unit_scene, unit_text
from hostbot.memory.entry import Embedded, Entry, check_name
from hostbot.memory.files import Videos, sha256_of
from hostbot.memory.memory import LIMITS, DemonstrationMemory
from hostbot.memory.store import FORMAT, Header
from hostbot.types import BadInput
from hostbot.video import open_video


@dataclass(frozen=True, kw_only=True)
class Imported:
    """How many entries came in, and how many were there before."""

    added: int
    known: int
    embedded_anew: bool


def export_memory(memory: DemonstrationMemory, folder: Path) -> int:
    """Write every entry with all versions into a new folder; how many."""
    if folder.exists():
        raise BadInput(f"{folder} exists; export into a new folder")
    header = memory.store.header()
    rows = memory.store.load(0, memory.store.revision().last)
    if header is None or not rows:
        raise BadInput(f"{memory.store.where} is empty: there is nothing to export")
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        _write(aside, header, rows, memory)
        os.rename(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return len(rows)


def _write(folder: Path, header: Header, rows: list[Embedded], memory: DemonstrationMemory) -> None:
    videos = Videos(folder / "videos")
    for row in rows:
        place = videos.place(row.entry.sha256, row.entry.suffix)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(memory.video(row.entry), place)
    vectors = {"text": np.stack([r.text for r in rows]), "scene": np.stack([r.scene for r in rows])}
    save_file(vectors, folder / "vectors.safetensors")
    entries = [to_dict(row.entry) for row in rows]
    write_json(folder / "memory.json", {"format": FORMAT, **to_dict(header), "entries": entries})


def import_memory(memory: DemonstrationMemory, folder: Path) -> Imported:
    """Add what an export holds and this memory lacks; interrupted, it is simply run again.

    Vectors of another encoder are not taken over: instruction and first frame are embedded again.
    """
    rows, embedder = _read(folder)
    known = {entry.id for entry in memory.store.entries()}
    labels = {entry.label for entry in memory.store.entries()}
    fresh = [row for row in rows if row.entry.id not in known]
    anew = embedder != memory.embedder.identity
    for row in fresh:
        video = Videos(folder / "videos").place(row.entry.sha256, row.entry.suffix)
        if not video.is_file() or sha256_of(video) != row.entry.sha256:
            raise BadInput(f"the video of {row.entry.label}, {video}, is missing or not what was exported")
        taken = row.entry.label in labels
        entry = replace(row.entry, version=0) if taken else row.entry
        ready = _embed_anew(memory, entry, video) if anew else replace(row, entry=entry)
        labels.add(memory.store.add(ready, video, memory.embedder.identity).label)
    return Imported(added=len(fresh), known=len(rows) - len(fresh), embedded_anew=anew)


def _embed_anew(memory: DemonstrationMemory, entry: Entry, video: Path) -> Embedded:
    with open_video(video, limits=LIMITS) as reader:
        first = reader.frames([0])[0]
    return Embedded(
        entry=entry,
        text=unit_text(memory.embedder, entry.instruction),
        scene=unit_scene(memory.embedder, first),
    )


def _read(folder: Path) -> tuple[list[Embedded], str]:
    described: Any = read_json(folder / "memory.json")
    try:
        found, embedder, listed = int(described["format"]), str(described["embedder"]), described["entries"]
        vectors = load_file(folder / "vectors.safetensors")
        text, scene = vectors["text"], vectors["scene"]
    except (KeyError, TypeError, ValueError, SafetensorError, OSError) as reason:
        raise BadInput(f"{folder} is no export of a memory: {reason}") from None
    if found > FORMAT:
        raise BadInput(f"{folder} has format {found}, this hostbot reads up to {FORMAT}: update it")
    entries = [from_dict(Entry, values, f"entry {i}") for i, values in enumerate(listed)]
    if not len(entries) == len(text) == len(scene) or not all(np.isfinite(v).all() for v in (text, scene)):
        raise BadInput(f"{folder} has {len(entries)} entries but vectors for {len(text)} and {len(scene)}")
    for entry in entries:
        check_name(entry.name)
    return [
        Embedded(entry=e, text=t, scene=i) for e, t, i in zip(entries, text, scene, strict=True)
    ], embedder

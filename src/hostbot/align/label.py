"""Label a whole dataset: the correspondence of every pair of a robot execution and a demonstration of its task.

Labels lie beside the robot's LeRobot dataset, in ``meta/hostbot/alignment/NAME``: ``alignment.json`` says what was
aligned by what, and ``part-*.parquet`` holds a fixed run of the sorted pairs each. A part is written aside and then
moved into place, so a killed run goes on with the parts that are missing, and machines share the parts out by number.

Legend: T demo frames, N robot frames.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hostbot.align.aligner import Aligner, Alignment
from hostbot.align.cache import fingerprint
from hostbot.align.checkpoint import sync
from hostbot.align.labels import FORMAT, NOTE, SCHEMA, LabelReport, summary
from hostbot.align.videos import Embedded, align_whole, embed_episode
from hostbot.config import read_json, to_dict, write_json
from hostbot.types import BadInput, DataError, EpisodeSource

_EMBEDDED_AT_ONCE = 4096


@dataclass(frozen=True, kw_only=True)
class LabelConfig:
    """What makes a pair unreliable."""

    min_confidence: float | None = None
    """Of the pair; the weights' own threshold where it is not said."""
    max_cost: float | None = None
    """Path cost a step, where one is set."""
    max_dwell: float = 0.75
    """Largest share of an execution that may fall on one frame of the demonstration."""
    max_pace: float = 16.0
    """Largest ratio of the two lengths."""
    pairs_a_part: int = 64


def reason_against(found: Alignment, config: LabelConfig, threshold: float) -> str:
    """Why a pair is left out; empty where it is kept."""
    maps = found.found
    lengths = sorted((len(maps.robot_to_demo), len(maps.demo_to_robot)))
    dwell = np.bincount(maps.robot_to_demo).max() / len(maps.robot_to_demo)
    if lengths[1] > config.max_pace * lengths[0]:
        return "lengths too different"
    if found.confidence < threshold:
        return "confidence too low"
    if config.max_cost is not None and maps.cost > config.max_cost:
        return "path cost too high"
    if dwell > config.max_dwell:
        return "stays on one demo frame"
    return ""


def parts_of_shard(num_pairs: int, config: LabelConfig, shard: tuple[int, int]) -> range:
    """The parts that shard i of n (from 0) makes: a run of neighbours, so that it embeds few episodes."""
    index, total = shard
    if not 0 <= index < total:
        raise BadInput(
            f"shard {index + 1} of {total} does not exist; shards are 1/{total} to {total}/{total}"
        )
    parts = -(-num_pairs // config.pairs_a_part)
    return range(index * parts // total, (index + 1) * parts // total)


def label(
    aligner: Aligner,
    robot: EpisodeSource,
    demo: EpisodeSource,
    pairs: Sequence[tuple[int, int]],
    folder: Path,
    config: LabelConfig,
    *,
    shard: tuple[int, int] = (0, 1),
    tick: Callable[[int], None] = lambda _: None,
) -> LabelReport:
    """Align every (robot, demo) pair of this shard that has no label yet; neighbours should share episodes."""
    if not pairs:
        raise DataError(f"{robot.name} and {demo.name} have no task in common: there is nothing to label")
    parts = parts_of_shard(len(pairs), config, shard)
    _claim(folder, aligner, robot, demo, pairs, config)
    threshold = aligner.config.confident if config.min_confidence is None else config.min_confidence

    @lru_cache(_EMBEDDED_AT_ONCE)
    def embedded(body: str, episode: int) -> Embedded:
        return embed_episode(aligner, robot if body == "robot" else demo, episode)

    demos = "robot" if demo is robot else "demo"
    for part in parts:
        run = pairs[part * config.pairs_a_part : (part + 1) * config.pairs_a_part]
        if _part(folder, part).exists():
            tick(len(run))
            continue
        rows = []
        for robot_episode, demo_episode in run:
            found = align_whole(aligner, embedded(demos, demo_episode), embedded("robot", robot_episode))
            rows.append(_row(robot_episode, demo_episode, found, reason_against(found, config, threshold)))
            tick(1)
        _write(_part(folder, part), rows)
    return summary(folder)


def _row(robot: int, demo: int, found: Alignment, reason: str) -> dict[str, Any]:
    maps = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(found.found).items()}
    if reason:
        maps |= {k: None for k in maps if k != "cost"}
    return {"robot": robot, "demo": demo, "reason": reason, "confidence": found.confidence, **maps}


def _part(folder: Path, part: int) -> Path:
    return folder / f"part-{part:06d}.parquet"


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), aside, compression="zstd")
        sync(aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _claim(
    folder: Path, aligner: Aligner, robot: EpisodeSource, demo: EpisodeSource,
    pairs: Sequence[tuple[int, int]], config: LabelConfig,
) -> None:  # fmt: skip
    """Say what these labels are, or refuse to mix them with others."""
    listed = hashlib.sha256(json.dumps([list(p) for p in pairs]).encode()).hexdigest()
    note = {
        "format": FORMAT, "aligner": aligner.identity, "config": to_dict(config), "num_pairs": len(pairs),
        "pairs": listed, "robot": fingerprint(robot, config), "demo": fingerprint(demo, config),
        "demo_name": demo.name,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / NOTE).exists():
        found = read_json(folder / NOTE, DataError)
        if odd := [k for k in note if found.get(k) != note[k]]:
            raise DataError(
                f"{folder} holds labels made with another {', '.join(odd)}; choose another --name or remove them"
            )
    else:
        write_json(folder / NOTE, note)

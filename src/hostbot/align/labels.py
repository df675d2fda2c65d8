"""Read a dataset's alignment labels: which pairs are reliable, and which frame is which.

They lie in ``meta/hostbot/alignment/NAME`` of the robot's dataset; ``label.py`` writes them.

Legend: T demo frames, N robot frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hostbot.config import read_json
from hostbot.types import Correspondence, DataError

FOLDER, NOTE, FORMAT = "meta/hostbot/alignment", "alignment.json", 1
SCHEMA = pa.schema(
    [
        ("robot", pa.int32()),
        ("demo", pa.int32()),
        ("reason", pa.string()),
        ("confidence", pa.float32()),
        ("cost", pa.float32()),
        ("robot_to_demo", pa.list_(pa.int32())),
        ("demo_to_robot", pa.list_(pa.int32())),
        ("robot_confidence", pa.list_(pa.float32())),
        ("demo_confidence", pa.list_(pa.float32())),
    ]
)


@dataclass(frozen=True, kw_only=True)
class LabelReport:
    """What is labelled so far, by all shards together."""

    num_pairs: int
    num_done: int
    num_kept: int
    left_out: Mapping[str, int]
    """Reason -> pairs."""


def summary(folder: Path) -> LabelReport:
    """What a folder of labels holds so far."""
    reasons: Counter[str] = Counter()
    for path in sorted(folder.glob("part-*.parquet")):
        reasons.update(_column(path, "reason"))
    kept = reasons.pop("", 0)
    return LabelReport(
        num_pairs=int(read_json(folder / NOTE, DataError)["num_pairs"]),
        num_done=kept + sum(reasons.values()),
        num_kept=kept,
        left_out=dict(sorted(reasons.items())),
    )


def _column(path: Path, *names: str) -> Any:
    try:
        table = pq.read_table(path, columns=list(names), partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read ({error}); remove it and label again") from None
    return table[names[0]].to_pylist() if len(names) == 1 else table


class Labels:
    """The labels of a dataset, for training: which pairs are reliable, and each one's correspondence."""

    def __init__(self, folder: Path) -> None:
        note = read_json(folder / NOTE, DataError)
        if note.get("format") != FORMAT:
            raise DataError(
                f"{folder} holds labels of format {note.get('format')}, this version reads {FORMAT}"
            )
        self.folder, self.demo_name, self.report = folder, str(note["demo_name"]), summary(folder)
        if self.report.num_done < self.report.num_pairs:
            raise DataError(
                f"{folder} has labels of {self.report.num_done} of {self.report.num_pairs} pairs; "
                "run the same `hostbot align label` again to finish"
            )
        self._where: dict[tuple[int, int], tuple[Path, int]] = {}
        for path in sorted(folder.glob("part-*.parquet")):
            table = _column(path, "robot", "demo", "reason")
            for row, (robot, demo, reason) in enumerate(
                zip(*(table[n].to_pylist() for n in table.column_names), strict=True)
            ):
                if not reason:
                    self._where[robot, demo] = path, row
        self._table = lru_cache(64)(lambda path: _column(path, *SCHEMA.names))

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, pair: object) -> bool:
        return pair in self._where

    def __reduce__(self) -> tuple[type[Labels], tuple[Path]]:
        return Labels, (self.folder,)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """(robot episode, demo episode) of every reliable pair."""
        return iter(self._where)

    def correspondence(self, robot: int, demo: int) -> Correspondence:
        """The frame maps of a pair."""
        if (robot, demo) not in self._where:
            raise DataError(
                f"{self.folder} has no reliable label of robot episode {robot} with demonstration {demo}"
            )
        path, row = self._where[robot, demo]
        values = self._table(path).slice(row, 1).to_pylist()[0]
        kinds = {"robot_to_demo": np.int64, "demo_to_robot": np.int64}
        arrays = {n: np.asarray(values[n], kinds.get(n, np.float64)) for n in SCHEMA.names[5:]}
        return Correspondence(**arrays, cost=float(values["cost"]))

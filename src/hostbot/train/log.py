"""The record of a run: JSON lines always, TensorBoard where it is asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostbot.types import BadInput


class Log:
    """``RUN/log.jsonl``, one object a line; a full disk is told once and does not stop the run."""

    def __init__(self, run: Path, step: int, tensorboard: bool = False) -> None:
        """What an interrupted run logged after the step it is resumed from is forgotten."""
        self.path = run / "log.jsonl"
        self.failed = ""
        self._forget(step)
        self._board = _board(run / "tensorboard", step) if tensorboard else None

    def _forget(self, step: int) -> None:
        if not self.path.exists():
            return
        kept = [line for line in read_log(self.path) if line["step"] <= step]
        aside = self.path.with_suffix(".tmp")
        aside.write_text("".join(json.dumps(line) + "\n" for line in kept))
        os.replace(aside, self.path)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record; ``step`` must be among its values."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            self.failed = self.failed or f"{self.path} cannot be written: {error.strerror}"
        if self._board is not None:
            for name, value in record.items():
                if isinstance(value, (int, float)) and name != "step":
                    self._board.add_scalar(name, value, record["step"])
            self._board.flush()

    def picture(self, name: str, step: int, image: Any) -> None:
        """A picture (h, w, 3) for TensorBoard."""
        if self._board is not None:
            self._board.add_image(name, image, step, dataformats="HWC")


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise BadInput("TensorBoard is not installed: pip install 'hostbot[tensorboard]'") from None
    return SummaryWriter(str(folder), purge_step=step + 1)


def read_log(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a log; a last one cut off by a kill is left out."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


class Meter:
    """Sums of a step's figures since the last line, kept in checkpoints so that a resumed log is the same."""

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}

    def add(self, name: str, value: float, weight: float = 1.0) -> None:
        """Count a value."""
        if weight:
            total = self.sums.setdefault(name, [0.0, 0.0])
            total[0] += value * weight
            total[1] += weight

    def take(self) -> dict[str, float]:
        """Means since the last call."""
        means = {name: total / count for name, (total, count) in self.sums.items()}
        self.sums = {}
        return means

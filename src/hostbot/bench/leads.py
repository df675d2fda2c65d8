"""Actions that a policy carried out in an evaluation, kept so that an expert can go on from where they lead.

A scene and its actions give the same states again, so no picture of theirs is kept. Legend: N steps, D action width.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from hostbot.config import read_json
from hostbot.sim.catalogue import split
from hostbot.types import BadInput, DataError

RATE_HZ = 16.0
"""Steps a second of what is recorded."""
STRIDE = 1_000_003
"""Between the seeds of two tries at one episode."""
_FOLDER = "executed"
_BETWEEN = "@"
"""Between the task and the seed in a file's name; no task has it in its own."""


@dataclass(frozen=True, kw_only=True)
class Lead:
    """What was carried out in one trial."""

    task: str
    seed: int
    path: Path

    def actions(self) -> Float32[np.ndarray, "N D"]:
        """Every step of it."""
        try:
            found = np.load(self.path)
        except (ValueError, EOFError, OSError):
            raise DataError(f"{self.path} holds no array: evaluate again") from None
        if found.ndim != 2 or found.shape[1] != 20 or not np.isfinite(found).all():
            raise DataError(f"{self.path} holds no actions: evaluate again")
        return found.astype(np.float32)


def lead_of(folder: Path, task: str, seed: int) -> Lead:
    """The trial of a task in a scene."""
    return Lead(task=task, seed=seed, path=folder / _FOLDER / f"{task}{_BETWEEN}{seed}.npy")


def keep_executed(folder: Path, task: str, seed: int, actions: Float32[np.ndarray, "N D"]) -> None:
    """Write down what a trial's robot did."""
    path = lead_of(folder, task, seed).path
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".tmp")
    with aside.open("wb") as file:
        np.save(file, actions)
    aside.rename(path)


def leads(folder: Path) -> list[Lead]:
    """All trials whose actions were kept; only training tasks may be learned from."""
    found = []
    for path in sorted((folder / _FOLDER).glob("*.npy")):
        name, _, seed = path.stem.rpartition(_BETWEEN)
        if not name or not seed.isdecimal():
            raise DataError(f"{path} is not named after a task and a seed")
        found.append(Lead(task=name, seed=int(seed), path=path))
    if not found:
        raise BadInput(f"{folder} holds no actions: evaluate with --keep-actions")
    told = folder / "evaluation.json"
    config = read_json(told)["config"] if told.exists() else {}
    if config.get("rate_hz", RATE_HZ) != RATE_HZ or config.get("suite", {}).get("perturb", "none") != "none":
        raise BadInput(
            f"{folder} was evaluated at another rate or in changed scenes: its actions lead elsewhere"
        )
    if max(lead.seed for lead in found) >= STRIDE:
        raise BadInput(f"seeds of scenes that robots are led in are below {STRIDE}: evaluate others")
    foreign = sorted({lead.task for lead in found} - set(split().train))
    if foreign:
        raise BadInput(
            f"{folder} holds {foreign[0]!r}, which is no training task: nothing is to be learned from it"
        )
    return found

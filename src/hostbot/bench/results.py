"""An evaluation's settings and trials, and where they are kept: one line a trial, whatever happens.

Legend: D action width, N steps.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from hostbot.bench.films import Filmed
from hostbot.bench.metrics import Result, localisation_error
from hostbot.bench.suites import SuiteConfig, Trial
from hostbot.bench.worker import Expert, Outcome, Seen
from hostbot.config import read_json, to_dict, write_json
from hostbot.policy.execution import ExecutionConfig
from hostbot.policy.session import Decision
from hostbot.sim.catalogue import split, task
from hostbot.types import ActionChunk, BadInput

TRIALS, CLAIM = "trials.jsonl", "evaluation.json"


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """How an evaluation is run. ``workers`` and ``in_flight`` change only how long it takes."""

    suite: SuiteConfig = field(default_factory=SuiteConfig)
    wave: int = 8
    """Trials that decide together."""
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    """A lead is played as a delay of so many steps between looking and acting."""
    driver: Literal["player", "expert"] = "player"
    """``expert``: the expert acts and the player only says where it thinks it is."""
    after: str = ""
    """Event up to which the expert acts; the player watches, and goes on from there."""
    size: int = 96
    """Height and width at which views are drawn, as the training data's were."""
    rate_hz: float = 16.0
    """Control steps a second, the policy's."""
    seconds: float = 14.0
    pace: float | None = None
    """How fast the human video is played; None is the policy's own."""
    workers: int = 1
    in_flight: int = 2
    """Waves under way at once."""

    def same(self) -> dict[str, Any]:
        """What decides the results."""
        plain = to_dict(self)
        # Evaluations that were begun before there was such a thing can be gone on with.
        if not self.execution.stir:
            del plain["execution"]["stir"]
        if not self.after:
            del plain["after"]
        return {name: value for name, value in plain.items() if name not in ("workers", "in_flight")}


@dataclass
class Row:
    """One trial under way."""

    trial: Trial
    worker: int
    slot: int
    film: Filmed | None = None
    expert: Expert | None = None
    session: Any = None
    seen: Seen | None = None
    chunk: ActionChunk | None = None
    pending: Float32[np.ndarray, "N D"] | None = None
    """Actions of the last chunk still to be carried out while the next is thought of."""
    chunks: list[tuple[int, ActionChunk]] = field(default_factory=list)
    executed: list[Float32[np.ndarray, "N D"]] = field(default_factory=list)
    """What it was told to do; the last of it perhaps not to the end."""
    result: Result | None = None

    @property
    def ready(self) -> bool:
        """Whether it has nothing to wait for."""
        return self.result is not None or self.seen is not None


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A trial that is over, with what its film would be made of."""

    result: Result
    row: Row
    pictures: tuple[np.ndarray, ...] = ()


def read_results(folder: Path) -> dict[tuple[str, int], Result]:
    """Results so far; a line cut short by an interruption is dropped."""
    found = {}
    path = folder / TRIALS
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            result = Result(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue
        found[result.key] = result
    return found


def claim(folder: Path, config: RolloutConfig, identity: str) -> None:
    """Write down what is evaluated, or refuse to go on with something else."""
    folder.mkdir(parents=True, exist_ok=True)
    now = {"config": config.same(), "player": identity, "split": split().sha256}
    path = folder / CLAIM
    if path.exists() and read_json(path) != now:
        raise BadInput(f"{path} is another evaluation's; give its settings again, or another folder")
    write_json(path, now)


def result_of(row: Row, outcome: Outcome, expert_drove: bool) -> Result:
    """What is kept of a trial."""
    film, trial = row.film, row.trial
    assert film is not None
    error, cycles = _localisation(row, film, outcome, expert_drove)
    last = row.chunks[-1][1] if row.chunks else None
    ended = [frame for frame, chunk in row.chunks if isinstance(chunk, Decision) and chunk.finished]
    confidence = [chunk.confidence for _, chunk in row.chunks]
    return Result(
        task=trial.task,
        family=task(trial.task).family,
        seed=trial.seed,
        shown_task=trial.shown_task,
        video_seed=trial.video_seed,
        success=outcome.success,
        followed=outcome.followed,
        frames=outcome.frames,
        touched=outcome.first_touched,
        meant=film.first_touched,
        cycles=len(row.chunks),
        held=sum(isinstance(chunk, Decision) and bool(chunk.held) for _, chunk in row.chunks),
        end_seen=ended[0] if ended else None,
        progress=_known(last.progress if last else None),
        confidence=_known(float(np.mean(confidence)) if confidence else None),
        localisation_error=_known(error),
        localisation_cycles=cycles,
    )


def _localisation(row: Row, film: Filmed, outcome: Outcome, expert_drove: bool) -> tuple[float | None, int]:
    """Known where the demonstration was followed to its end, or the expert acted and noted its own events."""
    beliefs = [(frame, chunk.progress) for frame, chunk in row.chunks]
    if not outcome.followed or row.trial.shown in ("none", "shuffled"):
        return None, 0
    if expert_drove and row.expert is not None:
        return localisation_error(beliefs, row.expert.events, film.events, outcome.frames, film.num_frames)
    return localisation_error(beliefs, outcome.happened, film.happened, outcome.frames, film.num_frames)


def _known(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 6)

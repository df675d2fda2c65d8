"""Evaluate an aligner on a dataset's pairs, progress alignment and clock time side by side.

Legend: N robot frames, T demo frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hostbot.align.aligner import Aligner
from hostbot.align.confidence import auroc
from hostbot.align.evaluate import (
    PairScores,
    Truth,
    clock_event_error,
    event_error,
    kendall_tau,
    nearest,
    phase_r2,
    spread,
)
from hostbot.align.videos import Embedded, align_whole, embed_episode
from hostbot.types import EpisodeSource


@dataclass(frozen=True, kw_only=True)
class EvalPair:
    """A pair of one task, and a demonstration of another to tell it from, where there is one."""

    task: str
    group: str
    robot: int
    demo: int
    wrong_demo: int | None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Everything ``hostbot align eval`` prints."""

    scores: tuple[PairScores, ...]
    confidence: tuple[float, ...]
    """Of pairs of one task."""
    wrong_task: tuple[float, ...]
    backwards: tuple[float, ...]
    r2_aligned: float
    """Phase progression, fitted on robots and tested on demonstrations; mean over tasks."""
    r2_clock: float

    def figures(self) -> dict[str, Any]:
        """As plain numbers; None where a figure needs what the data does not have."""
        found = {
            "pairs": len(self.scores),
            "event_error": spread([s.aligned for s in self.scores]),
            "event_error_clock": spread([s.clock for s in self.scores]),
            "kendall_tau": spread([s.tau for s in self.scores]),
            "phase_r2": self.r2_aligned,
            "phase_r2_clock": self.r2_clock,
            "auroc_wrong_task": auroc(self.confidence, self.wrong_task) if self.wrong_task else None,
            "auroc_backwards": auroc(self.confidence, self.backwards),
            "backwards_told_apart": float(np.mean(np.array(self.confidence) > np.array(self.backwards))),
        }
        return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in found.items()}


def evaluate(
    aligner: Aligner,
    robot: EpisodeSource,
    demo: EpisodeSource,
    pairs: Sequence[EvalPair],
    truth_of: Callable[[EvalPair], Truth],
    tick: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Align every pair, its wrong-task partner and itself backwards; ``truth_of`` knows the true progress."""

    @lru_cache(1024)
    def embedded(body: str, episode: int, backwards: bool = False) -> Embedded:
        return embed_episode(aligner, robot if body == "robot" else demo, episode, backwards=backwards)

    scores, right, wrong, backwards = [], [], [], []
    phases: dict[str, list[tuple[Embedded, Embedded, Truth]]] = {}
    for pair in pairs:
        ours, theirs, truth = embedded("robot", pair.robot), embedded("demo", pair.demo), truth_of(pair)
        found = align_whole(aligner, theirs, ours)
        scores.append(_scores(pair, truth, found.found.robot_to_demo, theirs, ours))
        right.append(found.confidence)
        backwards.append(align_whole(aligner, embedded("demo", pair.demo, True), ours).confidence)
        if pair.wrong_demo is not None:
            wrong.append(align_whole(aligner, embedded("demo", pair.wrong_demo), ours).confidence)
        phases.setdefault(pair.task, []).append((ours, theirs, truth))
        tick()
    r2 = [_phases(found) for found in phases.values()]
    return Evaluation(
        scores=tuple(scores),
        confidence=tuple(right),
        wrong_task=tuple(wrong),
        backwards=tuple(backwards),
        r2_aligned=float(np.mean([a for a, _ in r2])),
        r2_clock=float(np.mean([c for _, c in r2])),
    )


def _scores(pair: EvalPair, truth: Truth, matched: np.ndarray, demo: Embedded, robot: Embedded) -> PairScores:
    return PairScores(
        group=pair.group,
        aligned=event_error(matched, truth),
        clock=clock_event_error(truth),
        tau=kendall_tau(nearest(demo.points, robot.points)),
    )


def _phases(found: Sequence[tuple[Embedded, Embedded, Truth]]) -> tuple[float, float]:
    """R squared from embeddings, and from relative time alone."""
    robots = [(ours, truth.robot_progress[ours.steps]) for ours, _, truth in found]
    demos = [(theirs, truth.demo_progress[theirs.steps]) for _, theirs, truth in found]
    aligned = phase_r2([(v.points, p) for v, p in robots], [(v.points, p) for v, p in demos])
    times = [[(np.linspace(0, 1, len(p))[:, None], p) for _, p in videos] for videos in (robots, demos)]
    return aligned, phase_r2(times[0], times[1])

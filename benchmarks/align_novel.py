"""Alignment of human and robot videos of the bench's novel tasks, beside clock time: errors at events, per family.

The datasets come from ``hostbot sim record --split novel --episodes-per-task 6 --first-seed 880000 --out FOLDER``.
Demonstration k of a task is paired with execution k of it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import measure
import numpy as np
import torch
from align_truth import truths

from hostbot.align.aligner import Aligner, load_aligner
from hostbot.align.confidence import auroc, features
from hostbot.align.evaluate import clock_event_error, event_error
from hostbot.align.videos import Embedded, align_whole, embed_episode
from hostbot.cli.align_common import by_task, dataset_at
from hostbot.cli.align_eval import families_of_tasks
from hostbot.types import EpisodeSource

GOAL, PAPER = 0.015, 0.006
COLUMNS = ("robot events", "human events", "both", "clock", "one robot frame")


@dataclass(frozen=True)
class Row:
    """One pair."""

    task: str
    family: str
    robot: float
    """Error at the robot's events: where in the demonstration they were found."""
    human: float
    """Error at the demonstration's events."""
    clock: float
    frame: float
    """Progress that one frame of the robot's is worth at its events."""
    confidence: float
    closeness: float
    backwards: float
    wrong: tuple[tuple[str, float, float], ...]
    """Family, confidence and closeness of a demonstration of another task."""


def judged(aligner: Aligner, demo: Embedded, robot: Embedded) -> tuple[float, float]:
    """Confidence, and how close matched steps are."""
    found = aligner.align(demo.points, robot.points)
    return found.confidence, float(features(demo.points, robot.points, found.found)[0])


def evaluated(aligner: Aligner, robot: EpisodeSource, human: EpisodeSource) -> list[Row]:
    @cache
    def of(body: str, index: int, backwards: bool = False) -> Embedded:
        return embed_episode(aligner, robot if body == "robot" else human, index, backwards=backwards)

    ours, theirs, families = by_task(robot), by_task(human), families_of_tasks()
    rng = np.random.default_rng(0)
    rows = []
    for task in sorted(ours):
        others = [(name, d) for name, found in theirs.items() if name != task for d in found]
        for r, h in zip(ours[task], theirs[task], strict=False):
            found = align_whole(aligner, of("human", h), of("robot", r))
            there, back = truths(robot, r, human, h)
            wrong = [others[i] for i in rng.choice(len(others), 2, replace=False)]
            confidence, closeness = judged(aligner, of("human", h), of("robot", r))
            rows.append(Row(
                task=task, family=families[task], confidence=confidence, closeness=closeness,
                robot=event_error(found.found.robot_to_demo, there),
                human=event_error(found.found.demo_to_robot, back),
                clock=clock_event_error(there),
                frame=float(np.gradient(there.robot_progress)[there.robot_events].mean()),
                backwards=judged(aligner, of("human", h, True), of("robot", r))[0],
                wrong=tuple((families[n], *judged(aligner, of("human", d), of("robot", r))) for n, d in wrong),
            ))  # fmt: skip
            print(f"{len(rows)} pairs", end="\r", flush=True)
    return rows


def mean(rows: list[Row], *names: str) -> float:
    return round(float(np.nanmean([np.mean([getattr(row, name) for name in names]) for row in rows])), 4)


def line(rows: list[Row]) -> dict[str, float]:
    return {
        "pairs": len(rows),
        "robot events": mean(rows, "robot"),
        "human events": mean(rows, "human"),
        "both": mean(rows, "robot", "human"),
        "clock": mean(rows, "clock"),
        "one robot frame": mean(rows, "frame"),
    }


def figures(rows: list[Row], confident: float) -> dict[str, object]:
    right = [row.confidence for row in rows]
    wrong = [(family != row.family, *values) for row in rows for family, *values in row.wrong]
    errors = [np.mean([row.robot, row.human]) for row in rows]
    return {
        "all": line(rows) | {"median of both": round(float(np.nanmedian(errors)), 4)},
        "goal": GOAL,
        "confident": round(float(np.mean([c >= confident for c in right])), 3),
        "confident_of_wrong_task": round(float(np.mean([w[1] >= confident for w in wrong])), 3),
        "confident_backwards": round(float(np.mean([row.backwards >= confident for row in rows])), 3),
        "goal_reached": line(rows)["both"] <= GOAL,
        "auroc_wrong_task": round(auroc(right, [w[1] for w in wrong]), 3),
        "auroc_wrong_task_by_closeness": round(auroc([r.closeness for r in rows], [w[2] for w in wrong]), 3),
        "auroc_wrong_task_of_another_family": round(auroc(right, [w[1] for w in wrong if w[0]]), 3),
        "auroc_backwards": round(auroc(right, [row.backwards for row in rows]), 3),
        "families": {f: line([r for r in rows if r.family == f]) for f in sorted({r.family for r in rows})},
    }


def told(found: dict[str, object]) -> str:
    """The same as a page."""
    total = found["all"]
    lines = [
        f"# Alignment on novel tasks: {total['pairs']} human-robot pairs",
        "",
        f"Mean absolute progress error at events. The goal is {GOAL} (the paper reports {PAPER}): "
        f"{'reached' if found['goal_reached'] else 'not reached'}.",
        "",
        "| family | pairs | robot events | human events | both | clock time | one robot frame is worth |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in [*found["families"].items(), ("all", total)]:
        values = [f"{row[k]:.4f}" for k in COLUMNS]
        lines.append(f"| {name} | {row['pairs']} | " + " | ".join(values) + " |")
    names = {
        "auroc_wrong_task": "same task against wrong task, by confidence",
        "auroc_wrong_task_by_closeness": "the same, by closeness of matched steps alone",
        "auroc_wrong_task_of_another_family": "same task against tasks of other families, by confidence",
        "auroc_backwards": "forwards against backwards, by confidence",
    }
    lines += ["", f"Median of both: {total['median of both']:.4f}.", "", "| AUROC | |", "| --- | --- |"]
    lines += [f"| {what} | {found[key]:.3f} |" for key, what in names.items()]
    shares = [f"{found[k]:.0%}" for k in ("confident", "confident_of_wrong_task", "confident_backwards")]
    lines += [
        "",
        "Counted as the same task: {} of pairs of one task, {} of wrong-task pairs, {} of those backwards.".format(
            *shares
        ),
    ]
    return "\n".join([*lines, "", f"Weights {found['weights']}, commit {found['commit']}.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", type=Path, help="the folder that holds robot/ and human/")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    aligner = load_aligner(arguments.weights)
    robot, human = (dataset_at(arguments.datasets / body) for body in ("robot", "human"))
    found = figures(evaluated(aligner, robot, human), aligner.config.confident) | {
        "weights": aligner.identity,
        "hardware": measure.hardware(torch.device("cpu")),
        "commit": measure.commit(),
    }
    measure.save(arguments.out, "align_novel-cpu", found)
    (arguments.out / "align_novel-cpu.md").write_text(told(found))


if __name__ == "__main__":
    main()

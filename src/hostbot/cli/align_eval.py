"""``hostbot align eval``: alignment beside clock time, on pairs whose events are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from tyro.conf import Positional, arg

from hostbot.cli.align_common import Device, Weights, aligner_at, by_task, dataset_at
from hostbot.cli.show import print_json, print_table, progress
from hostbot.config import provenance, write_json
from hostbot.types import BadInput, DataError, EpisodeSource

if TYPE_CHECKING:
    from hostbot.align.report import EvalPair


@dataclass(frozen=True)
class Eval:
    """How good the alignment is on pairs whose events are known, beside matching by clock time."""

    robot: Annotated[Positional[Path], arg(metavar="ROBOT")]
    """Robot dataset with events (`hostbot sim record` makes one)."""
    human: Annotated[Path | None, arg(metavar="DATASET")] = None
    """Demonstrations with events; the robot's other episodes where it is left out."""
    pairs_per_task: int = 4
    """Pairs drawn of each task."""
    seed: int = 0
    weights: Weights = None
    device: Device = None
    by: Literal["family", "task"] = "family"
    """What the rows of the table are."""
    out: Annotated[Path | None, arg(metavar="FILE.json")] = None
    """Keep all figures here."""
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Align, compare with truth, print."""
        from hostbot.align.evaluate import Truth, table
        from hostbot.align.report import evaluate
        from hostbot.sim.progress import knots
        from hostbot.sim.progress import progress as true_progress

        robot = dataset_at(self.robot)
        demo = dataset_at(self.human) if self.human else robot
        aligner = aligner_at(self.weights, self.device)
        pairs = self._pairs(robot, demo)

        def truth_of(pair: EvalPair) -> Truth:
            events = robot.events(pair.robot), demo.events(pair.demo)
            lengths = robot.episode(pair.robot).length, demo.episode(pair.demo).length
            ours, theirs = true_progress(*events, *lengths)
            inner = knots(*events, *lengths)[0][1:-1].astype(int)
            return Truth(robot_progress=ours, demo_progress=theirs, robot_events=inner)

        with progress("aligning", len(pairs)) as tick:
            found = evaluate(aligner, robot, demo, pairs, truth_of, tick)
        rows = table(found.scores)
        columns = [self.by, "pairs", "event error", "by the clock", "Kendall's tau"]
        figures = found.figures() | {
            "weights": aligner.identity,
            "groups": [dict(zip(columns, row, strict=True)) for row in rows],
            "provenance": provenance(),
        }
        if self.out is not None:
            write_json(self.out, figures)
        if self.json:
            print_json(figures)
            return
        print_table("mean absolute progress error at events", columns, rows)
        _print_figures(figures)

    def _pairs(self, robot: EpisodeSource, demo: EpisodeSource) -> list[EvalPair]:
        from hostbot.align.report import EvalPair

        rng = np.random.default_rng(self.seed)
        ours, theirs = by_task(robot), by_task(demo)
        families = families_of_tasks() if self.by == "family" else {}
        pairs = []
        for task in sorted(ours):
            others = [d for other, episodes in theirs.items() if other != task for d in episodes]
            choices = [
                (r, d) for r in ours[task] for d in theirs.get(task, ())
                if (demo is not robot or r != d) and robot.events(r) and demo.events(d)
            ]  # fmt: skip
            for i in sorted(rng.permutation(len(choices))[: self.pairs_per_task].tolist()):
                wrong = others[int(rng.integers(len(others)))] if others else None
                group = families.get(task, task)
                pairs.append(
                    EvalPair(
                        task=task, group=group, robot=choices[i][0], demo=choices[i][1], wrong_demo=wrong
                    )
                )
        if not pairs:
            raise DataError(
                f"{robot.name} and {demo.name} share no task with recorded events; there is no truth"
            )
        return pairs


def families_of_tasks() -> dict[str, str]:
    """Task -> family for the tasks of the bench."""
    from hostbot.data.pairs import task_key

    try:
        from hostbot.sim.catalogue import tasks
    except ImportError:
        raise BadInput("families are the bench's, which is not installed; pass --by task") from None
    return {task_key(task.instructions[0]): task.family for task in tasks().values()}


def _print_figures(figures: dict[str, object]) -> None:
    def told(value: object) -> str:
        if isinstance(value, dict):
            return f"{value['mean']:.4f} ± {value['deviation']:.4f}" if value else "no events"
        return "–" if value is None else f"{value:.4f}"

    rows = [
        ("progress error at events", told(figures["event_error"]), told(figures["event_error_clock"])),
        ("Kendall's tau, nearest neighbours", told(figures["kendall_tau"]), "1 by definition"),
        ("phase progression R²", told(figures["phase_r2"]), told(figures["phase_r2_clock"])),
        ("AUROC, same task against wrong task", told(figures["auroc_wrong_task"]), "–"),
        ("AUROC, forwards against backwards", told(figures["auroc_backwards"]), "–"),
    ]
    print_table(f"{figures['pairs']} pairs", ["", "aligned", "clock time"], rows)

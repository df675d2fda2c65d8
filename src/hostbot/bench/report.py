"""An evaluation as a table people read and a file programs read. The table holds nothing that depends on the clock."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hostbot.bench.metrics import Figures, Result, figures
from hostbot.config import write_json

RATE_HZ = 16.0
COLUMNS = ("task", "success", "rate", "95 %", "first touch", "seconds", "localisation")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Figures of every task, of every family and of all."""

    tasks: tuple[Figures, ...]
    families: tuple[Figures, ...]
    all: Figures
    mean_of_tasks: float
    """The paper's figure: the mean of the tasks' rates; equal to the overall rate where all have as many trials."""


def report(results: Sequence[Result], rate_hz: float = RATE_HZ) -> Report:
    """Summarise an evaluation, tasks in the order of their names."""
    ordered = sorted(results, key=lambda r: r.key)
    names = sorted({r.task for r in ordered})
    families = sorted({r.family for r in ordered})
    tasks = tuple(figures(name, (r for r in ordered if r.task == name), rate_hz) for name in names)
    return Report(
        tasks=tasks,
        families=tuple(figures(name, (r for r in ordered if r.family == name), rate_hz) for name in families),
        all=figures("all", ordered, rate_hz),
        mean_of_tasks=float(np.mean([task.rate for task in tasks])) if tasks else 0.0,
    )


def row(one: Figures) -> tuple[str, ...]:
    """A line of the table."""
    return (
        one.name,
        f"{one.successes}/{one.n}",
        f"{one.rate:.1%}",
        f"{one.low:.0%} to {one.high:.0%}",
        _share(one.right_first_touch),
        "" if one.seconds is None else f"{one.seconds:.1f}",
        "" if one.localisation_error is None else f"{one.localisation_error:.3f}",
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def markdown(found: Report, title: str) -> str:
    """Families and tasks as two tables, and the total."""
    total = found.all
    lines = [
        f"# {title}",
        "",
        f"{total.successes} of {total.n} trials of {len(found.tasks)} tasks succeeded: {total.rate:.1%} "
        f"(95 % interval {total.low:.1%} to {total.high:.1%}, Wilson); mean of the tasks' rates "
        f"{found.mean_of_tasks:.1%}. In {total.touched:.1%} of trials a thing was touched; the first one was the one "
        f"the video's human touches first in {_share(total.right_first_touch) or 'none'} of these. "
        f"{total.held} cycles were refused.",
    ]
    if total.followed != total.rate:
        lines += ["", f"The task that was shown got done in {total.followed:.1%} of trials."]
    for part in (found.families, found.tasks):
        head = ("family", *COLUMNS[1:]) if part is found.families else COLUMNS
        lines += ["", "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
        lines += ["| " + " | ".join(row(one)) + " |" for one in part]
    lines += ["", f"sha256 of the table's trials: {digest(found)}", ""]
    return "\n".join(lines)


def digest(found: Report) -> str:
    """A hash of all figures: equal for equal tables."""
    return hashlib.sha256(json.dumps(asdict(found), sort_keys=True).encode()).hexdigest()[:16]


def write_report(folder: Path, found: Report, title: str, about: dict[str, Any]) -> None:
    """``report.md`` and ``report.json``, the latter with what the figures came from."""
    (folder / "report.md").write_text(markdown(found, title))
    write_json(folder / "report.json", {"digest": digest(found), **asdict(found), **about})

"""How verbs print: one JSON value with --json, else tables and a progress bar for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text


class Tick(Protocol):
    """Called once for each piece of work that is done."""

    def __call__(self, steps: int = 1, total: int | None = None) -> None:
        """Count ``steps`` pieces; ``total`` corrects how many there are."""


def print_json(value: object) -> None:
    """One JSON value on stdout, and nothing else there."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table on stdout; numbers to the right."""
    table = Table(title=Text(title), title_justify="left", header_style="bold", show_header=any(columns))
    body = [list(row) for row in rows]
    for place, column in enumerate(columns):
        numeric = bool(body) and all(isinstance(row[place], (int, float)) for row in body)
        table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in body:
        table.add_row(*(_cell(value) for value in row))
    Console().print(table)


def _cell(value: Any) -> Text:
    """Plain text: brackets in a user's words are no markup."""
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, (int, float)):
        return Text(f"{value:,.4g}" if isinstance(value, float) else f"{value:,}")
    return Text(str(value))


@contextmanager
def progress(what: str, total: int) -> Iterator[Tick]:
    """A bar with rate and time left on stderr; nothing but its last state where stderr is no terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total, rate="")

        def tick(steps: int = 1, total: int | None = None) -> None:
            bar.update(task, advance=steps, total=total)
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            bar.update(task, rate=f"{speed:.1f}/s" if speed else "")

        yield tick

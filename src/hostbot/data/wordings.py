"""Other ways to say what an episode's task says: pairs are found by the task, a policy may be told in any of them.

They lie beside a dataset in ``meta/hostbot/wordings.json``: {"format": 1, "wordings": {task: [a way, another, …]}}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hostbot.config import read_json, write_json
from hostbot.data.files import SIDECAR
from hostbot.types import DataError

Wordings = Mapping[str, Sequence[str]]
_FORMAT = 1


def wordings_path(root: Path) -> Path:
    """Where a dataset has them."""
    return root / SIDECAR / "wordings.json"


def write_wordings(root: Path, wordings: Wordings) -> None:
    """Put them beside a dataset, instead of those that were there."""
    path = wordings_path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"format": _FORMAT, "wordings": {task: list(ways) for task, ways in wordings.items()}})


def read_wordings(root: Path) -> dict[str, tuple[str, ...]]:
    """All ways to say each task; empty where a dataset has none."""
    path = wordings_path(root)
    if not path.exists():
        return {}
    found = read_json(path, DataError)
    listed = found.get("wordings") if isinstance(found, dict) and found.get("format") == _FORMAT else None
    if not isinstance(listed, dict):
        raise DataError(f'{path} is no {{"format": {_FORMAT}, "wordings": {{task: [a way to say it, …]}}}}')
    for task, ways in listed.items():
        if not isinstance(ways, list) or not ways or not all(isinstance(w, str) and w.strip() for w in ways):
            raise DataError(f"{path}: {task!r} needs a list of instructions, none of them empty")
    return {task: tuple(ways) for task, ways in listed.items()}

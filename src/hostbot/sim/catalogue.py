"""All tasks of the bench, and the committed split into training and novel ones.

The split is data (``split.json``): four lists of names and the hash of the first two. A family whose
tasks are all novel is a skill that training never shows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Literal

from hostbot.sim.families import (
    controls,
    cover,
    drawer,
    fold,
    hand_over,
    insert,
    lid,
    lift_tray,
    pick,
    place_beside,
    place_in,
    place_on,
    pour,
    press,
    press_order,
    push,
    rake,
    ring,
    sort,
    stack,
    take_out,
    topple,
    wipe,
)
from hostbot.sim.task import Task
from hostbot.types import BadInput

MODULES = (
    place_in, place_on, place_beside, stack, push, press, press_order, drawer, lid, controls, ring, wipe,
    hand_over, lift_tray, pick, take_out, sort, topple, cover, fold, insert, rake, pour,
)  # fmt: skip

SplitName = Literal["train", "novel"]


@cache
def tasks() -> dict[str, Task]:
    """Every task by name, in the order of the families."""
    found: dict[str, Task] = {}
    for module in MODULES:
        for task in module.tasks():
            if task.name in found:
                raise BadInput(f"two tasks are called {task.name!r}")
            found[task.name] = task
    return found


def task(name: str) -> Task:
    """One task by name."""
    if name not in tasks():
        near = get_close_matches(name, tasks(), n=3, cutoff=0.3)
        hint = f"; perhaps {', '.join(near)}" if near else ""
        raise BadInput(f"there is no task {name!r}{hint}; 'hostbot sim list' shows them all")
    return tasks()[name]


def siblings(of: Task) -> list[Task]:
    """Other tasks that could be done in a task's scene."""
    return [other for other in tasks().values() if of.affords(other)]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Which tasks are for training, which are novel, and the two named subsets."""

    train: tuple[str, ...]
    novel: tuple[str, ...]
    mastered: tuple[str, ...]
    """Training tasks whose retention is measured."""
    comparison: tuple[str, ...]
    """Novel tasks on which methods are compared."""
    sha256: str

    def of(self, name: str) -> SplitName:
        """The side a task is on."""
        return "novel" if name in self.novel else "train"

    def names(self, which: str, families: Sequence[str] = ()) -> tuple[str, ...]:
        """The tasks of one part: train, novel, mastered, comparison or all; of these families, or of all."""
        parts = {
            "all": self.train + self.novel,
            "train": self.train,
            "novel": self.novel,
            "mastered": self.mastered,
            "comparison": self.comparison,
        }
        if which not in parts:
            raise BadInput(f"there is no part {which!r} of the split; choose from {', '.join(parts)}")
        known = {task(name).family for name in parts[which]}
        if unknown := sorted(set(families) - known):
            raise BadInput(f"{which} has no family {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        return tuple(name for name in parts[which] if not families or task(name).family in families)


def digest(train: Sequence[str], novel: Sequence[str]) -> str:
    """Hash of the two lists of names, order left out."""
    text = "\n".join(["train", *sorted(train), "novel", *sorted(novel)])
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def split() -> Split:
    """The committed split."""
    text = resources.files("hostbot.sim").joinpath("split.json").read_text()
    raw = json.loads(text)
    lists = {key: tuple(raw[key]) for key in ("train", "novel", "mastered", "comparison")}
    return Split(**lists, sha256=raw["sha256"])

"""Same-task pairs, robot-robot and human-robot, and the seeded split they are drawn from.

A split names every episode once, as train, validation or novel. Novel tasks are held out whole; validation
holds out episodes of tasks that training has. The file is small, sorted and carries its own hash, so it
can be committed and a changed one is noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from hostbot.config import from_dict, read_json, to_dict, write_json
from hostbot.data.stats import fingerprint
from hostbot.types import BadInput, DataError, EpisodeSource

Part = Literal["train", "validation", "novel"]
Body = Literal["robot", "human"]
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """How much is held out."""

    seed: int = 0
    novel_tasks: float = 0.0
    """Share of tasks held out whole."""
    validation: float = 0.1
    """Share of the remaining tasks' episodes held out, of each task on its own; a task with one keeps it."""

    def __post_init__(self) -> None:
        for name in ("novel_tasks", "validation"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"{name} must be in [0, 1), got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class TaskEpisodes:
    """One task's episodes by part, as indices into each body's dataset."""

    task: str
    train: Mapping[str, tuple[int, ...]]
    validation: Mapping[str, tuple[int, ...]]
    novel: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Every episode's place, for the datasets it was made from."""

    format: int
    config: SplitConfig
    fingerprints: Mapping[str, str]
    tasks: tuple[TaskEpisodes, ...]
    digest: str = ""

    def episodes(self, part: Part, body: Body) -> list[int]:
        """All episodes of one part and body."""
        return sorted(i for task in self.tasks for i in getattr(task, part).get(body, ()))


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A demonstration and a robot trajectory of the same task."""

    task: str
    demo_body: Body
    demo: int
    robot: int


def task_key(instruction: str) -> str:
    """What makes two instructions the same task: the words, not case, spacing or final punctuation."""
    return re.sub(r"\s+", " ", instruction).strip().rstrip(".!").casefold()


def make_split(sources: Mapping[Body, EpisodeSource], config: SplitConfig) -> Split:
    """Group episodes by task and hold some out; the same datasets and seed give the same split."""
    groups: dict[str, dict[Body, list[int]]] = {}
    for body, source in sorted(sources.items()):
        for index in range(len(source)):
            key = task_key(source.episode(index).instruction)
            if not key:
                raise DataError(f"{source.name}: episode {index} has no instruction, so its task is unknown")
            groups.setdefault(key, {}).setdefault(body, []).append(index)
    rng = np.random.default_rng(config.seed)
    names = sorted(groups)
    num_novel = round(config.novel_tasks * len(names))
    novel = {names[i] for i in rng.permutation(len(names))[:num_novel]}
    tasks = tuple(_place(name, groups[name], name in novel, config, rng) for name in names)
    fingerprints: dict[str, str] = {body: fingerprint(source) for body, source in sorted(sources.items())}
    return _signed(Split(format=_FORMAT, config=config, fingerprints=fingerprints, tasks=tasks))


def _place(
    task: str, bodies: Mapping[Body, list[int]], is_novel: bool, config: SplitConfig, rng: np.random.Generator
) -> TaskEpisodes:
    if is_novel:
        return TaskEpisodes(
            task=task, train={}, validation={}, novel={b: tuple(e) for b, e in bodies.items()}
        )
    train: dict[str, tuple[int, ...]] = {}
    validation: dict[str, tuple[int, ...]] = {}
    for body, episodes in bodies.items():
        num_held = min(round(config.validation * len(episodes)), len(episodes) - 1)
        order = [episodes[i] for i in rng.permutation(len(episodes))]
        if num_held:
            validation[body] = tuple(sorted(order[:num_held]))
        train[body] = tuple(sorted(order[num_held:]))
    return TaskEpisodes(task=task, train=train, validation=validation, novel={})


def _digest(split: Split) -> str:
    content = json.dumps(to_dict(replace(split, digest="")), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()


def _signed(split: Split) -> Split:
    return replace(split, digest=_digest(split))


def save_split(split: Split, path: Path, *, overwrite: bool = False) -> None:
    """Write a split once; a second time only if told to."""
    if path.exists() and not overwrite:
        raise DataError(f"{path} exists; a split is made once, pass --overwrite to replace it")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, to_dict(split))


def load_split(path: Path, sources: Mapping[Body, EpisodeSource]) -> Split:
    """A split from its file, refused when it was edited or made for other data."""
    split = from_dict(Split, read_json(path, DataError), str(path))
    if split.format != _FORMAT:
        raise DataError(f"{path} has format {split.format}, this version reads {_FORMAT}: make it again")
    if _digest(split) != split.digest:
        raise DataError(f"{path} was changed after it was made: its hash does not match; make it again")
    for body, source in sources.items():
        found = fingerprint(source)
        if split.fingerprints.get(body) != found:
            raise DataError(
                f"{path} was made for other {body} episodes than {source.name} has; make it again"
            )
    return split


def pairs(split: Split, part: Part, demo_body: Body) -> Iterator[Pair]:
    """Every pair of a part: demonstrations of one body with robot trajectories, never one with itself."""
    for task in split.tasks:
        bodies: Mapping[str, tuple[int, ...]] = getattr(task, part)
        for robot in bodies.get("robot", ()):
            for demo in bodies.get(demo_body, ()):
                if demo_body == "human" or demo != robot:
                    yield Pair(task=task.task, demo_body=demo_body, demo=demo, robot=robot)


def draw_pairs(split: Split, part: Part, demo_body: Body, num: int, rng: np.random.Generator) -> list[Pair]:
    """Pairs drawn with replacement: a robot episode uniformly, then a demonstration of its task."""
    choices: list[tuple[TaskEpisodes, int, Sequence[int]]] = []
    for task in split.tasks:
        bodies: Mapping[str, tuple[int, ...]] = getattr(task, part)
        for robot in bodies.get("robot", ()):
            demos = [d for d in bodies.get(demo_body, ()) if demo_body == "human" or d != robot]
            if demos:
                choices.append((task, robot, demos))
    if not choices:
        raise DataError(f"the {part} part holds no {demo_body}-robot pair: no task has both")
    drawn = []
    for choice in rng.integers(len(choices), size=num):
        task, robot, demos = choices[choice]
        demo = demos[int(rng.integers(len(demos)))]
        drawn.append(Pair(task=task.task, demo_body=demo_body, demo=demo, robot=robot))
    return drawn


def unpaired_tasks(split: Split, part: Part, demo_body: Body) -> list[str]:
    """Tasks that have robot episodes in a part but nothing to pair them with."""
    paired = {pair.task for pair in pairs(split, part, demo_body)}
    return [t.task for t in split.tasks if getattr(t, part).get("robot") and t.task not in paired]

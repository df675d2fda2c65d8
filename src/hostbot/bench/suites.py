"""What is to be tried: tasks, scenes, and what the robot is shown and told in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hostbot.sim.catalogue import siblings, split, task
from hostbot.sim.env import seeded
from hostbot.sim.perturb import Perturbation
from hostbot.types import BadInput

Suite = Literal["novel", "mastered", "comparison", "train", "all"]
Shown = Literal["own", "swapped", "shuffled", "none"]
Demonstrator = Literal["human", "robot"]
FIRST_SEED = 6000
"""Scenes of evaluations: clear of those for checks (below) and of recorded ones (10,000 and up)."""


@dataclass(frozen=True, kw_only=True)
class SuiteConfig:
    """Which trials an evaluation is made of."""

    suite: Suite = "novel"
    families: tuple[str, ...] = ()
    """Only the suite's tasks of these families."""
    tasks: tuple[str, ...] = ()
    """These tasks instead of a suite."""
    trials: int = 20
    """Scenes a task."""
    videos: int = 4
    """Different videos a task; trials take them in turn. The paper has one."""
    first_seed: int = FIRST_SEED
    shown: Shown = "own"
    """The task's own video, another task's of the same scene, the own one in random order, or none."""
    shown_by: Demonstrator = "human"
    """Whose video: a human's, or another execution of the robot's expert, from the robot's own cameras."""
    told: bool = True
    """Whether the instruction is given, too; it is always that of the video shown."""
    perturb: Perturbation = "none"

    def __post_init__(self) -> None:
        if self.trials < 1 or self.videos < 1:
            raise BadInput(
                f"an evaluation has a trial and a video at least, got {self.trials} and {self.videos}"
            )
        if self.shown == "none" and not self.told:
            raise BadInput(
                "with neither a video nor an instruction nobody can know what to do; give one of them"
            )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One attempt: a scene, and what the robot is shown and told in it."""

    task: str
    seed: int
    shown_task: str
    """Whose video is shown and whose instruction told; another task's where they are swapped."""
    video_seed: int
    shown: Shown
    shown_by: Demonstrator
    told: bool
    perturb: Perturbation

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from the other trials of an evaluation."""
        return self.task, self.seed


def names(config: SuiteConfig) -> tuple[str, ...]:
    """The tasks of an evaluation."""
    chosen = config.tasks or split().names(config.suite, config.families)
    for name in chosen:
        task(name)
    if len(set(chosen)) != len(chosen):
        raise BadInput(f"a task is named twice among {', '.join(chosen)}")
    return tuple(chosen)


def trials(config: SuiteConfig) -> list[Trial]:
    """All trials, every task early rather than task after task, so that a table can be read while it grows."""
    return [_trial(name, number, config) for number in range(config.trials) for name in names(config)]


def _trial(name: str, number: int, config: SuiteConfig) -> Trial:
    return Trial(
        task=name,
        seed=config.first_seed + number,
        shown_task=sibling(name, config.first_seed + number) if config.shown == "swapped" else name,
        video_seed=config.first_seed + number % config.videos,
        shown=config.shown,
        shown_by=config.shown_by,
        told=config.told,
        perturb=config.perturb,
    )


def sibling(name: str, seed: int) -> str:
    """Another task that the same scene affords, drawn by the seed."""
    others = siblings(task(name))
    return others[int(seeded(task(name), seed, "other").integers(len(others)))].name


def waves(listed: Sequence[Trial], size: int) -> list[list[Trial]]:
    """Trials that are run side by side; they are fixed, so that batched inference never depends on timing."""
    if size < 1:
        raise BadInput(f"a wave has at least one trial, got {size}")
    return [list(listed[i : i + size]) for i in range(0, len(listed), size)]

"""Fit the confidence: pairs of one task against pairs of different tasks and against videos played backwards.

Legend: K steps of a video, d embedding width, f features.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from jaxtyping import Float, Float32

from hostbot.align.aligner import Aligner
from hostbot.align.company import Company, company_of
from hostbot.align.confidence import Calibration, features, fit_both
from hostbot.align.draw import Clip, Pairs
from hostbot.align.likeness import learn_likeness, summary

_STEP = 2**31 - 1
"""A step no training reaches, so that calibration draws its own pairs."""
_LEAST = 8
"""Tasks from which on some of them are company to the others."""
_SUMMED = 900
"""Pairs that likeness is learned from at most, unless there are more tasks: each is two videos to embed."""
_FEW_FOLDS, _FOLDS, _FOLD = 2, 5, 8
"""Parts of the tasks, likeness in one of which is learned from the others: few, unless each gets so many tasks."""
_WRONG = 4
"""Executions of other tasks that each demonstration is matched with."""


def folds_of(tasks: Collection[str]) -> int:
    """In how many parts tasks are: the more, the more like the maps in the end are those that a part is judged by."""
    return _FOLDS if len(set(tasks)) >= _FOLDS * _FOLD else _FEW_FOLDS


def fold_of(task: str, folds: int) -> int:
    """A task's part."""
    return zlib.crc32(task.encode()) % folds


@dataclass(frozen=True, kw_only=True)
class Summaries:
    """Of demonstrations and executions in pairs, to learn likeness from."""

    tasks: tuple[str, ...]
    demos: Float32[np.ndarray, "n f"]
    robots: Float32[np.ndarray, "n f"]

    @property
    def folds(self) -> int:
        """Parts that the tasks are in."""
        return folds_of(self.tasks)

    def learned(self, without: int | None = None) -> Float32[np.ndarray, "2 k f+1"]:
        """Maps from all pairs, or from those of the other folds."""
        keep = np.array([fold_of(task, self.folds) != without for task in self.tasks])
        numbers = np.unique(self.tasks, return_inverse=True)[1]
        return learn_likeness(self.demos[keep], self.robots[keep], numbers[keep])


def summaries_of(
    aligner: Aligner,
    pairs: Pairs,
    per_task: int | None = None,
    tick: Callable[[int, int], None] = lambda steps, total: None,
) -> Summaries | None:
    """Of the first few human-robot pairs of every task; None where too few tasks have any to learn likeness from.

    Each fold must leave tasks to tell apart to the others; ``tick`` is told of every task, and of how many there are.
    """
    crossed = [task for task in pairs.names if all(map(pairs.tasks[task].get, ("human", "robot")))]
    folds = folds_of(crossed)
    fewest = min(sum(fold_of(task, folds) == fold for task in crossed) for fold in range(folds))
    if len(crossed) < _LEAST or fewest < 2:
        return None
    per_task = per_task or max(1, min(4, _SUMMED // len(crossed)))
    found = []
    for task in crossed:
        have = [pairs.tasks[task].get(body, ())[:per_task] for body in ("human", "robot")]
        for human, robot in zip(*have, strict=False):
            views = [
                pairs.caches[body].whole(k).cpu().numpy() for body, k in (("human", human), ("robot", robot))
            ]
            names = pairs.caches["human"].views, pairs.caches["robot"].views
            seen = [
                aligner.embed({view: frames[:, v] for v, view in enumerate(of)})
                for frames, of in zip(views, names, strict=True)
            ]
            found.append((task, summary(seen[0]), summary(seen[1])))
        tick(1, len(crossed))
    tasks, demos, robots = zip(*found, strict=True)
    return Summaries(tasks=tasks, demos=np.stack(demos), robots=np.stack(robots))


def _wrong(task: str, drawn: Sequence[tuple[str, Clip, Clip]], folds: int) -> list[tuple[str, Clip]]:
    """Executions of a few other tasks; of the task's own fold if it has any, whose maps have learned neither task."""
    found: dict[str, Clip] = {}
    for name, _, robot in drawn:
        if name != task:
            found.setdefault(name, robot)
    near = {name: robot for name, robot in found.items() if fold_of(name, folds) == fold_of(task, folds)}
    return list((near or found).items())[:_WRONG]


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What confidence needs."""

    calibration: Calibration
    company: Company | None
    """None where there are too few tasks to have any."""

    def of(self, aligner: Aligner) -> Aligner:
        """The aligner with it."""
        config = replace(aligner.config, calibration=self.calibration)
        return Aligner(aligner.encoder, config, aligner.device, self.company)


def calibrate(
    aligner: Aligner, pairs: Pairs, num: int = 200, summaries: Summaries | None = None
) -> Calibrated | None:
    """From ``num`` drawn pairs, as they are; None where there is one task only, nothing to tell apart.

    The first pair of each task is company; what a pair is compared with is of other tasks than its own. So is what its
    likeness is learned from, where ``summaries`` of videos are given to learn that: a task that was learned looks surer
    than one that was not.
    """
    if len(pairs.names) < 2:
        return None
    across = Pairs(
        pairs.caches, pairs.tasks, replace(pairs.config, human_robot=1.0, human_human=0.0), pairs.seed
    )

    @cache
    def embedded(body: str, episode: int, backwards: bool = False) -> Float32[np.ndarray, "K d"]:
        frames = pairs.caches[body].whole(episode).cpu().numpy()[:: -1 if backwards else 1]
        return aligner.embed({view: frames[:, v] for v, view in enumerate(pairs.caches[body].views)})

    def of(clip: Clip, backwards: bool = False) -> Float32[np.ndarray, "K d"]:
        return embedded(clip.body, clip.episode, backwards)

    drawn = [across.draw(_STEP, slot) for slot in range(num)]
    first = {
        task: (aligner.looks(of(demo)), aligner.looks(of(robot))) for task, demo, robot in reversed(drawn)
    }
    company = company_of(*zip(*first.values(), strict=True)) if len(first) >= _LEAST else None
    tasks = np.array(list(first))
    folds = _FEW_FOLDS if summaries is None else summaries.folds
    maps = None if summaries is None else [summaries.learned(fold) for fold in range(folds)]

    def values_of(
        demo: Float32[np.ndarray, "K d"], robot: Float32[np.ndarray, "J d"], *own: str
    ) -> Float[np.ndarray, " f"]:
        others = None if company is None else company.only(~np.isin(tasks, own))
        if others is not None and maps is not None:
            others = replace(others, maps=maps[fold_of(own[0], folds)])
        looks = aligner.looks(demo), aligner.looks(robot)
        return features(demo, robot, aligner.align(demo, robot).found, others, looks)

    same, backwards, others = [], [], []
    for k, (task, demo, robot) in enumerate(drawn):
        same.append(values_of(of(demo), of(robot), task))
        backwards.append(values_of(of(demo, True), of(robot), task))
        for name, later in _wrong(task, drawn[k + 1 :] + drawn[:k], 1 if maps is None else folds):
            others.append(values_of(of(demo), of(later), task, name))
    if company is not None and summaries is not None:
        company = replace(company, maps=summaries.learned())
    found = fit_both(*(np.stack(values) for values in (same, others, backwards)))
    return Calibrated(calibration=found, company=company)

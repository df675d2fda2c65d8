"""How pairs become samples: which demonstrations, at what length, in whose views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from hostbot.couple import CoupleConfig
from hostbot.data.normalize import NormalizeConfig
from hostbot.data.pairs import Pair
from hostbot.data.takes import TakeConfig
from hostbot.types import DataError, Embodiment, EpisodeSource


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """How pairs become samples."""

    couple: CoupleConfig
    embodiment: Embodiment
    image_size: tuple[int, int]
    relative_actions: bool = True
    normalize: NormalizeConfig = field(default_factory=NormalizeConfig)
    take: TakeConfig = field(default_factory=TakeConfig)
    demos: int = 2
    """Demonstrations each robot episode is paired with."""
    robot_takes: int = 1
    demo_takes: int = 1
    """Versions of an episode; the first is as recorded, further ones have their own speed and colours."""
    states: int | None = None
    """States drawn of a robot episode for each of its demonstrations; None: all."""
    decisive: float = 0.5
    """Share of those states that are decision points, as far as an episode has so many."""
    stands_for: Mapping[str, str] = field(default_factory=dict)
    """Names of a demonstration's views in the robot's words, where they differ (``{"phone": "third_person"}``)."""
    seed: int = 0


def demo_length(config: CoupleConfig) -> int | None:
    """Frames a demonstration is squeezed or stretched to, where the window is to be the whole of it."""
    return config.window + 1 if config.whole else None


def view_columns(source: EpisodeSource, config: SampleConfig) -> tuple[dict[str, int], tuple[bool, ...]]:
    """The source's views that the robot has too with their places, and which of the robot's are there."""
    views = config.embodiment.views
    columns = {v: views.index(w) for v in source.views if (w := config.stands_for.get(v, v)) in views}
    if not columns:
        raise DataError(
            f"{source.name} has the views {list(source.views)} and the robot {list(views)}: say which one a view "
            "stands for"
        )
    return columns, tuple(i in columns.values() for i in range(len(views)))


def choose_pairs(all_pairs: Iterator[Pair], config: SampleConfig) -> list[Pair]:
    """For every robot episode a few of the demonstrations it can be paired with, drawn from the seed.

    Those that the episodes before it have used least come first: where all can be had by all, none is used twice while
    another is left out.
    """
    by_robot: dict[int, list[Pair]] = {}
    for pair in all_pairs:
        by_robot.setdefault(pair.robot, []).append(pair)
    chosen: list[Pair] = []
    used: Counter[tuple[str, int]] = Counter()
    for robot, options in sorted(by_robot.items()):
        rng = np.random.default_rng([config.seed, 1, robot])
        order = sorted(rng.permutation(len(options)), key=lambda i: used[_demo(options[i])])
        taken = [options[i] for i in sorted(order[: config.demos])]
        used.update(map(_demo, taken))
        chosen += taken
    if not chosen:
        raise DataError("there is no pair of a demonstration and a robot episode of the same task")
    return chosen


def _demo(pair: Pair) -> tuple[str, int]:
    return pair.demo_body, pair.demo

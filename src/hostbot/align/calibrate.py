"""Fit the confidence: pairs of one task against pairs of different tasks and against videos played backwards.

Legend: K steps of a video, d embedding width, f features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from jaxtyping import Float, Float32

from hostbot.align.aligner import Aligner
from hostbot.align.company import Company, company_of
from hostbot.align.confidence import Calibration, features, fit
from hostbot.align.draw import Clip, Pairs

_STEP = 2**31 - 1
"""A step no training reaches, so that calibration draws its own pairs."""
_LEAST = 8
"""Tasks from which on some of them are company to the others."""


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


def calibrate(aligner: Aligner, pairs: Pairs, num: int = 200) -> Calibrated | None:
    """From ``num`` drawn pairs, as they are; None where there is one task only, nothing to tell apart.

    The first pair of each task is company; what a pair is compared with is of other tasks than its own.
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
    first = {task: (of(demo), of(robot)) for task, demo, robot in reversed(drawn)}
    company = company_of(*zip(*first.values(), strict=True)) if len(first) >= _LEAST else None
    tasks = np.array(list(first))

    def values_of(
        demo: Float32[np.ndarray, "K d"], robot: Float32[np.ndarray, "J d"], *own: str
    ) -> Float[np.ndarray, " f"]:
        others = None if company is None else company.only(~np.isin(tasks, own))
        return features(demo, robot, aligner.align(demo, robot).found, others)

    values, same = [], []
    for k, (task, demo, robot) in enumerate(drawn):
        values += [values_of(of(demo), of(robot), task), values_of(of(demo, True), of(robot), task)]
        same += [True, False]
        if other := [(name, later) for name, _, later in drawn[k + 1 :] if name != task]:
            values.append(values_of(of(demo), of(other[0][1]), task, other[0][0]))
            same.append(False)
    return Calibrated(calibration=fit(np.stack(values), np.array(same)), company=company)

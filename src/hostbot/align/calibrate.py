"""Fit the confidence: pairs of one task against pairs of different tasks and against videos played backwards.

Legend: K steps of a video, d embedding width.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from jaxtyping import Float, Float32

from hostbot.align.aligner import Aligner
from hostbot.align.confidence import Calibration, features, fit
from hostbot.align.draw import Pairs

_STEP = 2**31 - 1
"""A step no training reaches, so that calibration draws its own pairs."""


def calibrate(aligner: Aligner, pairs: Pairs, num: int = 100) -> Calibration | None:
    """A calibration from ``num`` drawn pairs, as they are; None where there is one task only, nothing to tell apart."""
    if len(pairs.names) < 2:
        return None

    @cache
    def embedded(body: str, episode: int, backwards: bool = False) -> Float32[np.ndarray, "K d"]:
        frames = pairs.caches[body].whole(episode).cpu().numpy()[:: -1 if backwards else 1]
        return aligner.embed({view: frames[:, v] for v, view in enumerate(pairs.caches[body].views)})

    drawn = [pairs.draw(_STEP, slot) for slot in range(num)]
    values, same = [], []
    for k, (task, demo, robot) in enumerate(drawn):
        theirs, ours = embedded(demo.body, demo.episode), embedded(robot.body, robot.episode)
        backwards = embedded(demo.body, demo.episode, True)
        values += [_features(aligner, theirs, ours), _features(aligner, backwards, ours)]
        same += [True, False]
        if other := [later for name, _, later in drawn[k + 1 :] if name != task]:
            wrong = embedded(other[0].body, other[0].episode)
            values.append(_features(aligner, theirs, wrong))
            same.append(False)
    return fit(np.stack(values), np.array(same))


def _features(
    aligner: Aligner, demo: Float32[np.ndarray, "K d"], robot: Float32[np.ndarray, "J d"]
) -> Float[np.ndarray, " 3"]:
    return features(demo, robot, aligner.align(demo, robot).found)

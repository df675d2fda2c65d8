"""Fit the confidence: pairs of one task against pairs of different tasks and against videos played backwards.

Legend: K steps of a video, d embedding width.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from jaxtyping import Float, Float32

from hostbot.align.aligner import Aligner
from hostbot.align.confidence import Calibration, features, fit
from hostbot.align.draw import Clip, Pairs

_STEP = 2**31 - 1
"""A step no training reaches, so that calibration draws its own pairs."""


def plain(pairs: Pairs) -> Pairs:
    """The same videos as they are: not mirrored, not recoloured, all views."""
    config = dataclasses.replace(
        pairs.config, view_dropout=0.0, flip=0.0, brightness=(1.0, 1.0), contrast=(1.0, 1.0)
    )
    return Pairs(pairs.caches, pairs.tasks, config, pairs.seed)


def calibrate(aligner: Aligner, pairs: Pairs, num: int = 100) -> Calibration | None:
    """A calibration from ``num`` drawn pairs; None where there is one task only and nothing to tell apart."""
    if len(pairs.tasks) < 2:
        return None
    pairs = plain(pairs)
    drawn = [pairs.draw(_STEP, slot) for slot in range(num)]
    clips = {(c.body, c.episode): c for _, *both in drawn for c in both}
    embedded = {key: _embed(aligner, pairs, clip) for key, clip in clips.items()}
    demos = [embedded[demo.body, demo.episode] for _, demo, _ in drawn]
    robots = [embedded[robot.body, robot.episode] for _, _, robot in drawn]
    values, same = [], []
    for k, (task, _, _) in enumerate(drawn):
        values += [
            _features(aligner, demos[k], robots[k]),
            _features(aligner, demos[k][::-1].copy(), robots[k]),
        ]
        same += [True, False]
        if other := [j for j in range(k + 1, num) if drawn[j][0] != task]:
            values.append(_features(aligner, demos[k], robots[other[0]]))
            same.append(False)
    return fit(np.stack(values), np.array(same))


def _embed(aligner: Aligner, pairs: Pairs, clip: Clip) -> Float32[np.ndarray, "K d"]:
    clips, _ = pairs.clips([clip])
    with torch.no_grad():  # sharded modules do not take to inference mode
        return aligner.encoder(clips.to(aligner.device))[0].float().cpu().numpy()


def _features(
    aligner: Aligner, demo: Float32[np.ndarray, "K d"], robot: Float32[np.ndarray, "J d"]
) -> Float[np.ndarray, " 3"]:
    return features(demo, robot, aligner.align(demo, robot).found)

"""Frame maps from matching probabilities, eq:alignment_map.

Legend: T demo frames, N robot frames.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hostbot.align.cost import Lengths, MatchConfig, similarity
from hostbot.align.dtw import alignment
from hostbot.types import BadInput, Correspondence

TOLERANCE = 0.05
"""How far from the map, as a share of the other sequence, a frame may look alike and still speak for it."""


def frame_map(beta: Float[np.ndarray, "n m"]) -> Int[np.ndarray, " n"]:
    """The likeliest map that never steps back: the row argmax of eq:alignment_map where that already does not.

    It maximises the sum of log beta over rows; a cumulative maximum would let one stray row push all later ones.
    """
    score = np.log(np.maximum(beta, np.finfo(np.float64).tiny))
    n, m = score.shape
    best, came = score[0], np.zeros((n, m), np.int64)
    for i in range(1, n):
        reached = np.maximum.accumulate(best)
        came[i, 1:] = np.maximum.accumulate(np.where(best[1:] > reached[:-1], np.arange(1, m), 0))
        best = reached + score[i]
    found = np.empty(n, np.int64)
    found[-1] = best.argmax()
    for i in range(n - 1, 0, -1):
        found[i - 1] = came[i, found[i]]
    return found


def confidence(alike: Float[np.ndarray, "n m"], found: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """How much of each frame's likeness to the other sequence lies near where it is mapped to.

    ``alike`` holds each row's softmax of S / gamma_f: what a frame matches by its looks alone, in no order. Beta
    itself says little here: with the paper's temperatures it is nearly one on the best path of any two videos.
    """
    m = alike.shape[1]
    reach = max(1, round(TOLERANCE * m))
    sums = np.pad(np.cumsum(alike, 1), ((0, 0), (1, 0)))
    rows, low, high = np.arange(len(found)), np.maximum(found - reach, 0), np.minimum(found + reach + 1, m)
    return np.clip(sums[rows, high] - sums[rows, low], 0.0, 1.0)


@torch.no_grad()
def correspondences(
    demo: Float[Tensor, "B T d"],
    robot: Float[Tensor, "B N d"],
    demo_lengths: Lengths = None,
    robot_lengths: Lengths = None,
    config: MatchConfig = MatchConfig(),  # noqa: B008  frozen
) -> list[Correspondence]:
    """One correspondence a pair of a padded batch; its cost is R(T,N) / (T + N), eq:d2tw_loss, both ways' mean."""
    matching = alignment(demo, robot, demo_lengths, robot_lengths, config)
    there, back, S, paths = (
        x.double().cpu().numpy()
        for x in (
            matching.demo_to_robot,
            matching.robot_to_demo,
            similarity(demo, robot, config),
            0.5 * (matching.demo_path + matching.robot_path),
        )
    )
    if not np.isfinite(paths).all():
        raise BadInput(f"pair {int(np.argmin(np.isfinite(paths)))} has embeddings that are not finite")
    n = [S.shape[1]] * len(S) if demo_lengths is None else torch.as_tensor(demo_lengths).tolist()
    m = [S.shape[2]] * len(S) if robot_lengths is None else torch.as_tensor(robot_lengths).tolist()
    return [
        _correspondence(there[b, :h, :w], back[b, :w, :h], S[b, :h, :w], float(paths[b] / (h + w)))
        for b, (h, w) in enumerate(zip(n, m, strict=True))
    ]


def _correspondence(
    there: Float[np.ndarray, "T N"], back: Float[np.ndarray, "N T"], S: Float[np.ndarray, "T N"], cost: float
) -> Correspondence:
    demo_to_robot, robot_to_demo = frame_map(there), frame_map(back)
    return Correspondence(
        robot_to_demo=robot_to_demo,
        demo_to_robot=demo_to_robot,
        robot_confidence=confidence(_softmax(S.T), robot_to_demo),
        demo_confidence=confidence(_softmax(S), demo_to_robot),
        cost=cost,
    )


def _softmax(rows: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
    powers = np.exp(rows - rows.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def correspondence(
    demo: Float[Tensor, "T d"],
    robot: Float[Tensor, "N d"],
    config: MatchConfig = MatchConfig(),  # noqa: B008  frozen
) -> Correspondence:
    """The correspondence of two embedded sequences, eq:alignment_map."""
    return correspondences(demo[None], robot[None], config=config)[0]

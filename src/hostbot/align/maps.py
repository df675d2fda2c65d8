"""Frame maps from matching probabilities, eq:alignment_map.

Legend: T demo frames, N robot frames.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hostbot.align.cost import MatchConfig
from hostbot.align.dtw import Matching, alignment
from hostbot.types import Correspondence


def frame_map(beta: Float[np.ndarray, "n m"]) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Row argmax made monotone, and how much probability each row holds within one frame of it.

    The cumulative maximum changes nothing where the argmax already never steps back.
    """
    found = np.maximum.accumulate(beta.argmax(1))
    around = np.pad(np.cumsum(beta, 1), ((0, 0), (1, 0)))
    rows, low, high = np.arange(len(beta)), np.maximum(found - 1, 0), np.minimum(found + 2, beta.shape[1])
    return found, np.clip(around[rows, high] - around[rows, low], 0.0, 1.0)


def correspondences(
    matching: Matching, demo_lengths: Int[Tensor, " B"], robot_lengths: Int[Tensor, " B"]
) -> list[Correspondence]:
    """One correspondence a pair; its cost is R(T,N) / (T + N), the mean of both directions, eq:d2tw_loss."""
    there, back = matching.demo_to_robot.double().cpu().numpy(), matching.robot_to_demo.double().cpu().numpy()
    paths = (0.5 * (matching.demo_path + matching.robot_path)).double().cpu().numpy()
    found = []
    for b, (n, m) in enumerate(zip(demo_lengths.tolist(), robot_lengths.tolist(), strict=True)):
        demo_to_robot, demo_confidence = frame_map(there[b, :n, :m])
        robot_to_demo, robot_confidence = frame_map(back[b, :m, :n])
        found.append(
            Correspondence(
                robot_to_demo=robot_to_demo,
                demo_to_robot=demo_to_robot,
                robot_confidence=robot_confidence,
                demo_confidence=demo_confidence,
                cost=float(paths[b] / (n + m)),
            )
        )
    return found


@torch.no_grad()
def correspondence(
    demo: Float[Tensor, "T d"],
    robot: Float[Tensor, "N d"],
    config: MatchConfig = MatchConfig(),  # noqa: B008  frozen
) -> Correspondence:
    """The correspondence of two embedded sequences, eq:alignment_map."""
    matching = alignment(demo[None], robot[None], config=config)
    return correspondences(matching, torch.tensor([len(demo)]), torch.tensor([len(robot)]))[0]

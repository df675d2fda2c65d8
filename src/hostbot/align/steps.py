"""Which frames of a video are embedded, and how a map between those becomes one between all frames.

Legend: T demo frames, N robot frames, K embedded steps.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from hostbot.types import BadInput, Correspondence


def step_frames(num_frames: int, fps: float, rate_hz: float, max_steps: int) -> Int[np.ndarray, " K"]:
    """Frames evenly spaced at about ``rate_hz``, at most ``max_steps`` of them, both ends among them."""
    if num_frames < 1 or not fps > 0 or not rate_hz > 0 or max_steps < 2:
        raise BadInput(
            f"a video needs a frame, rates above 0 and two steps, got {num_frames} frames at {fps} Hz, "
            f"{rate_hz} Hz and {max_steps} steps"
        )
    wanted = int(np.ceil(num_frames * min(1.0, rate_hz / fps)))
    return np.rint(np.linspace(0, num_frames - 1, min(wanted, max_steps))).astype(np.int64)


def thinned(frames: Int[np.ndarray, " n"], max_steps: int) -> Int[np.ndarray, " K"]:
    """At most ``max_steps`` of some frames, evenly, both ends among them."""
    if len(frames) <= max_steps:
        return frames
    return frames[np.rint(np.linspace(0, len(frames) - 1, max_steps)).astype(np.int64)]


def moving(points: Float[np.ndarray, "K d"], least: float) -> Int[np.ndarray, " k"]:
    """Steps that lie so far from the last one kept, both ends among them: a rest, however long, is one step.

    Progress stands still in a rest. Matched frame by frame a long one outweighs all that happens before and after it.
    """
    kept = [0]
    for k in range(1, len(points)):
        if np.linalg.norm(points[k] - points[kept[-1]]) >= least:
            kept.append(k)
    return np.array(kept if kept[-1] == len(points) - 1 else [*kept, len(points) - 1])


def expand(
    found: Correspondence,
    demo_steps: Int[np.ndarray, " K"],
    robot_steps: Int[np.ndarray, " J"],
    num_demo: int,
    num_robot: int,
) -> Correspondence:
    """A correspondence of steps carried over to all frames, linear between steps; it stays monotone."""
    to_demo, robot_confidence = _between(
        num_robot, robot_steps, demo_steps[found.robot_to_demo], found.robot_confidence
    )
    to_robot, demo_confidence = _between(
        num_demo, demo_steps, robot_steps[found.demo_to_robot], found.demo_confidence
    )
    return Correspondence(
        robot_to_demo=to_demo,
        demo_to_robot=to_robot,
        robot_confidence=robot_confidence,
        demo_confidence=demo_confidence,
        cost=found.cost,
    )


def _between(
    num: int, at: Int[np.ndarray, " K"], to: Int[np.ndarray, " K"], confidence: Float[np.ndarray, " K"]
) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    frames = np.arange(num)
    return np.rint(np.interp(frames, at, to)).astype(np.int64), np.interp(frames, at, confidence)


def clock_map(num_robot: int, num_demo: int) -> Int[np.ndarray, " N"]:
    """The comparison: a robot frame at share t of its execution meets the demo frame at share t of the demo."""
    if num_robot < 2:
        return np.zeros(num_robot, np.int64)
    return np.rint(np.arange(num_robot) / (num_robot - 1) * (num_demo - 1)).astype(np.int64)

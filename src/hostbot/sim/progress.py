"""The exact correspondence of two executions of a task, from the events both of them noted.

Progress p in [0, 1] is piecewise linear in time between events that both executions share, each stretch
between two shared events counting as the mean of the two executions' shares of it. So both executions
have the same progress at every shared event, whatever their pace.

Legend: N robot frames, T demo frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
from jaxtyping import Float

from hostbot.types import AGAIN, ASTRAY, BACK, BadInput, Correspondence, Event

SILENT = (AGAIN, ASTRAY, BACK)
"""Events that mark a retry or a detour rather than a step of the task."""


def shared(a: Sequence[Event], b: Sequence[Event]) -> list[tuple[int, int]]:
    """Frames of the events that both executions have, in order: the longest common run of names.

    Names are compared from the end: of a step that was tried again it is the last try that counts.
    """
    left = [event for event in reversed(a) if event.name not in SILENT]
    right = [event for event in reversed(b) if event.name not in SILENT]
    matcher = SequenceMatcher(None, [e.name for e in left], [e.name for e in right], autojunk=False)
    found = [
        (left[block.a + k].frame, right[block.b + k].frame)
        for block in matcher.get_matching_blocks()
        for k in range(block.size)
    ]
    return found[::-1]


def knots(
    a: Sequence[Event], b: Sequence[Event], length_a: int, length_b: int
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Strictly increasing frames of both executions that correspond, ends included.

    An execution that was begun again begins there: what came before belongs to none of the other's frames. One that
    was taken over has events of what was done by then at its first frame, and begins where the other has done as much.
    """
    if min(length_a, length_b) < 2:
        raise BadInput(f"an execution needs two frames to have progress, got {length_a} and {length_b}")
    out = [(_begin(a, length_a), _begin(b, length_b))]
    for frame_a, frame_b in shared(a, b):
        inside = frame_a < length_a - 1 and frame_b < length_b - 1
        if inside and len(out) == 1 and (frame_a == 0) != (frame_b == 0):
            out = [(max(out[0][0], frame_a), max(out[0][1], frame_b))]
        elif inside and frame_a > out[-1][0] and frame_b > out[-1][1]:
            out.append((frame_a, frame_b))
    out.append((length_a - 1, length_b - 1))
    array = np.asarray(out, float)
    return array[:, 0], array[:, 1]


def _begin(events: Sequence[Event], length: int) -> int:
    return max(
        (event.frame for event in events if event.name == AGAIN and event.frame < length - 1), default=0
    )


def progress(
    a: Sequence[Event], b: Sequence[Event], length_a: int, length_b: int
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " T"]]:
    """Progress of every frame of both executions on one scale from 0 to 1."""
    knots_a, knots_b = knots(a, b, length_a, length_b)
    share = (np.diff(knots_a) / np.ptp(knots_a) + np.diff(knots_b) / np.ptp(knots_b)) / 2
    values = np.concatenate([[0.0], np.cumsum(share)])
    return np.interp(np.arange(length_a), knots_a, values), np.interp(np.arange(length_b), knots_b, values)


def correspondence(
    robot: Sequence[Event], demo: Sequence[Event], num_robot: int, num_demo: int
) -> Correspondence:
    """The true frame maps between a robot execution and a demonstration, eq:alignment_map."""
    knots_robot, knots_demo = knots(robot, demo, num_robot, num_demo)
    to_demo = np.rint(np.interp(np.arange(num_robot), knots_robot, knots_demo)).astype(np.int64)
    to_robot = np.rint(np.interp(np.arange(num_demo), knots_demo, knots_robot)).astype(np.int64)
    return Correspondence(
        robot_to_demo=to_demo,
        demo_to_robot=to_robot,
        robot_confidence=np.ones(num_robot),
        demo_confidence=np.ones(num_demo),
        cost=0.0,
    )


def clock_error(robot: Sequence[Event], demo: Sequence[Event], num_robot: int, num_demo: int) -> float:
    """Mean error in progress, at the shared events, of matching frames by clock time.

    A robot frame at share t of its execution is matched to the demo frame at share t of the demonstration;
    the error is how far apart their true progress is.
    """
    on_robot, on_demo = progress(robot, demo, num_robot, num_demo)
    frames, _ = knots(robot, demo, num_robot, num_demo)
    inner = frames[1:-1].astype(int)
    if not len(inner):
        return 0.0
    matched = np.rint(inner / (num_robot - 1) * (num_demo - 1)).astype(int)
    return float(np.abs(on_robot[inner] - on_demo[matched]).mean())

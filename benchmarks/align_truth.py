"""What is known of a pair of recordings of the bench: how far each had come, and when something happened."""

from __future__ import annotations

from hostbot.align.evaluate import Truth
from hostbot.sim.progress import knots, progress
from hostbot.types import EpisodeSource


def truths(robot: EpisodeSource, r: int, human: EpisodeSource, h: int) -> tuple[Truth, Truth]:
    """Of the robot's events, and of the demonstration's."""
    known = robot.events(r), human.events(h), robot.episode(r).length, human.episode(h).length
    ours, theirs = progress(*known)
    at_robot, at_human = (k[1:-1].astype(int) for k in knots(*known))
    return (
        Truth(robot_progress=ours, demo_progress=theirs, robot_events=at_robot),
        Truth(robot_progress=theirs, demo_progress=ours, robot_events=at_human),
    )

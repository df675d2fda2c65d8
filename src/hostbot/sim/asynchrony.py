"""How asynchronous the two bodies are: the error of matching their executions by clock time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hostbot.sim.catalogue import task
from hostbot.sim.demonstrator import Recording
from hostbot.sim.env import EnvConfig
from hostbot.sim.episode import robot_episode
from hostbot.sim.progress import clock_error


def measure_clock(
    names: Sequence[str], seeds: Sequence[int], tick: Callable[[], None] = lambda: None
) -> list[float]:
    """Mean progress error at events of one human-robot pair for each task and seed; failures are left out."""
    errors = []
    for name in names:
        for seed in seeds:
            robot = robot_episode(task(name), seed, EnvConfig(views=()))
            human = Recording(task(name), seed)
            frames = 1
            while human.advance():
                frames += 1
            if robot.success and human.judge.success:
                events = [e for e in human.actor.events if e.frame < frames]
                errors.append(clock_error(robot.trajectory.events, events, len(robot.trajectory), frames))
            tick()
    return errors

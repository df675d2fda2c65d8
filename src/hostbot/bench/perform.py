"""One robot doing one skill in one scene, for somebody who watches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hostbot.policy.execution import ExecutionConfig, Pilot
from hostbot.policy.policy import Policy
from hostbot.policy.session import Decision
from hostbot.policy.skill import Skill
from hostbot.sim.env import SimEnv
from hostbot.types import Image, Observation


@dataclass(frozen=True, kw_only=True)
class Performance:
    """What happened; chunks carry the frame they were decided at."""

    success: bool
    steps: int
    seconds: float
    """By the clock, thinking included."""
    first_action: float
    """When the first action was there, in seconds since 1970."""
    progress: float | None
    """Where in the video the robot thought to be at last; None without one."""
    chunks: tuple[tuple[int, Decision], ...]
    pictures: tuple[Image, ...]


def perform(
    policy: Policy,
    skill: Skill,
    env: SimEnv,
    seed: int = 0,
    *,
    execution: ExecutionConfig | None = None,
    look: Callable[[], Image] | None = None,
    watch: Callable[[int, Decision], None] = lambda frame, decision: None,
) -> Performance:
    """Act until the task is judged done or the time is over; whole chunks, as in the paper, if nothing else is said.

    ``look`` films every step.
    """
    session, begin = policy.start(skill, seed), time.perf_counter()
    limit = int(env.config.seconds * env.config.rate_hz)
    chunks: list[tuple[int, Decision]] = []
    pictures: list[Image] = []
    first_action = 0.0

    def decide(seen: Observation) -> Decision:
        chunks.append((env.frame, policy.step(session, seen)))
        return chunks[-1][1]

    with Pilot(decide, execution) as pilot:
        while env.frame < limit and not env.success:
            action = pilot.act(env.observe)
            first_action = first_action or time.time()
            env.advance(action)
            if look is not None:
                pictures.append(look())
            watch(env.frame, chunks[-1][1])
    return Performance(
        success=env.success,
        steps=env.frame,
        seconds=time.perf_counter() - begin,
        first_action=first_action,
        progress=None if session.window is None else session.skill.progress(session.window.frame),
        chunks=tuple(chunks),
        pictures=tuple(pictures),
    )

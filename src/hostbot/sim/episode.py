"""Whole executions with pictures: a robot trajectory by the expert, a human demonstration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from hostbot.sim.actor import Actor
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.midway import begin_midway
from hostbot.sim.task import Task
from hostbot.types import BadInput, Event, Trajectory


@dataclass(frozen=True, kw_only=True)
class RobotEpisode:
    """An expert's execution and whether the predicate was fulfilled."""

    task: str
    seed: int
    trajectory: Trajectory
    success: bool


def robot_episode(task: Task, seed: int, config: EnvConfig | None = None, stray: float = 0.0) -> RobotEpisode:
    """The expert's execution of a task in the scene of a seed, until done or out of time.

    With ``stray`` it is led off its way now and then and comes back, and often begins somewhere else: a policy that is
    off its way has then seen how to get back to it. Events tell when it was led, which is not to be learned.
    """
    env = SimEnv(task, config)
    env.begin(seed)
    actor = env.expert(stray=stray, steady=stray > 0)
    if stray:
        actor.stand(env.displace(stray))
    return _perform(env, actor, seed)


def led_episode(
    task: Task, seed: int, actions: Float[np.ndarray, "N 20"], config: EnvConfig | None = None
) -> RobotEpisode | None:
    """How the expert goes on after somebody else's actions, which are not part of it; None if nothing is left to do.

    From a policy's own actions it so learns what to do where it gets to by itself. Nothing is left, too, where all is
    done before the expert's first event: a lid that still rolls, say.
    """
    env = SimEnv(task, config)
    env.begin(seed)
    actor = env.lead(actions)
    if actor is None:
        env.close()
        return None
    episode = _perform(env, actor, seed)
    return episode if episode.trajectory.events else None


def midway_episode(task: Task, seed: int, config: EnvConfig | None = None) -> RobotEpisode | None:
    """How the expert goes on where another one has lost the way; None if that one was done, or never got lost."""
    env = SimEnv(task, config)
    env.begin(seed)
    actor = begin_midway(env, seed)
    if actor is None:
        env.close()
        return None
    episode = _perform(env, actor, seed)
    return episode if episode.trajectory.events else None


def _perform(env: SimEnv, actor: Actor, seed: int) -> RobotEpisode:
    limit = int(env.config.seconds * env.config.rate_hz)
    states, actions = [], []
    done = False
    while not done and env.frame < limit:
        if env.config.views:
            env.expose()
        states.append(env.state())
        actions.append(actor.act().astype(np.float32))
        done = env.advance(actions[-1])
    frames = env.develop() if env.config.views else []
    env.close()
    if not states:
        raise BadInput(f"an episode of {env.config.seconds} s has no frames")
    trajectory = Trajectory(
        views={view: np.stack([frame[view] for frame in frames]) for view in env.config.views},
        state=np.stack(states),
        action=np.stack(actions),
        fps=env.config.rate_hz,
        instruction=env.instruction,
        embodiment=env.embodiment,
        events=tuple(Event(name=e.name, frame=e.frame) for e in actor.events if e.frame < len(states)),
    )
    return RobotEpisode(task=env.task.name, seed=seed, trajectory=trajectory, success=env.success)

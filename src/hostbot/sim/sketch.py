"""A task at its decisive moments only, or up to the first of them, without physics: many scenes for little time.

To learn which thing is meant a model needs many scenes and few pictures of each. A sketch has the robot in its waiting
pose or somewhere else, then at the first contact, then, where it carries something loose, where that is put down. Hands
and what they carry are set there at once: nothing moves, nothing is judged, no action is worth learning. A person's
sketch is a video of the way to the first contact, on which nothing but the hand moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from hostbot.sim.demonstrator import VIEW, DemonstratorConfig, Recording
from hostbot.sim.env import EnvConfig, SimEnv, seeded
from hostbot.sim.episode import RobotEpisode
from hostbot.sim.hand import Person
from hostbot.sim.pose import quat_of
from hostbot.sim.robot import unpack
from hostbot.sim.task import Task
from hostbot.sim.world import World
from hostbot.types import PASSING, Demonstration, Event, Image, Trajectory

MOMENTS = 2
_NEAR = 0.005
"""Metres: a hand further off than this is not where it was to be put."""
_STAY = (4, 13)
"""Frames that a person's sketch goes on after the contact."""


def robot_sketch(
    task: Task,
    seed: int,
    config: EnvConfig | None = None,
    stray: float = 0.0,
    instead: Task | None = None,
) -> RobotEpisode:
    """Two or three frames of a task in the scene of a seed, or of another task that could be meant there.

    It is a failure where the first contact is out of reach; what comes after is left out where that is.
    """
    env = SimEnv(task, config)
    env.begin(seed)
    begun = env.displace(stray) if stray else None
    if instead is not None:
        env.main = _nearest(env, instead)
    actor = env.expert(instead)
    if begun is not None:
        actor.stand(begun)
    world = env.world
    assert world is not None
    frames: dict[str, list[Image]] = {view: [] for view in env.config.views}
    states: list[Float[np.ndarray, " 20"]] = []
    events: list[Event] = []

    def look() -> None:
        for view, picture in (env.pictures() if env.config.views else {}).items():
            frames[view].append(picture)
        states.append(env.state())

    look()
    for moment in actor.moments():
        loose = [_is_loose(world, item) for item in moment.carried.values()]
        if (events and not (loose and all(loose))) or not _put(env, moment.vector, moment.carried):
            break
        look()
        events.append(Event(name=moment.event, frame=len(events) + 1))
        if len(events) == MOMENTS:
            break
    env.close()
    state = np.stack(states)
    trajectory = Trajectory(
        views={view: np.stack(listed) for view, listed in frames.items()},
        state=state,
        action=np.concatenate([state[1:], state[-1:]]),
        fps=env.config.rate_hz,
        instruction=env.instruction,
        embodiment=env.embodiment,
        events=tuple(events),
    )
    return RobotEpisode(task=task.name, seed=seed, trajectory=trajectory, success=bool(events))


def human_sketch(
    task: Task, seed: int, config: DemonstratorConfig | None = None
) -> tuple[Demonstration, tuple[Event, ...], bool]:
    """A person's way to the first contact and a moment there, its events, and whether there was a contact."""
    take = Recording(task, seed, config)
    world, actor = take.world, take.actor
    body = world.body
    assert isinstance(body, Person)
    stay = int(seeded(task, seed, "sketch").integers(*_STAY))
    frames: list[Image] = []
    until = int(take.config.seconds * take.config.rate_hz)
    while len(frames) < until:
        frames.append(take.picture())
        body.put(world.data, actor.act())
        world.refresh()
        body.draw_forearms(world.data)
        mujoco.mj_kinematics(world.model, world.data)
        made = [event.frame for event in actor.events if event.name not in PASSING]
        until = min(until, made[0] + stay) if made else until
    take.close()
    events = tuple(event for event in actor.events if event.frame < len(frames))
    video = Demonstration(
        views={VIEW: np.stack(frames)},
        fps=take.config.rate_hz,
        instruction=take.instruction,
        events=events,
    )
    return video, events, any(event.name not in PASSING for event in events)


def _nearest(env: SimEnv, task: Task) -> str:
    """The hand on whose side the task's first thing stands; in the middle the one that was to act."""
    assert env.world is not None
    across = float(env.world.pose(task.things[0].name).pos[1])
    if abs(across) < env.config.layout.cross:
        return env.main
    return "left" if across > 0 else "right"


def _is_loose(world: World, item: str) -> bool:
    return (
        item in world.shapes
        and world.model.body(item).jntnum[0] == 1
        and _joint(world, item).type[0] == mujoco.mjtJoint.mjJNT_FREE
    )


def _joint(world: World, item: str) -> Any:
    return world.model.joint(int(world.model.body(item).jntadr[0]))


def _put(env: SimEnv, vector: Float[np.ndarray, " 20"], carried: Mapping[str, str]) -> bool:
    """Hands where a vector says, and what they carry with them; whether they can get there."""
    world = env.world
    assert world is not None
    body, data = world.body, world.data
    held = {limb: body.pose(data, limb).inverse() @ world.pose(item) for limb, item in carried.items()}
    env.put(vector)
    wanted, _ = unpack(vector)
    if any(np.linalg.norm(body.pose(data, limb).pos - wanted[limb].pos) > _NEAR for limb in wanted):
        return False
    for limb, item in carried.items():
        pose = body.pose(data, limb) @ held[limb]
        first = int(_joint(world, item).qposadr[0])
        data.qpos[first : first + 7] = [*pose.pos, *quat_of(pose.rot)]
    if carried:
        world.refresh()
    return True

"""A task at its decisive moments only, or up to the first of them, without physics: many scenes for little time.

To learn which thing is meant a model needs many scenes and few pictures of each. A sketch has the robot in its waiting
pose or somewhere else, then at the first contact, then, where it carries something loose, where that is put down. Hands
and what they carry are set there at once: nothing moves, nothing is judged, no action is worth learning. A person's
sketch is a video of the way to the first contact, on which nothing but the hand moves. Of a task that has begun a
sketch shows the rest: something is in the hand, up in the air, and moves with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from hostbot.sim.actor import Actor
from hostbot.sim.demonstrator import VIEW, DemonstratorConfig, Recording
from hostbot.sim.env import EnvConfig, SimEnv, seeded
from hostbot.sim.episode import RobotEpisode
from hostbot.sim.hand import Person
from hostbot.sim.moves import Pick
from hostbot.sim.pose import Pose, quat_of
from hostbot.sim.robot import pack, unpack
from hostbot.sim.task import Task
from hostbot.sim.world import World
from hostbot.types import PASSING, Demonstration, Event, Trajectory

MOMENTS = 2
_NEAR = 0.005
"""Metres: a hand further off than this is not where it was to be put."""
_STAY = (4, 13)
"""Frames that a person's sketch goes on after the contact."""
_CLOSED = 0.75
"""How far a hand that holds something is open, as a share of how far it was open around it."""
_RISE, _ASIDE = (0.02, 0.16), 0.05
"""Metres: how high something is in the hand when a task has begun, and how far it was brought aside."""


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
    elsewhere = env.displace(stray) if stray else None
    if instead is not None:
        env.main = _nearest(env, instead)
    actor = env.expert(instead)
    if elsewhere is not None:
        actor.stand(elsewhere)
    world = env.world
    assert world is not None
    states: list[Float[np.ndarray, " 20"]] = []
    events: list[Event] = []

    def look() -> None:
        if env.config.views:
            env.expose()
        states.append(env.state())

    begun = task.begun
    if not begun:
        look()
    for number, moment in enumerate(actor.moments()):
        loose = [_is_loose(world, item) for item in moment.carried.values()]
        if (number and not (loose and all(loose))) or not _put(env, moment.vector, moment.carried):
            break
        if number < begun:
            if number == begun - 1:
                if not _raise(env, moment.vector, (instead or task).things[0].name, seed):
                    break
                look()
            continue
        look()
        events.append(Event(name=moment.event, frame=len(events) + 1))
        if number + 1 == MOMENTS:
            break
    if not states:  # what was to be in the hand is out of reach
        look()
    frames = env.develop() if env.config.views else []
    env.close()
    state = np.stack(states)
    trajectory = Trajectory(
        views={view: np.stack([frame[view] for frame in frames]) for view in env.config.views},
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
    """A person's way to the next contact and a moment there, its events, and whether there was a contact."""
    take = Recording(task, seed, config)
    world, actor = take.world, take.actor
    actor.pace = replace(actor.pace, tries=1)  # without physics nothing fails
    body = world.body
    assert isinstance(body, Person)
    stay = int(seeded(task, seed, "sketch").integers(*_STAY))
    hand = _Hand(body, world, actor)
    until, first = int(take.config.seconds * take.config.rate_hz), 0 if not task.begun else None
    while actor.frame < until:
        if first is not None:
            take.expose()
        hand.move()
        body.draw_forearms(world.data)
        mujoco.mj_kinematics(world.model, world.data)
        if first is None:
            first = actor.frame if any(event.name == "grasp" for event in actor.events) else None
        elif made := [e.frame for e in actor.events if e.name not in PASSING and e.frame > first]:
            until = min(until, made[0] + stay)
    if first is None or first >= actor.frame:  # what was to be in the hand was never taken, or too late
        take.expose()
    frames = take.develop()
    take.close()
    since = first or 0
    shown = [replace(event, frame=event.frame - since) for event in actor.events if event.frame > since]
    events = tuple(event for event in shown if event.frame < len(frames))
    video = Demonstration(
        views={VIEW: frames},
        fps=take.config.rate_hz,
        instruction=take.instruction,
        events=events,
    )
    return video, events, any(event.name not in PASSING for event in events)


class _Hand:
    """A person's hand without physics: what it closes around moves with it until it opens."""

    def __init__(self, body: Person, world: World, actor: Actor) -> None:
        self._body, self._world, self._actor = body, world, actor
        self._takes = iter([move.item for move in actor.task.script if isinstance(move, Pick)])
        self._known = 0
        self._held: tuple[str, Pose] | None = None
        self._open = 0.0
        """How far the hand is open around what it is about to take."""

    def move(self) -> None:
        """One control period."""
        body, world, limb = self._body, self._world, self._actor.limb("main")
        poses, openings = unpack(self._actor.act())
        if self._held is not None:
            openings[limb] = max(openings[limb], _CLOSED * self._open)
        body.put(world.data, pack(poses, openings))
        if self._held is not None:
            mujoco.mj_kinematics(world.model, world.data)
            item, grip = self._held
            _set(world, item, body.pose(world.data, limb) @ grip)
        world.refresh()
        for event in self._actor.events[self._known :]:
            self._open = openings[limb] if event.name == "contact" else self._open
            if event.name == "grasp" and _is_loose(world, item := next(self._takes)):
                self._held = item, body.pose(world.data, limb).inverse() @ world.pose(item)
            elif event.name == "release":
                self._held = None
        self._known = len(self._actor.events)


def _nearest(env: SimEnv, task: Task) -> str:
    """The hand on whose side the task's first thing stands."""
    assert env.world is not None
    return "left" if env.world.pose(task.things[0].name).pos[1] > 0 else "right"


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
        _set(world, item, body.pose(data, limb) @ held[limb])
    if carried:
        world.refresh()
    return True


def _set(world: World, item: str, pose: Pose) -> None:
    first = int(_joint(world, item).qposadr[0])
    world.data.qpos[first : first + 7] = [*pose.pos, *quat_of(pose.rot)]


def _raise(env: SimEnv, vector: Float[np.ndarray, " 20"], item: str, seed: int) -> bool:
    """A thing taken up with the hand that is at it, somewhere in the air nearby; whether it gets there."""
    rng, limb = seeded(env.task, seed, "begun"), env.main
    poses, openings = unpack(vector)
    openings[limb] *= _CLOSED
    begin = poses[limb]
    for share in (1.0, 0.5, 0.0):
        away = np.array([*(share * rng.normal(0, _ASIDE, 2)), rng.uniform(*_RISE)])
        poses[limb] = Pose(begin.pos + away, begin.rot)
        if _put(env, pack(poses, openings), {limb: item}):
            return True
        env.put(vector)
    return False

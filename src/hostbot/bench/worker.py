"""A process of environments: it is told what to do in which slot, and leaves pictures in shared memory.

It never imports torch. Legend: S slots, V views, h w pixels, N steps, D action width.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from hostbot.bench import films
from hostbot.bench.films import Film, Filmed
from hostbot.bench.happenings import Witness
from hostbot.bench.suites import Trial
from hostbot.sim.catalogue import task
from hostbot.sim.demonstrator import VIEW
from hostbot.sim.env import EnvConfig, Judge, SimEnv
from hostbot.sim.episode import robot_episode
from hostbot.sim.perturb import perturbed
from hostbot.types import Event, Image
from hostbot.video import fit_frames


@dataclass(frozen=True, kw_only=True)
class Begin:
    """Set up a trial's scene in a slot."""

    slot: int
    trial: Trial
    expert: bool = False
    """Also say what the expert does there."""
    keep: bool = False
    """Keep a picture of every step."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Take these steps, then look."""

    slot: int
    actions: Float32[np.ndarray, "N D"]


@dataclass(frozen=True, kw_only=True)
class Expert:
    """What the expert does in a scene, and the events it noted."""

    actions: Float32[np.ndarray, "N D"]
    events: tuple[Event, ...]
    success: bool


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a trial ended."""

    success: bool
    followed: bool
    """Whether the task that was shown got done; equal to ``success`` where that is the task itself."""
    frames: int
    first_touched: str
    happened: tuple[Event, ...]
    pictures: tuple[Image, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A slot's state after looking; its pictures lie in shared memory."""

    slot: int
    frame: int
    state: Float32[np.ndarray, " D"]
    expert: Expert | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """What all environments of an evaluation have in common."""

    slots: int
    env: EnvConfig
    image_size: tuple[int, int]
    """Pictures are delivered at the policy's size; drawn at the environment's."""
    pictures: bool = True
    films: Path | None = None
    """Where human videos are kept between evaluations."""


@dataclass
class Place:
    """One slot with a trial in it."""

    env: SimEnv
    trial: Trial
    other: Judge | None
    witness: Witness = field(default_factory=Witness)
    kept: list[Image] | None = None


class Stage:
    """The slots of one process."""

    def __init__(self, config: WorkerConfig, pictures: UInt8[np.ndarray, "S V h w 3"]) -> None:
        self._config, self._pictures = config, pictures
        self._places: dict[int, Place] = {}

    def begin(self, order: Begin) -> Seen:
        """A fresh scene, looked at once."""
        trial = order.trial
        env = SimEnv(task(trial.task), perturbed(self._config.env, trial.perturb, trial.seed))
        env.reset(seed=trial.seed)
        place = Place(env=env, trial=trial, other=_judge_of(trial, env), kept=[] if order.keep else None)
        self._places[order.slot] = place
        expert = None
        if order.expert:
            made = robot_episode(env.task, trial.seed, replace(env.config, views=()))
            path = made.trajectory
            expert = Expert(actions=path.action, events=path.events, success=made.success)
        return replace(self._look(order.slot), expert=expert)

    def run(self, order: Run) -> Seen:
        """Step until the chunk, the time or the task is over."""
        place = self._places[order.slot]
        for action in order.actions:
            self._step(place, action)
            if (outcome := self._outcome(place)) is not None:
                state = place.env.state()
                place.env.close()
                del self._places[order.slot]
                return Seen(slot=order.slot, frame=outcome.frames, state=state, outcome=outcome)
        return self._look(order.slot)

    def _step(self, place: Place, action: Float32[np.ndarray, " D"]) -> None:
        if place.kept is not None:
            place.kept.append(place.env.pictures()[VIEW])
        place.env.advance(action)
        world = place.env.world
        assert world is not None
        place.witness.look(world)
        if place.other is not None:
            place.other.update(world)

    def _outcome(self, place: Place) -> Outcome | None:
        env, config = place.env, place.env.config
        followed = env.success if place.other is None else place.other.success
        if not (env.success or followed) and env.frame < int(config.seconds * config.rate_hz):
            return None
        return Outcome(
            success=env.success,
            followed=followed,
            frames=env.frame,
            first_touched=place.witness.first_touched,
            happened=tuple(e for e in place.witness.events if e.frame < env.frame),
            pictures=tuple(place.kept or ()),
        )

    def _look(self, slot: int) -> Seen:
        env = self._places[slot].env
        if self._config.pictures:
            views = env.pictures()
            stacked = np.stack([views[name] for name in env.config.views])
            self._pictures[slot] = fit_frames(stacked, self._config.image_size)
        return Seen(slot=slot, frame=env.frame, state=env.state())


def _judge_of(trial: Trial, env: SimEnv) -> Judge | None:
    """A judge of the task that was shown, where that is another one, in this scene."""
    if trial.shown_task == trial.task:
        return None
    shown, here = task(trial.shown_task), task(trial.task)
    needed = {thing.name for thing in shown.things}
    foils = tuple(thing for thing in here.scene if thing.name not in needed)
    return Judge(replace(shown, foils=foils), env.config.rate_hz)


def work(pipe: Connection, config: WorkerConfig, memory: Any, num_views: int) -> None:
    """Do what comes through the pipe until it says None; a failure is told and ends the process."""
    shape = (config.slots, num_views, *config.image_size, 3)
    stage = Stage(config, np.frombuffer(memory, np.uint8).reshape(shape))
    orders: dict[type, Callable[[Any], Filmed | Seen]] = {
        Film: lambda order: films.get(order, config.films),
        Begin: stage.begin,
        Run: stage.run,
    }
    try:
        while (order := pipe.recv()) is not None:
            pipe.send(orders[type(order)](order))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        return
    except BaseException:
        pipe.send(traceback.format_exc())

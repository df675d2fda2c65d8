"""Executions that begin in their midst, where somebody has lost the way: the expert takes over from there.

A policy that acts by itself gets to places beside every expert's way: above a place that is not quite the right one,
with the thing in its hand, or beside a thing it has put down where it does not belong. On the way p alone tells what
comes next; here one has to look. Nothing before the expert takes over is part of the execution, so all of it is an
example.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from hostbot.sim.actor import Actor
from hostbot.sim.arms import MAX_OPENING
from hostbot.sim.env import SimEnv, seeded
from hostbot.sim.robot import unpack

_STOPS = {"approach": 0.3, "contact": 0.15, "lift": 0.35, "carry": 0.8}
"""At which of its events the first one may get lost, and how often it does there."""
_ON = 6
"""Steps that it may still go on after the others, in half of the cases; a thing above its place is soon put down."""
_BESIDE, _RISE = (0.015, 0.12), 0.06
"""Metres by which it is then beside its way, and how much above it at most."""
_ANYWHERE = 0.25
"""How often it goes anywhere over the table instead."""
_TABLE = ((0.16, -0.06), (0.38, 0.26))
"""Where that is: two corners, on the left arm's side."""
_LET_GO, _SHUT = 0.25, 0.3
"""How often it lets go of what it holds, or closes jaws that hold nothing."""
_OPEN = 0.03
"""Metres by which jaws then open."""
_SECONDS = 0.3


def begin_midway(env: SimEnv, seed: int) -> Actor | None:
    """Let an expert get lost in a scene that has just begun; the one that takes over, or None if it got nowhere."""
    rng = seeded(env.task, seed, "midway")
    first = env.expert(steady=True)
    if not _gets_somewhere(env, first, rng):
        return None
    told = env.state()
    for told in _gets_lost(env, first, rng):
        env.advance(told)
    return env.take_over(told)


def _gets_somewhere(env: SimEnv, actor: Actor, rng: np.random.Generator) -> bool:
    """Act up to one of the events, or a little further; whether there was one before all was done."""
    seen, stop = 0, None
    for frame in range(int(env.config.seconds * env.config.rate_hz)):
        if env.advance(actor.act()):
            return False
        fresh, seen = actor.events[seen:], len(actor.events)
        for event in fresh:
            if stop is None and rng.random() < _STOPS.get(event.name, 0.0):
                on = int(rng.integers(_ON)) * int(rng.random() < 0.5)
                stop = frame + on * (event.name != "carry")
        if stop is not None and frame >= stop:
            return True
    return False


def _gets_lost(env: SimEnv, actor: Actor, rng: np.random.Generator) -> Iterator[Float[np.ndarray, " 20"]]:
    """Somewhere else with what the hands hold, perhaps down with it, perhaps without it."""
    world = env.world
    assert world is not None
    hands, openings = unpack(env.state())
    yield from actor.swerve(_away(hands[env.main].pos, 1.0 if env.main == "left" else -1.0, rng))
    held = env.held()
    if not held:
        if rng.random() < _SHUT:
            yield from actor.grip(0.0, _SECONDS)
        return
    above = min(float(world.pose(name).pos[2]) for name in held.values())
    deep = rng.random() if rng.random() < 0.5 else 0.0
    lets_go = rng.random() < _LET_GO
    yield from actor.swerve(np.array([0.0, 0.0, -above * (1.0 if lets_go else deep)]))
    if lets_go:
        opening = min(MAX_OPENING, max(openings[limb] for limb in held) + _OPEN)
        yield from actor.grip(opening, _SECONDS)
        yield from actor.swerve(np.array([0.0, 0.0, rng.uniform(0.0, 2 * _RISE)]))


def _away(hand: Float[np.ndarray, " 3"], side: float, rng: np.random.Generator) -> Float[np.ndarray, " 3"]:
    """From where a hand is to where it gets lost; ``side`` is that of its arm."""
    rise = rng.uniform(0.0, _RISE)
    if rng.random() < _ANYWHERE:
        x, y = rng.uniform(*_TABLE)
        return np.array([x - hand[0], side * y - hand[1], rise])
    angle, far = rng.uniform(0, 2 * np.pi), rng.uniform(*_BESIDE)
    return np.array([far * np.cos(angle), far * np.sin(angle), rise])

"""Executions that begin in their midst: the expert finds its way from where another one lost it."""

import numpy as np
import pytest

from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.episode import midway_episode
from hostbot.sim.midway import begin_midway
from hostbot.types import AGAIN, ASTRAY

BLIND = EnvConfig(views=())
STACK = task("stack-red_block-blue_block")


def begun(seeds, one=STACK):
    """Environments in which somebody has lost the way, and the expert that takes over."""
    for seed in seeds:
        env = SimEnv(one, BLIND)
        env.begin(seed)
        actor = begin_midway(env, seed)
        if actor is not None:
            yield env, actor


def test_most_are_done_all_the_same_and_short():
    made = [midway_episode(STACK, seed, BLIND) for seed in range(500, 516)]
    found = [one for one in made if one is not None]
    assert len(found) >= 12
    assert np.mean([one.success for one in found]) >= 0.6
    whole = [len(one.trajectory.state) for one in found if one.success]
    assert np.median(whole) < 35  # a whole one takes fifty steps


def test_where_they_begin_things_are_held_beside_their_place_or_lie_there():
    held, beside, above = 0, [], []
    for env, _ in begun(range(500, 530)):
        gap = (env.world.pose("red_block").pos - env.world.pose("blue_block").pos)[:2]
        if env.held():
            held += 1
            beside.append(float(np.linalg.norm(gap)))
            above.append(env.world.pose("red_block").pos[2])
    assert 8 <= held <= 26
    assert np.quantile(beside, 0.9) - np.quantile(beside, 0.1) > 0.05
    assert min(above) < 0.04 < 0.08 < max(above)


def test_time_begins_with_them_and_nothing_was_led():
    for env, actor in begun(range(500, 510)):
        assert env.frame == 0
        assert actor.frame == 0
        env.close()
    for seed in range(500, 506):
        made = midway_episode(STACK, seed, BLIND)
        if made is not None and made.success:
            events = made.trajectory.events
            assert not {ASTRAY, AGAIN} & {event.name for event in events}
            assert [event.frame for event in events] == sorted(event.frame for event in events)


def test_hands_do_not_jump_where_they_are_taken_over():
    for seed in range(500, 512):
        made = midway_episode(STACK, seed, BLIND)
        if made is not None:
            path = made.trajectory
            first = (path.action[0] - path.state[0]).reshape(2, 10)[:, :3]
            assert np.linalg.norm(first, axis=1).max() < 0.06


def test_the_same_seed_begins_alike():
    one, other = (midway_episode(STACK, 503, BLIND) for _ in range(2))
    assert one is not None
    assert other is not None
    assert np.array_equal(one.trajectory.state, other.trajectory.state)


@pytest.mark.parametrize("family", ["press", "push", "lift_tray", "hand_over", "wipe", "sort"])
def test_other_kinds_of_tasks_go_on_too(family):
    name = next(name for name in split().train if task(name).family == family)
    made = [midway_episode(task(name), seed, BLIND) for seed in range(500, 510)]
    found = [one for one in made if one is not None]
    assert found
    assert sum(one.success for one in found) >= 0.5 * len(found)

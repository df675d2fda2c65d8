"""Robots that stray: they begin elsewhere, swing and miss, and still do their task."""

import numpy as np
import pytest

from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.episode import robot_episode

BLIND = EnvConfig(views=())


def path_of(name, seed, stray):
    made = robot_episode(task(name), seed, BLIND, stray)
    assert made.success, (name, seed)
    return made.trajectory


def acting(state):
    """Where the hand that moves most is, at every step."""
    hands = state[:, 0:3], state[:, 10:13]
    return max(hands, key=lambda path: np.ptp(path, axis=0).max())


@pytest.mark.parametrize("name", ["press-red_button", split().train[0], "stack-red_block-blue_block"])
def test_the_task_is_done_all_the_same(name):
    for seed in (70, 71):
        path_of(name, seed, 1.0)


def test_every_second_scene_is_begun_somewhere_else():
    home = SimEnv(task("press-red_button"), BLIND)
    home.reset(seed=0)
    waiting = home.state()
    begun = [path_of("press-red_button", seed, 1.0).state[0] for seed in range(60, 68)]
    apart = [float(np.abs(state - waiting)[[0, 1, 2, 10, 11, 12]].max()) for state in begun]
    assert max(apart[0::2]) < 0.003
    assert min(apart[1::2]) > 0.02
    heights = [state[[2, 12]].min() for state in begun]
    assert min(heights) > 0.12


def test_a_displaced_hand_does_not_jump_when_the_task_begins():
    path = path_of("press-red_button", 61, 1.0)
    jump = np.linalg.norm(acting(path.action)[0] - acting(path.state)[0])
    assert jump < 0.05


def test_an_approach_misses_and_contact_does_not():
    """Above the button one that strays is beside it; both press it in the middle."""
    beside = {0.0: [], 1.0: []}
    touched = {0.0: [], 1.0: []}
    for stray, seed in ((s, seed) for s in beside for seed in (80, 82, 84, 86)):
        env = SimEnv(task("press-red_button"), BLIND)
        env.reset(seed=seed)
        button = env.world.pose("red_button").pos[:2]
        path = path_of("press-red_button", seed, stray)
        frames = {event.name: event.frame for event in path.events}
        hand = acting(path.state)
        beside[stray].append(np.linalg.norm(hand[frames["approach"]][:2] - button))
        touched[stray].append(np.linalg.norm(hand[frames["press"]][:2] - button))
    assert np.mean(beside[1.0]) > np.mean(beside[0.0]) + 0.003
    assert max(*touched[0.0], *touched[1.0]) < 0.01


def test_nothing_changes_for_who_does_not_stray():
    plain, same = path_of("press-red_button", 61, 0.0), robot_episode(task("press-red_button"), 61, BLIND)
    assert np.array_equal(plain.state, same.trajectory.state)

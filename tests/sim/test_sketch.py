"""Sketches: a scene, its first contact, and where something loose is put down, as a whole execution would have them."""

import itertools

import numpy as np
import pytest

from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.episode import robot_episode
from hostbot.sim.layout import NoRoom
from hostbot.sim.sketch import _nearest, robot_sketch
from hostbot.sim.variants import exchanged, varied
from hostbot.types import PASSING

BLIND = EnvConfig(views=())
SEED = 90


def hands(state):
    return {"left": state[0:3], "right": state[10:13]}


def moments_of(path):
    """Where the hands are at the first moments of a whole execution."""
    frames = [event.frame for event in path.events if event.name not in PASSING]
    return [hands(path.state[frame]) for frame in frames]


def families():
    return {task(name).family: name for name in split().train}


@pytest.mark.parametrize("family", sorted(families()))
def test_contact_is_where_an_execution_makes_it(family):
    one = task(families()[family])
    sketch = robot_sketch(one, SEED, BLIND).trajectory
    whole = moments_of(robot_episode(one, SEED, BLIND).trajectory)
    drawn = hands(sketch.state[1])
    assert sketch.events[0].name == "contact"
    assert max(np.linalg.norm(drawn[limb] - whole[0][limb]) for limb in drawn) < 0.025


@pytest.mark.parametrize("family", ["place_in", "stack", "place_on", "ring_on_peg"])
def test_what_is_carried_is_put_down_where_an_execution_does(family):
    one = task(families()[family])
    sketch = robot_sketch(one, SEED, BLIND).trajectory
    assert [event.name for event in sketch.events] == ["contact", "release"]
    assert [event.frame for event in sketch.events] == [1, 2]
    whole = moments_of(robot_episode(one, SEED, BLIND).trajectory)
    drawn = hands(sketch.state[2])
    assert max(np.linalg.norm((drawn[limb] - whole[1][limb])[:2]) for limb in drawn) < 0.02


def test_the_scene_is_the_one_of_the_seed_and_the_thing_goes_along():
    one = task(families()["place_in"])
    config = EnvConfig(size=64)
    sketch, whole = robot_sketch(one, SEED, config).trajectory, robot_episode(one, SEED, config).trajectory
    assert np.array_equal(sketch.views["third_person"][0], whole.views["third_person"][0])
    pictures = sketch.views["third_person"].astype(int)
    assert len(pictures) == 3
    assert all(np.abs(a - b).max() > 60 for a, b in itertools.pairwise(pictures))


def test_a_sketch_can_begin_elsewhere():
    one = task("press-red_button")
    home, away = (robot_sketch(one, 91, BLIND, stray).trajectory.state for stray in (0.0, 1.0))
    assert np.abs(home[0] - away[0]).max() > 0.02
    env = SimEnv(one, BLIND)
    env.reset(seed=91)
    acting = slice(0, 3) if env.main == "left" else slice(10, 13)
    assert np.abs(home[1] - away[1])[acting].max() < 0.01


def test_in_one_scene_two_things_can_be_meant():
    """The same pictures to begin with, contact with one thing or with its double."""
    config = EnvConfig(size=64)
    for name in ("press-red_button", families()["place_in"], families()["stack"]):
        one = varied(task(name), 4, SEED)
        here = robot_sketch(one, SEED, config, 1.0).trajectory
        there = robot_sketch(one, SEED, config, 1.0, exchanged(one)).trajectory
        assert np.array_equal(here.views["third_person"][0], there.views["third_person"][0])
        assert np.array_equal(here.state[0], there.state[0])
        apart = np.abs(here.state - there.state)[:, [0, 1, 10, 11]].max()
        assert apart > 0.03


def test_hands_are_where_they_were_put_or_the_frame_is_left_out():
    """Doubles stand anywhere, some out of reach: where contact is shown, both hands are where the script wants them."""
    checked = left_out = 0
    for number, name in enumerate(split().train[::3]):
        one = varied(task(name), 2, SEED + number)
        instead, env = exchanged(one), SimEnv(one, BLIND)
        try:
            env.begin(SEED + number)
        except NoRoom:
            continue
        if instead is None:
            continue
        begun = env.displace(1.0)
        env.main = _nearest(env, instead)
        actor = env.expert(instead)
        actor.stand(begun)
        wanted = hands(next(actor.moments()).vector)
        sketch = robot_sketch(one, SEED + number, BLIND, 1.0, instead)
        left_out += not sketch.success
        if sketch.success:
            checked += 1
            drawn = hands(sketch.trajectory.state[1])
            assert max(np.linalg.norm(drawn[limb] - wanted[limb]) for limb in drawn) < 0.006, name
    assert checked > 50
    assert left_out < 0.1 * checked

"""An expert that takes over from somebody else."""

import numpy as np
import pytest

from hostbot.sim.catalogue import task
from hostbot.sim.env import EnvConfig
from hostbot.sim.episode import led_episode, robot_episode

BLIND = EnvConfig(views=())
NAME = "place_in-red_apple-white_bowl"


def frames(episode):
    return {event.name: event.frame for event in reversed(episode.trajectory.events)}


@pytest.fixture(scope="module")
def whole():
    return robot_episode(task(NAME), 7, BLIND).trajectory


def test_what_is_in_the_hand_is_not_put_down_to_be_taken_again(whole):
    lifted = next(event.frame for event in whole.events if event.name == "lift")
    made = led_episode(task(NAME), 7, whole.action[: lifted + 1], BLIND)
    assert made.success
    found = frames(made)
    assert [found[name] for name in ("approach", "contact", "grasp", "lift")] == [0, 0, 0, 0]
    assert 0 < found["carry"] < found["release"]
    acting = np.abs(made.trajectory.action - made.trajectory.action[0]).max(0)[:10].max() < 0.1
    jaws = made.trajectory.action[:, 19 if acting else 9]
    assert (jaws[: found["lower"]] == 0).all()
    assert len(made.trajectory.state) < len(whole.state) - lifted + 10


def test_a_hand_that_is_empty_begins_with_the_approach(whole):
    made = led_episode(task(NAME), 7, whole.action[:5], BLIND)
    assert made.success
    assert 0 < frames(made)["approach"] < frames(made)["grasp"]
    beside = whole.action[: next(e.frame for e in whole.events if e.name == "lift")].copy()
    beside[:, [0, 10]] -= 0.06
    made = led_episode(task(NAME), 7, beside, BLIND)
    assert made.success
    assert frames(made)["approach"] > 0


def test_nothing_is_made_of_what_is_done(whole):
    assert led_episode(task(NAME), 7, whole.action, BLIND) is None


def test_what_stays_as_it_was_left_is_not_done_again():
    order = task("press_order-orange_key-yellow_key")
    first = robot_episode(order, 3, BLIND).trajectory
    pressed = next(event.frame for event in first.events if event.name == "press")
    made = led_episode(order, 3, first.action[: pressed + 1], BLIND)
    assert made.success
    presses = [event.frame for event in made.trajectory.events if event.name == "press"]
    assert len(presses) == 2
    assert presses[0] == 0 < presses[1]


def test_the_hand_that_holds_something_goes_on_whichever_it_is():
    for seed in range(20, 40):
        episode = robot_episode(task(NAME), seed, BLIND).trajectory
        lifted = next(event.frame for event in episode.events if event.name == "lift")
        made = led_episode(task(NAME), seed, episode.action[: lifted + 1], BLIND)
        moved = [
            np.abs(np.diff(e.action[:, at : at + 3], axis=0)).sum()
            for e in (episode, made.trajectory)
            for at in (0, 10)
        ]
        assert (moved[0] > moved[1]) == (moved[2] > moved[3])
        assert made.success


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_handed_over_is_not_taken_back(seed):
    bar = task("hand_over-green_bar-blue_mat")
    episode = robot_episode(bar, seed, BLIND).trajectory
    carried = max(event.frame for event in episode.events if event.name == "carry")
    made = led_episode(bar, seed, episode.action[: carried - 2], BLIND)
    assert made.success
    begun = [event.name for event in made.trajectory.events if event.frame == 0]
    assert begun.count("grasp") == 2
    assert "offer" in begun
    assert len(made.trajectory.state) < len(episode.state) - carried + 25


def test_an_episode_in_which_the_expert_does_nothing_of_the_task_is_none(whole):
    short = EnvConfig(views=(), seconds=0.2)
    assert not robot_episode(task(NAME), 7, short).trajectory.events
    assert led_episode(task(NAME), 7, whole.action[:2], short) is None

"""Robots that stray: they begin elsewhere, are led off their way, and still do their task."""

import numpy as np
import pytest

from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.episode import robot_episode
from hostbot.types import AGAIN, ASTRAY, BACK

BLIND = EnvConfig(views=())


def path_of(name, seed, stray):
    made = robot_episode(task(name), seed, BLIND, stray)
    assert made.success, (name, seed)
    return made.trajectory


def acting(env, state):
    """Where the hand that acts is, at every step."""
    return state[:, 0:3] if env.main == "left" else state[:, 10:13]


@pytest.mark.parametrize("name", ["press-red_button", split().train[0], "stack-red_block-blue_block"])
def test_the_task_is_done_all_the_same(name):
    assert all(robot_episode(task(name), seed, BLIND, 1.0).success for seed in (70, 71))


def test_either_hand_may_begin_somewhere_else_whoever_acts():
    home = SimEnv(task("press-red_button"), BLIND)
    home.reset(seed=0)
    waiting = home.state()
    found = set()
    for seed in range(60, 76):
        env = SimEnv(task("press-red_button"), BLIND)
        env.reset(seed=seed)
        begun = path_of("press-red_button", seed, 1.0).state[0]
        assert begun[[2, 12]].min() > 0.04
        away = {
            limb
            for limb, place in (("left", slice(0, 3)), ("right", slice(10, 13)))
            if np.abs(begun - waiting)[place].max() > 0.02
        }
        found.add((env.main in away, bool(away - {env.main})))
    assert found == {(False, False), (False, True), (True, False), (True, True)}


def test_hands_are_put_to_the_same_places_whether_they_act_or_not():
    env, across = SimEnv(task("press-red_button"), BLIND), {True: [], False: []}
    for seed in range(60):
        env.begin(seed)
        waiting, begun = env.state(), env.displace(1.0)
        for limb, start, side in (("left", 0, 1), ("right", 10, -1)):
            if np.abs(begun - waiting)[start : start + 3].max() > 0.02:
                across[limb == env.main].append(side * begun[start + 1])
    assert min(map(len, across.values())) > 20
    assert abs(np.mean(across[True]) - np.mean(across[False])) < 0.05
    assert max(min(places) for places in across.values()) < 0.0
    assert min(max(places) for places in across.values()) > 0.2


def test_some_hang_closed_above_a_thing_as_after_a_grasp_that_failed_and_move_nothing():
    env = SimEnv(task("stack-red_block-blue_block"), BLIND)
    found = {True: [], False: []}
    for seed in range(60):
        env.begin(seed)
        things = {name: env.world.pose(name).pos for name in env.world.shapes}
        waiting, begun = env.state(), env.displace(1.0)
        for limb, start in (("left", 0), ("right", 10)):
            hand = begun[start : start + 3]
            if np.abs(begun - waiting)[start : start + 3].max() > 0.02:
                above = any(np.linalg.norm(hand[:2] - place[:2]) < 0.08 for place in things.values())
                found[limb == env.main].append((above and hand[2] < 0.15, begun[start + 9] < 0.001))
        for _ in range(4):
            env.advance(begun)
        for name, place in things.items():
            assert np.linalg.norm(env.world.pose(name).pos - place) < 0.01
    for acts in (True, False):  # whoever will act
        above, closed = np.mean(found[acts], axis=0)
        assert above > 0.15
        assert 0.3 < closed < 0.7
        assert len({tuple(one) for one in found[acts]}) == 4  # open or closed, above something or not


def test_a_hand_with_nothing_to_do_goes_back_to_its_place():
    env = SimEnv(task("press-red_button"), BLIND)
    env.reset(seed=71)
    place = slice(0, 3) if env.main == "right" else slice(10, 13)
    waiting = env.state()[place]
    path = path_of("press-red_button", 71, 1.0)
    assert np.abs(path.state[0, place] - waiting).max() > 0.05
    assert np.abs(path.state[-1, place] - waiting).max() < 0.01
    steps = np.linalg.norm(np.diff(path.action[:, place], axis=0), axis=1)
    assert steps.max() < 0.06


def test_a_displaced_hand_does_not_jump_when_the_task_begins():
    env = SimEnv(task("press-red_button"), BLIND)
    for seed in range(60, 66):
        env.reset(seed=seed)
        path = path_of("press-red_button", seed, 1.0)
        assert np.linalg.norm(acting(env, path.action)[0] - acting(env, path.state)[0]) < 0.05


def led_of(path):
    """Frames in which the robot is led off its way."""
    begins = [event.frame for event in path.events if event.name == ASTRAY]
    ends = [event.frame for event in path.events if event.name == BACK]
    assert len(begins) - len(ends) in (0, 1)
    return list(zip(begins, [*ends, len(path.state)], strict=False))


def goal_after(path, frame):
    """When the hand has got to where it was on its way to."""
    return min(
        event.frame for event in path.events if event.frame >= frame and event.name not in (ASTRAY, BACK)
    )


def test_hands_are_led_off_their_way_and_come_back():
    """Centimetres beside the straight line in a few frames, which events tell; the task is done all the same."""
    off, done = [], 0
    for seed in range(80, 92):
        env = SimEnv(task("stack-red_block-blue_block"), BLIND)
        env.reset(seed=seed)
        made = robot_episode(task("stack-red_block-blue_block"), seed, BLIND, 1.0)
        path = made.trajectory
        done += made.success
        if not made.success:  # nor is it recorded
            continue
        hand = acting(env, path.action)
        for begin, end in led_of(path):
            assert end - begin >= 4
            start, goal = hand[max(0, begin - 1)], hand[goal_after(path, end)]
            along = (goal - start) / np.linalg.norm(goal - start)
            way = hand[end - 1] - start
            off.append(np.linalg.norm(way - (way @ along) * along))
    assert done >= 10
    assert len(off) > 6
    assert np.median(off) > 0.01


def test_some_close_their_jaws_beside_a_thing_and_come_again():
    vain = done = 0
    for seed in range(80, 100):
        env = SimEnv(task("stack-red_block-blue_block"), BLIND)
        env.reset(seed=seed)
        made = robot_episode(task("stack-red_block-blue_block"), seed, BLIND, 1.0)
        path = made.trajectory
        done += made.success
        if not made.success:  # what jaws have pushed away is not always found again
            continue
        opening = path.action[:, 9 if env.main == "left" else 19]
        taken = {event.name: event.frame for event in path.events}["contact"]
        for begin, end in led_of(path):
            if end < taken and opening[end - 1] < 0.001 < opening[max(0, begin - 1)]:
                vain += 1
                assert "approach" in [event.name for event in path.events if end < event.frame <= taken]
                assert opening[end:taken].max() > 0.02
    assert 1 <= vain <= 10
    assert done >= 18


def test_some_put_a_thing_down_beside_its_place_and_take_it_again():
    again = 0
    for seed in range(70, 100):
        made = robot_episode(task("stack-red_block-blue_block"), seed, BLIND, 1.0)
        names = [event.name for event in made.trajectory.events]
        if AGAIN in names and made.success:
            again += 1
            before, after = names[: names.index(AGAIN)], names[names.index(AGAIN) :]
            assert "release" in before
            assert before[-1] in (BACK, "done")
            assert {"grasp", "release"} <= set(after)
    assert 1 <= again <= 12


def test_one_that_does_not_stray_is_never_led():
    path = path_of("press-red_button", 80, 0.0)
    assert not {ASTRAY, BACK} & {event.name for event in path.events}


def test_those_that_stray_keep_one_pace():
    """How fast an expert goes shows in no picture: it would only be noise to whoever learns from it."""

    def tops(stray):
        found = []
        for seed in range(30, 36):
            path = robot_episode(task("press-red_button"), seed, BLIND, stray).trajectory
            steps = np.linalg.norm(np.diff(path.action.reshape(-1, 2, 10)[:, :, :3], axis=0), axis=2)
            led = {frame for begin, end in led_of(path) for frame in range(begin - 1, end + 1)}
            kept = [n for n in range(len(steps)) if n not in led]
            found.append(steps[kept].max())
        return np.array(found)

    assert np.ptp(tops(1.0)) < 0.002
    assert np.ptp(tops(0.0)) > 0.004

"""Drills: one scene, each of its things meant in turn, touched where it stands by either body."""

import contextlib

import numpy as np
import pytest

from hostbot.sim.catalogue import split, task
from hostbot.sim.demonstrator import DemonstratorConfig, demonstrate
from hostbot.sim.drills import THINGS, drill, kinds
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.episode import robot_episode
from hostbot.sim.layout import NoRoom
from hostbot.sim.sketch import human_sketch, robot_sketch

BLIND = EnvConfig(views=())


def test_a_scene_is_the_same_whichever_thing_is_meant():
    for seed in range(30):
        drills = [drill(seed, which) for which in range(THINGS)]
        scenes = [sorted((t.name, t.kind, t.colour) for t in one.scene) for one in drills]
        assert all(scene == scenes[0] for scene in scenes)
        assert len({(kind, colour) for _, kind, colour in scenes[0]}) == THINGS
        assert sorted(one.things[0].name for one in drills) == [name for name, _, _ in scenes[0]]
        assert all(one.things[0].words in one.instructions[0] for one in drills)
        assert drill(seed, 5) == drills[5 % THINGS]


def test_things_are_such_as_training_tasks_show_in_every_colour():
    shown = {thing.kind for name in split().train for thing in task(name).scene}
    drawn = [thing for seed in range(600) for thing in drill(seed, 0).scene]
    assert {thing.kind for thing in drawn} <= shown
    assert {thing.kind.__name__ for thing in drawn} == set(kinds())
    assert len({(thing.kind, thing.colour) for thing in drawn}) == 12 * len(kinds())


def test_most_scenes_have_two_of_a_kind_that_colour_alone_tells_apart():
    alike = [len({thing.kind for thing in drill(seed, 0).scene}) < THINGS for seed in range(200)]
    assert 0.7 < np.mean(alike) < 0.98


def test_the_hand_goes_to_the_thing_that_is_meant():
    """Of all things in the scene the one that is meant is nearest to the hand at its first contact."""
    made = 0
    for seed in range(12):
        one = drill(seed, 0)
        env = SimEnv(one, BLIND)
        try:
            env.begin(seed)
        except NoRoom:
            continue
        for which in range(THINGS):
            meant = drill(seed, which)
            sketch = robot_sketch(one, seed, BLIND, 1.0, meant if which else None)
            if not sketch.success:
                continue
            made += 1
            state = sketch.trajectory.state
            hand = max((slice(0, 3), slice(10, 13)), key=lambda h: np.linalg.norm(state[1, h] - state[0, h]))
            away = {
                t.name: np.linalg.norm((env.world.pose(t.name).pos - state[1, hand])[:2]) for t in one.scene
            }
            big = meant.things[0].kind.__name__ == "drawer"  # held by its handle, away from its middle
            assert big or min(away, key=away.__getitem__) == meant.things[0].name
        env.close()
    assert made > 30


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_a_person_touches_it(kind):
    for seed in range(2000):
        one = drill(seed, seed)
        if one.things[0].kind.__name__ != kind:
            continue
        try:
            _, events, success = demonstrate(one, seed, pictures=False)
        except NoRoom:
            continue
        if success:
            assert "contact" in [event.name for event in events]
            return
    raise AssertionError(f"nobody could touch a {kind}")


def test_a_robot_does_it_with_physics_too():
    done = []
    for seed in range(12):
        with contextlib.suppress(NoRoom):
            done.append(robot_episode(drill(seed, seed), seed, BLIND).success)
    assert np.mean(done) > 0.8


def test_a_persons_sketch_is_the_way_of_a_whole_video_to_its_contact():
    """The same first picture, contact at the same time, pictures hardly apart, and a moment after the contact."""
    checked, config = 0, DemonstratorConfig(size=48)
    for seed in range(8):
        one = drill(seed, seed)
        try:
            sketch, events, success = human_sketch(one, seed, config)
        except NoRoom:
            continue
        whole, all_events, done = demonstrate(one, seed, config)
        if not done:
            continue  # something was in the way
        drawn, filmed = (video.views["third_person"].astype(int) for video in (sketch, whole))
        contact = next(event.frame for event in events if event.name == "contact")
        assert success
        late = next(event.frame for event in all_events if event.name == "contact")
        assert late == contact
        assert contact + 4 <= len(drawn) <= contact + 13
        assert np.array_equal(drawn[0], filmed[0])
        moved = np.abs(filmed[late] - filmed[0]).mean()
        assert np.abs(drawn[contact] - filmed[late]).mean() < 0.35 * moved
        checked += 1
    assert checked > 5

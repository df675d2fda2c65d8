"""Drills: one scene, each of its things meant in turn, touched where it stands by either body."""

import contextlib

import numpy as np
import pytest

from hostbot.sim.catalogue import split, task
from hostbot.sim.demonstrator import DemonstratorConfig, demonstrate
from hostbot.sim.drills import BRING, THINGS, TOUCH, carried, drill, places, touched
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.episode import robot_episode
from hostbot.sim.layout import NoRoom
from hostbot.sim.moves import Pick, Put
from hostbot.sim.predicates import PutDown
from hostbot.sim.sketch import human_sketch, robot_sketch
from hostbot.sim.task import Task
from hostbot.sim.things import Thing, mat
from hostbot.sim.things.made_up import COUNT, made_up, palette

BLIND = EnvConfig(views=())


def of_family(family, seeds, which=0, begun=True):
    """The drills of a family among those of some seeds."""
    drills = [(seed, drill(seed, which, begun)) for seed in seeds]
    return [(seed, one) for seed, one in drills if one.family == family]


def test_a_scene_is_the_same_whichever_thing_is_meant():
    for seed in range(40):
        drills = [drill(seed, which) for which in range(THINGS)]
        scenes = [sorted((t.name, t.kind, t.colour) for t in one.scene) for one in drills]
        assert all(scene == scenes[0] for scene in scenes)
        brought = int(drills[0].family == BRING)
        assert len({(kind, colour) for _, kind, colour in scenes[0]}) == THINGS + brought
        meant = [one.things[-1].name for one in drills]
        assert len(set(meant)) == THINGS
        assert all(one.things[-1].words in one.instructions[0] for one in drills)
        assert drill(seed, 5) == drills[5 % THINGS]


def test_things_are_such_as_training_tasks_show_in_every_colour_or_made_up():
    shown = {thing.kind for name in split().train for thing in task(name).scene}
    invented = {(made_up(number), colour) for number in range(COUNT) for colour in palette(number)}
    for family, known in ((TOUCH, touched()), (BRING, places())):
        drawn = [thing for _, one in of_family(family, range(3000)) for thing in one.things[-1:] + one.foils]
        looks = {(thing.kind, thing.colour) for thing in drawn}
        assert len(looks & invented) > 0.9 * len(invented)
        seen = looks - invented
        assert {kind for kind, _ in seen} <= shown
        assert len(seen) == 12 * len(known)
        assert 0.4 < np.mean([(thing.kind, thing.colour) in invented for thing in drawn]) < 0.6
    held = {one.things[0].kind.__name__ for _, one in of_family(BRING, range(400))}
    assert set(carried()) < held


def test_no_drill_puts_what_a_novel_task_puts_there():
    """Whether it is put, pushed, stored or poured there: not even in the same scene."""
    novel = [{(t.kind.__name__, t.colour) for t in task(name).things} for name in split().novel]
    assert {("block", "purple"), ("mat", "blue")} in novel  # pushed
    for _, one in of_family(BRING, [*range(6000), 76869, 79516, 100855]):
        held = (one.things[0].kind.__name__, one.things[0].colour)
        others = {(t.kind.__name__, t.colour) for t in one.scene} - {held}
        assert not any(held in looks and others & looks for looks in novel)


@pytest.mark.parametrize("number", range(0, COUNT, 5))
def test_what_was_made_up_can_be_taken_and_stays_where_it_is_put(number):
    thing, other = (
        Thing(name="it", kind=made_up(number), colour="red"),
        Thing(name="mat", kind=mat, colour="blue"),
    )
    one = Task(
        name="made-up", family="made-up", things=(thing, other), foils=(), instructions=("",),
        script=(Pick(item="it"), Put(item="it", frame="mat")), success=PutDown("it", "mat", (0, 0, 0)),
    )  # fmt: skip
    assert any(robot_episode(one, seed, BLIND).success for seed in range(2))


def test_half_of_the_scenes_are_of_either_kind():
    assert 0.4 < np.mean([drill(seed, 0).family == BRING for seed in range(400)]) < 0.6


def test_most_scenes_have_two_of_a_kind_that_colour_alone_tells_apart():
    one_of = [one for _, one in of_family(TOUCH, range(400))]
    assert 0.7 < np.mean([len({thing.kind for thing in one.scene}) < THINGS for one in one_of]) < 0.98


def test_one_instruction_is_one_place():
    """Whatever is brought: robots and people are exchanged by the instruction."""
    places = {}
    for _, one in of_family(BRING, range(1500)):
        put = one.script[1]
        places.setdefault(one.instructions[0], set()).add((one.things[1].kind, put.at, put.square))
        assert one.things[0].words not in one.instructions[0]
    assert all(len(found) == 1 for found in places.values())
    named = of_family(BRING, range(50), begun=False)
    assert all(one.things[0].words in one.instructions[0] and not one.begun for _, one in named)


def sketches(family, seeds):
    """Robots' sketches of every thing that may be meant, with the world they were made in and the hand that moves."""
    for seed, one in of_family(family, seeds):
        env = SimEnv(one, BLIND)
        with contextlib.suppress(NoRoom):
            env.begin(seed)
            for which in range(THINGS):
                meant = drill(seed, which)
                sketch = robot_sketch(one, seed, BLIND, 1.0, meant if which else None)
                if sketch.success:
                    path, hands = sketch.trajectory, (slice(0, 3), slice(10, 13))
                    hand = max(hands, key=lambda h: np.linalg.norm(path.state[1, h] - path.state[0, h]))
                    yield env.world, meant, path, hand
        env.close()


def test_the_hand_goes_to_the_thing_that_is_meant():
    """Of all things in the scene the one that is meant is nearest to the hand at its first contact."""
    made = 0
    for world, meant, path, hand in sketches(TOUCH, range(24)):
        made += 1
        at = path.state[1, hand]
        away = {t.name: np.linalg.norm((world.pose(t.name).pos - at)[:2]) for t in meant.scene}
        big = meant.things[0].kind.__name__ == "drawer"  # held by its handle, away from its middle
        assert big or min(away, key=away.__getitem__) == meant.things[0].name
    assert made > 30


def test_what_is_held_is_brought_to_the_place_that_is_meant():
    """One state with something up in the hand, then the hand at the place: over it, in it or at its side."""
    made = 0
    for world, meant, path, hand in sketches(BRING, range(30)):
        made += 1
        assert len(path.state) == 2
        assert [event.name for event in path.events] == ["release"]
        put, frame = meant.script[1], world.base(meant.things[1].name)
        place = frame.pos + (np.eye(3) if put.square else frame.rot) @ np.asarray(put.at)
        assert np.linalg.norm((path.state[1, hand] - place)[:2]) < 0.06  # a thing may be held at its rim
        assert path.state[0, hand][2] > world.pose(meant.things[0].name).pos[2]
    assert made > 25


def test_a_person_brings_what_is_in_the_hand():
    """As in a whole video from the grasp on: about as long, pictures hardly apart while it is carried and let go."""
    apart, config = [], DemonstratorConfig(size=48)
    for seed, one in of_family(BRING, range(40)):
        with contextlib.suppress(NoRoom):
            video, events, success = human_sketch(one, seed, config)
            names = {event.name: event.frame for event in events}
            assert success
            assert "contact" not in names
            drawn = video.views["third_person"].astype(int)
            assert names["release"] + 4 <= len(drawn) <= names["release"] + 13
            whole, all_events, fine = demonstrate(drill(seed, 0, begun=False), seed, config)
            if not fine or [event.name for event in all_events].count("contact") > 1:
                continue  # it slipped or something was in the way
            since = next(event.frame for event in all_events if event.name == "grasp")
            let_go = next(event.frame for event in all_events if event.name == "release") - since
            filmed = whole.views["third_person"].astype(int)
            assert abs(let_go - names["release"]) <= 12
            moved = np.abs(filmed[since + let_go] - filmed[since]).mean()
            apart.append(np.abs(drawn[names["release"]] - filmed[since + let_go]).mean() / moved)
    assert len(apart) > 8
    assert np.median(apart) < 0.4, apart


@pytest.mark.parametrize("kind", sorted(touched()))
def test_a_person_touches_it(kind):
    for seed in range(2000):
        one = drill(seed, seed)
        if one.family != TOUCH or one.things[0].kind.__name__ != kind:
            continue
        try:
            _, events, success = demonstrate(one, seed, pictures=False)
        except NoRoom:
            continue
        if success:
            assert "contact" in [event.name for event in events]
            return
    raise AssertionError(f"nobody could touch a {kind}")


@pytest.mark.parametrize("family", [TOUCH, BRING])
def test_a_robot_does_it_with_physics_too(family):
    done = []
    for seed, one in of_family(family, range(24), begun=False):
        with contextlib.suppress(NoRoom):
            done.append(robot_episode(one, seed, BLIND).success)
    assert np.mean(done) > 0.8


def test_a_persons_sketch_is_the_way_of_a_whole_video_to_its_contact():
    """The same first picture, contact at the same time, pictures hardly apart, and a moment after the contact."""
    apart, config = [], DemonstratorConfig(size=48)
    for seed, one in of_family(TOUCH, range(16)):
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
        assert abs(late - contact) <= 1
        assert contact + 4 <= len(drawn) <= contact + 13
        assert np.array_equal(drawn[0], filmed[0])
        moved = np.abs(filmed[late] - filmed[0]).mean()
        apart.append(np.abs(drawn[contact] - filmed[late]).mean() / moved)
    assert len(apart) > 5
    assert np.median(apart) < 0.3, apart

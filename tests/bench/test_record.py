import itertools
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from hostbot.bench.record import STRIDE, RecordConfig, _record_one, jobs, num_done, parts_of, record, wordings
from hostbot.data.sources import open_source
from hostbot.data.store import open_dataset
from hostbot.data.wordings import read_wordings, wordings_path
from hostbot.sim.catalogue import split, task
from hostbot.sim.drills import drill
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.layout import NoRoom
from hostbot.types import BadInput

CONFIG = RecordConfig(split="mastered", episodes_per_task=1, size=32, workers=2)


def test_parts_share_the_jobs_without_overlap():
    listed = jobs(CONFIG, 0) + jobs(CONFIG, 1)
    assert sorted(name for name, _ in listed) == sorted(split().mastered)


@pytest.mark.parametrize(("balance", "spread"), [(0.0, 26 / 3), (0.5, (26 / 3) ** 0.5), (1.0, 1.0)])
def test_small_families_are_recorded_more_often_where_they_are_balanced(balance, spread):
    listed = jobs(RecordConfig(episodes_per_task=40, balance=balance), 0)
    assert len(set(listed)) == len(listed) == pytest.approx(40 * len(split().train), rel=0.02)
    by_family = Counter(task(name).family for name, _ in listed)
    assert by_family["place_on"] / by_family["lift_tray"] == pytest.approx(spread, rel=0.05)
    assert {name for name, _ in listed} == set(split().train)


@pytest.mark.parametrize("settings", [{"balance": 1.5}, {"balance": 0.5, "drills": True}])
def test_a_balance_that_makes_no_sense_is_refused(settings):
    with pytest.raises(BadInput, match="--balance"):
        RecordConfig(**settings)


def test_some_robots_begin_midway_and_are_told_the_same():
    whole, midway = RecordConfig(size=32, stray=1.0), RecordConfig(size=32, stray=1.0, midway=0.7)
    lengths = {}
    for config in (whole, midway):
        kept = Kept()
        for seed in range(600, 606):
            _record_one(kept, 0, "robot", "stack-red_block-blue_block", seed, config)
        assert {told for _, told in kept.episodes} == {task("stack-red_block-blue_block").instructions[0]}
        lengths[config.midway] = [len(state) for state, _ in kept.episodes]
    assert min(lengths[0.0]) > 35
    assert 2 <= sum(length < 35 for length in lengths[0.7]) <= 6


@pytest.mark.parametrize("settings", [{"midway": 1.5}, {"midway": 0.5, "sketch": True}])
def test_beginning_midway_where_it_makes_no_sense_is_refused(settings):
    with pytest.raises(BadInput, match="--midway"):
        RecordConfig(**settings)


def test_an_interrupted_recording_goes_on(tmp_path):
    root = tmp_path / "robot"
    notes = record(root, "robot", CONFIG)
    next(notes)
    next(notes)
    notes.close()
    begun = num_done(root)
    assert 2 <= begun <= 7
    with pytest.raises(BadInput, match="other settings"):
        list(record(root, "robot", replace(CONFIG, size=64)))
    with pytest.raises(BadInput, match="other settings"):
        list(record(root, "robot", replace(CONFIG, families=(task(split().mastered[0]).family,))))
    later = list(record(root, "robot", CONFIG))
    assert len(later) in (
        7 - begun,
        6 - begun,
    )  # an episode that was being committed is finished, not made again
    assert num_done(root) == len(open_dataset(root)) == 7
    assert list(record(root, "robot", CONFIG)) == []
    assert not parts_of(root).exists()


def test_a_robot_dataset_has_actions_events_and_moving_pictures(tmp_path):
    config = replace(CONFIG, workers=1)
    list(record(tmp_path / "robot", "robot", config))
    source = open_dataset(tmp_path / "robot")
    rows = source.rows(0, ["observation.state", "action"])
    assert rows["action"].shape[1] == 20 == source.embodiment.dim
    assert [e.name for e in source.events(0)][:3] == ["approach", "contact", "grasp"]
    wanted = {task(name).instructions[0] for name in split().mastered}
    assert {source.episode(k).instruction for k in range(len(source))} == wanted
    frames = source.frames(0, "third_person", [0, len(rows["action"]) - 1])
    assert np.abs(frames[0].astype(int) - frames[1]).max() > 20


@pytest.mark.parametrize("raw", [0, 32])
def test_a_robot_dataset_tells_in_which_ways_its_tasks_can_be_said(tmp_path, raw):
    config = RecordConfig(families=("press",), episodes_per_task=1, size=32, variants=2, raw=raw)
    list(record(tmp_path / "robot", "robot", config))
    ways = read_wordings(tmp_path / "robot")
    source = open_source(tmp_path / "robot", None)
    assert {source.episode(k).instruction for k in range(len(source))} == set(ways)
    assert all(said[0] == named and len(set(said)) >= 2 for named, said in ways.items())
    wordings_path(tmp_path / "robot").unlink()
    assert (
        list(record(tmp_path / "robot", "robot", config)) == []
    )  # a recording that was killed at its very end
    assert read_wordings(tmp_path / "robot") == ways


def test_no_way_to_say_a_recorded_task_is_a_novel_one():
    said = {
        way for ways in wordings(RecordConfig(variants=12, episodes_per_task=12)).values() for way in ways
    }
    novel = {way for name in split().novel for way in task(name).instructions}
    assert len(said) > 3000
    assert not said & novel


def test_a_human_part_has_one_view_and_no_actions(tmp_path):
    root = tmp_path / "human"
    notes = record(root, "human", replace(CONFIG, workers=1))
    note = next(notes)
    notes.close()
    source = open_dataset(parts_of(root) / "part-00")
    assert source.views == ("third_person",)
    assert "action" not in source.widths
    assert source.episode(0).length == note.frames
    assert json.loads((parts_of(root) / "record.json").read_text())["episodes_per_task"] == 1


def test_both_bodies_record_the_same_variants_and_novel_tasks_have_none():
    config = RecordConfig(variants=3, first_seed=500)
    name = "press-red_button"
    told = [config.task_of(name, 500 + job, 9_000 + job).instructions[0] for job in range(9)]
    assert told[:3] == told[3:6] == told[6:]
    assert replace(config, variants=0).task_of(name, 500, 500).instructions == task(name).instructions
    other = [replace(config, first_seed=700).task_of(name, 700 + job, 1).instructions[0] for job in range(3)]
    assert other != told[:3]
    for wrong in ({"variants": -1}, {"split": "novel"}):
        with pytest.raises(BadInput, match="variants are"):
            replace(config, **wrong)


def test_sketches_of_two_variants_share_a_scene():
    config = RecordConfig(variants=4, first_seed=501, sketch=True)
    assert [config.in_scene_of(501 + job) - 501 for job in range(9)] == [0, 0, 2, 2, 4, 4, 6, 6, 8]
    assert [replace(config, sketch=False).in_scene_of(501 + job) - 501 for job in range(3)] == [0, 1, 2]
    assert [replace(config, variants=0).in_scene_of(501 + job) - 501 for job in range(3)] == [0, 1, 2]


class Kept:
    """A writer that keeps what it is given."""

    def __init__(self):
        self.episodes = []

    def add_episode(self, rows, views, tasks, events):
        self.episodes.append((rows["observation.state"], tasks[0]))


@pytest.mark.parametrize("name", [split().names("train", (family,))[0] for family in ("press", "pick")])
def test_a_sketch_is_told_in_the_words_of_the_thing_it_touches(name):
    """Two sketches in one scene; at either contact stands the thing that the instruction names."""
    config = RecordConfig(variants=6, first_seed=600, size=32, sketch=True, stray=1.0)
    checked = 0
    for job in (600, 602, 604):
        kept = Kept()
        for seed in (job, job + 1):
            _record_one(kept, 0, "robot", name, seed, config)
        (one, told), (other, told_other) = kept.episodes
        assert told != told_other
        assert told == config.task_of(name, job, 1).instructions[0]
        assert told_other == config.task_of(name, job + 1, 1).instructions[0]
        scene = config.task_of(name, job, job)
        env = SimEnv(scene, EnvConfig(views=()))
        env.begin(job)
        if not np.allclose(one[0], other[0]):
            continue  # one of them was out of reach in the first scene
        checked += 1
        for state, words in ((one, told), (other, told_other)):
            moved = max((slice(0, 3), slice(10, 13)), key=lambda hand: np.ptp(state[:, hand], axis=0).max())
            near = min(
                scene.scene,
                key=lambda t: np.linalg.norm(env.world.pose(t.name).pos[:2] - state[1, moved][:2]),
            )
            assert near.colour in words.lower()
    assert checked > 0


def test_drills_show_one_scene_with_each_of_its_things_meant(tmp_path):
    """Through files and back: four sketches of one picture, told apart by their words and by where the hand goes."""
    config = RecordConfig(drills=True, sketch=True, episodes_per_task=8, first_seed=108, size=32, workers=2)
    assert [config.in_scene_of(108 + job) - 108 for job in range(6)] == [0, 0, 0, 0, 4, 4]
    list(record(tmp_path / "robot", "robot", config))
    list(record(tmp_path / "human", "human", config))
    robot, human = open_dataset(tmp_path / "robot"), open_dataset(tmp_path / "human")
    assert (len(robot), len(human)) == (8, 8)
    told = [robot.episode(k).instruction for k in range(8)]
    assert sorted(told) == sorted(
        drill(seed, which).instructions[0] for seed in (108, 112) for which in range(4)
    )
    assert {words.split()[0] for words in told} == {"Touch", "Put"}
    first = [robot.frames(k, "third_person", [0])[0].astype(int) for k in range(8)]
    scene = {
        words: 108 if words in [drill(108, w).instructions[0] for w in range(4)] else 112 for words in told
    }
    apart = {True: [], False: []}
    for a, b in itertools.combinations(range(8), 2):
        apart[scene[told[a]] == scene[told[b]]].append(np.abs(first[a] - first[b]).mean())
    assert max(apart[True]) < min(apart[False]), "the same picture but for what the codec leaves out"
    said = [human.episode(k).instruction for k in range(8)]
    assert sorted(said) == sorted(told), "people show just what robots are to do"
    rooms = [human.frames(k, "third_person", [0])[0].astype(int) for k in range(8)]
    assert min(np.abs(a - b).mean() for a, b in itertools.combinations(rooms, 2)) > 3, (
        "each in a room of their own"
    )


def test_drills_are_no_tasks():
    for wrong in ({"variants": 2}, {"families": ("press",)}, {"split": "novel"}):
        with pytest.raises(BadInput, match="drills are no tasks"):
            RecordConfig(drills=True, **wrong)


def test_every_training_task_has_variants_that_fit_on_the_table():
    config = RecordConfig(variants=4, first_seed=700)
    for number, name in enumerate(split().train):
        job = 700 + number % 4
        for failures in range(config.tries):
            seed = job + failures * STRIDE
            try:
                SimEnv(config.task_of(name, job, seed), EnvConfig(views=())).begin(seed)
                break
            except NoRoom:
                continue
        else:
            pytest.fail(name)

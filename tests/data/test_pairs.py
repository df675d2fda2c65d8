"""Splits repeat, never overlap, and notice other data; pairs never mix tasks."""

import json

import numpy as np
import pytest

from hostbot.data.pairs import (
    SplitConfig,
    draw_pairs,
    load_split,
    make_split,
    pairs,
    save_split,
    task_key,
    unpaired_tasks,
)
from hostbot.types import BadInput, DataError

from .fakes import MemorySource


def dataset(*instructions, name="memory"):
    return MemorySource(
        [(text, {"action": np.zeros((5, 2), np.float32)}) for text in instructions], name=name
    )


@pytest.fixture
def sources():
    robot = dataset(*[f"task {i % 10}" for i in range(100)], name="robots")
    human = dataset(*[f"Task {i % 12}." for i in range(60)], name="humans")
    return {"robot": robot, "human": human}


def test_a_split_places_every_episode_once(sources):
    split = make_split(sources, SplitConfig(seed=3, novel_tasks=0.25, validation=0.2))
    for body, source in sources.items():
        placed = [i for part in ("train", "validation", "novel") for i in split.episodes(part, body)]
        assert sorted(placed) == list(range(len(source)))
    novel = {t.task for t in split.tasks if t.novel}
    assert len(novel) == 3
    assert all(not t.train and not t.validation for t in split.tasks if t.task in novel)


def test_the_seed_decides_and_the_file_remembers(sources, tmp_path):
    first, again, other = (make_split(sources, SplitConfig(seed=s, novel_tasks=0.2)) for s in (1, 1, 2))
    assert first == again
    assert first.tasks != other.tasks
    save_split(first, tmp_path / "split.json")
    assert load_split(tmp_path / "split.json", sources) == first
    with pytest.raises(DataError, match="--overwrite"):
        save_split(other, tmp_path / "split.json")


def test_an_edited_split_and_other_data_are_noticed(sources, tmp_path):
    path = tmp_path / "split.json"
    save_split(make_split(sources, SplitConfig()), path)
    values = json.loads(path.read_text())
    values["tasks"][0]["train"]["robot"].append(1)
    path.write_text(json.dumps(values))
    with pytest.raises(DataError, match="hash does not match"):
        load_split(path, sources)
    save_split(make_split(sources, SplitConfig()), path, overwrite=True)
    with pytest.raises(DataError, match="other robot episodes than robots"):
        load_split(path, {"robot": dataset("task 1", name="robots")})


@pytest.mark.parametrize("demo_body", ["robot", "human"])
def test_pairs_share_a_task_and_never_pair_an_episode_with_itself(sources, demo_body):
    split = make_split(sources, SplitConfig(novel_tasks=0.2, validation=0.2))
    found = list(pairs(split, "train", demo_body))
    train = set(split.episodes("train", "robot"))
    for pair in found:
        assert task_key(sources["robot"].episode(pair.robot).instruction) == pair.task
        assert task_key(sources[demo_body].episode(pair.demo).instruction) == pair.task
        assert pair.robot in train
        assert demo_body == "human" or pair.demo != pair.robot
    drawn = draw_pairs(split, "train", demo_body, 200, np.random.default_rng(0))
    assert set(drawn) <= set(found)
    assert drawn == draw_pairs(split, "train", demo_body, 200, np.random.default_rng(0))


def test_tasks_without_a_partner_are_named():
    split = make_split(
        {"robot": dataset("a", "a", "b"), "human": dataset("b", "c")}, SplitConfig(validation=0)
    )
    assert unpaired_tasks(split, "train", "robot") == ["b"]
    assert unpaired_tasks(split, "train", "human") == ["a"]
    with pytest.raises(DataError, match="no human-robot pair"):
        draw_pairs(split, "novel", "human", 1, np.random.default_rng(0))


def test_a_lone_episode_stays_in_training():
    split = make_split({"robot": dataset("a")}, SplitConfig(validation=0.9))
    assert split.episodes("train", "robot") == [0]


def test_wrong_shares_and_missing_instructions_are_refused():
    with pytest.raises(BadInput, match=r"1\.5"):
        SplitConfig(novel_tasks=1.5)
    with pytest.raises(DataError, match="episode 1 has no instruction"):
        make_split({"robot": dataset("a", "  ")}, SplitConfig())


def test_task_key_ignores_case_spacing_and_final_punctuation():
    assert task_key("  Stack the  Bowls. ") == task_key("stack the bowls") != task_key("stack the bowl")

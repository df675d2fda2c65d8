"""Other ways to say a task: kept beside a dataset, drawn once for each version of a video."""

import json
from itertools import chain

import numpy as np
import pytest

from hostbot.data.pairs import SplitConfig, make_split, pairs
from hostbot.data.plan import Planner
from hostbot.data.sampling import choose_pairs
from hostbot.data.takes import TakeConfig
from hostbot.data.wordings import read_wordings, wordings_path, write_wordings
from hostbot.types import DataError
from tests.data.toy import ABOVE, sample_config, sources, statistics_of, truth


def test_they_are_read_as_written_and_a_dataset_may_have_none(tmp_path):
    assert read_wordings(tmp_path) == {}
    ways = {"Push the cup.": ("Push the cup.", "Give the cup a push."), "Stop.": ("Stop.",)}
    write_wordings(tmp_path, ways)
    assert read_wordings(tmp_path) == ways


@pytest.mark.parametrize(
    "value",
    [
        [], {}, {"format": 2, "wordings": {}}, {"format": 1}, {"format": 1, "wordings": {"a": []}},
        {"format": 1, "wordings": {"a": ["b", " "]}}, {"format": 1, "wordings": {"a": "b"}},
    ],
)  # fmt: skip
def test_what_says_nothing_is_refused(tmp_path, value):
    path = wordings_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(value))
    with pytest.raises(DataError, match=r"wordings\.json"):
        read_wordings(tmp_path)


def planned(wordings, said="{} Now.", mirror=False):
    bodies = sources(tuple(range(30, 46)), tuple(range(25, 41)))
    config = sample_config(demos=3, demo_takes=2, states=4, take=TakeConfig(mirror=mirror))
    chosen = choose_pairs(pairs(make_split(bodies, SplitConfig(validation=0)), "train", "human"), config)
    told = {bodies["robot"].episode(k).instruction for k in range(len(bodies["robot"]))}
    ways = {one: (one, f"Please: {one}", said.format(one)) for one in told} if wordings else {}
    planner = Planner(bodies, statistics_of(bodies), config, (ABOVE,), ways)
    return planner.plan(chosen, truth(bodies)), ways, bodies


def test_each_version_of_a_video_is_told_in_one_way_and_all_ways_are_used():
    plan, ways, bodies = planned(wordings=True)
    assert set(plan.texts) <= set(chain(*ways.values()))
    used = {text.startswith("Please") + 2 * text.endswith("Now.") for text in plan.texts}
    assert used == {0, 1, 2}
    for take in np.unique(plan.rows.take):  # samples that share a window share their words
        assert len(np.unique(plan.rows.text[plan.rows.take == take])) == 1
    for episode, text in zip(plan.rows.episode, plan.rows.text, strict=True):
        assert plan.texts[text] in ways[bodies["robot"].episode(int(episode)).instruction]


def test_nothing_else_depends_on_them():
    (one, _, _), (other, _, _) = planned(wordings=True), planned(wordings=False)
    for name in ("take", "q", "episode", "frames", "state", "action", "decision"):
        assert np.array_equal(getattr(one.rows, name), getattr(other.rows, name)), name


def test_what_any_way_says_of_left_and_right_is_not_mirrored():
    def mirrored(said):
        plan, _, _ = planned(True, said, mirror=True)
        return {int(version) % 2 for version in plan.takes.version} | {int(v) % 2 for v in plan.rows.version}

    assert mirrored("{} Now.") == {0, 1}
    assert len(mirrored("{} With the left hand.")) == 1

"""Where correspondences come from: events, elapsed time, or learned labels beside the dataset."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hostbot.align.labels import SCHEMA
from hostbot.data.pairs import Pair
from hostbot.train.prepare import labels_of
from hostbot.types import BadInput, DataError
from tests.data.toy import sources, truth

PAIR = Pair(task="push the cup", demo_body="human", demo=0, robot=2)


def write_labels(folder, demo_name="human"):
    """Two pairs, one of them unreliable."""
    folder.mkdir()
    (folder / "alignment.json").write_text(json.dumps({"format": 1, "demo_name": demo_name, "num_pairs": 2}))
    maps = truth(sources())(PAIR)
    rows = [
        {
            "robot": robot,
            "demo": 0,
            "reason": reason,
            "confidence": 0.9,
            "cost": 0.1,
            "robot_to_demo": maps.robot_to_demo.tolist(),
            "demo_to_robot": maps.demo_to_robot.tolist(),
            "robot_confidence": maps.robot_confidence.tolist(),
            "demo_confidence": maps.demo_confidence.tolist(),
        }
        for robot, reason in ((2, ""), (0, "confidence too low"))
    ]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "part-00000.parquet")
    return maps


def test_learned_labels_are_read_and_unreliable_pairs_left_out(tmp_path):
    maps = write_labels(tmp_path / "labels")
    label, name = labels_of(str(tmp_path / "labels"), sources(), "human")
    assert name == "alignment:labels"
    assert np.array_equal(label(PAIR).robot_to_demo, maps.robot_to_demo)
    unreliable = Pair(task="push the cup", demo_body="human", demo=0, robot=0)
    assert label(unreliable) is None
    sent = pickle.loads(pickle.dumps(label))
    assert np.array_equal(sent(PAIR).robot_to_demo, maps.robot_to_demo)
    assert sent(unreliable) is None


def test_labels_of_other_demonstrations_are_refused(tmp_path):
    write_labels(tmp_path / "labels", "somebody else")
    with pytest.raises(DataError, match="'somebody else', not of 'human'"):
        labels_of(str(tmp_path / "labels"), sources(), "human")
    with pytest.raises(BadInput, match="hostbot align label"):
        labels_of("nowhere", sources(), "human")


def test_events_are_the_truth_and_must_be_there():
    bodies = sources()
    label, name = labels_of("events", bodies, "human")
    assert name == "events"
    assert np.array_equal(label(PAIR).demo_to_robot, truth(bodies)(PAIR).demo_to_robot)
    bodies["human"]._events[0] = ()
    with pytest.raises(DataError, match="human: episode 0 has no events"):
        label(PAIR)


def test_the_clock_matches_shares_of_time():
    bodies = sources()
    maps = labels_of("clock", bodies, "human")[0](PAIR)
    assert maps.robot_to_demo[0] == 0
    assert maps.robot_to_demo[-1] == 39
    assert maps.demo_to_robot[-1] == 30

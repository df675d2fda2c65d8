import json
from dataclasses import replace

import numpy as np
import pytest

from hostbot.bench.record import RecordConfig, jobs, num_done, record
from hostbot.data.store import open_dataset
from hostbot.sim.catalogue import split, task
from hostbot.types import BadInput

CONFIG = RecordConfig(split="mastered", episodes_per_task=1, size=32, workers=2)


def test_parts_share_the_jobs_without_overlap():
    listed = jobs(CONFIG, 0) + jobs(CONFIG, 1)
    assert sorted(name for name, _ in listed) == sorted(split().mastered)


def test_an_interrupted_recording_goes_on(tmp_path):
    notes = record(tmp_path, "robot", CONFIG)
    next(notes)
    next(notes)
    notes.close()
    begun = num_done(tmp_path)
    assert 2 <= begun <= 7
    later = list(record(tmp_path, "robot", CONFIG))
    assert len(later) == 7 - begun
    assert num_done(tmp_path) == 7
    source = open_dataset(tmp_path / "part-00")
    rows = source.rows(0, ["observation.state", "action"])
    assert rows["action"].shape[1] == 20
    assert source.embodiment.dim == 20
    assert [e.name for e in source.events(0)][:2] == ["approach", "contact"]
    assert source.episode(0).instruction in {task(name).instructions[0] for name in split().mastered}
    frames = source.frames(0, "third_person", [0, len(rows["action"]) - 1])
    assert np.abs(frames[0].astype(int) - frames[1]).max() > 20
    with pytest.raises(BadInput, match="other settings"):
        list(record(tmp_path, "robot", replace(CONFIG, size=64)))


def test_a_human_part_has_one_view_and_no_actions(tmp_path):
    config = replace(CONFIG, workers=1)
    notes = record(tmp_path, "human", config)
    note = next(notes)
    notes.close()
    source = open_dataset(tmp_path / "part-00")
    assert source.views == ("third_person",)
    assert "action" not in source.widths
    assert source.episode(0).length == note.frames
    assert json.loads((tmp_path / "record.json").read_text())["episodes_per_task"] == 1

"""Recordings without video: what is read is what was written, also after a kill."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from hostbot.bench.record import RecordConfig, num_done, parts_of, record
from hostbot.cli import main
from hostbot.data.reels import ReelKind, Reels, ReelWriter, join_reels
from hostbot.data.sources import open_source
from hostbot.data.stats import statistics_path
from hostbot.sim.catalogue import split
from hostbot.types import BadInput, DataError, Event, bimanual
from hostbot.video import fit_frames

ROBOT = bimanual(16.0)
KIND = ReelKind(
    fps=16.0, size=(8, 8), views=ROBOT.views, widths={"observation.state": 20, "action": 20}, embodiment=ROBOT
)


def episode(seed, length, side=8):
    rng = np.random.default_rng(seed)
    rows = {name: rng.normal(size=(length, 20)).astype(np.float32) for name in KIND.widths}
    views = {view: rng.integers(0, 256, (length, side, side, 3), dtype=np.uint8) for view in ROBOT.views}
    return rows, views, [f"task {seed % 2}"] * length, [Event(name="contact", frame=length // 2)]


def written(folder, numbers=((0, 5), (1, 3)), part="part-00"):
    with ReelWriter(folder / "parts" / part, KIND) as writer:
        for seed, length in numbers:
            writer.add_episode(*episode(seed, length))
    return folder / "parts"


def check(source, index, seed, length):
    rows, views, tasks, events = episode(seed, length)
    info = source.episode(index)
    assert (info.length, info.instruction) == (length, tasks[0])
    assert list(source.events(index)) == events
    got = source.rows(index, ["action", "observation.state"])
    for name, values in rows.items():
        np.testing.assert_array_equal(got[name], values)
    for view, frames in views.items():
        wanted = [length - 1, 0, length // 2]
        np.testing.assert_array_equal(source.frames(index, view, wanted), frames[wanted])
        np.testing.assert_array_equal(
            source.frames(index, view, [1], (4, 4)), fit_frames(frames[[1]], (4, 4))
        )


def test_what_was_written_is_read_from_all_parts(tmp_path):
    parts = written(tmp_path)
    written(tmp_path, ((2, 4),), "part-01")
    join_reels(parts, tmp_path / "robot", KIND)
    source = open_source(tmp_path / "robot")
    assert (len(source), source.views, source.widths, source.embodiment) == (
        3,
        ROBOT.views,
        KIND.widths,
        ROBOT,
    )
    for one in (source, pickle.loads(pickle.dumps(source))):
        for index, (seed, length) in enumerate(((0, 5), (1, 3), (2, 4))):
            check(one, index, seed, length)


def test_pictures_are_kept_at_their_size(tmp_path):
    with ReelWriter(tmp_path / "parts/part-00", KIND) as writer:
        rows, views, tasks, events = episode(0, 4, side=12)
        writer.add_episode(rows, views, tasks, events)
    join_reels(tmp_path / "parts", tmp_path / "robot", KIND)
    kept = Reels(tmp_path / "robot").frames(0, "third_person", [2])
    np.testing.assert_array_equal(kept, fit_frames(views["third_person"][[2]], (8, 8)))


@pytest.mark.parametrize("name", ["frames.bin", "rows.bin", "episodes.jsonl"])
def test_an_episode_that_was_cut_short_is_written_over(tmp_path, name):
    parts = written(tmp_path)
    with (parts / "part-00" / name).open("ab") as file:
        file.write(b'{"length": 9, "ta')  # what a kill leaves
    with ReelWriter(parts / "part-00", KIND) as writer:
        assert writer.num_episodes == 2
        writer.add_episode(*episode(7, 6))
    join_reels(parts, tmp_path / "robot", KIND)
    source = Reels(tmp_path / "robot")
    for index, (seed, length) in enumerate(((0, 5), (1, 3), (7, 6))):
        check(source, index, seed, length)


def test_two_do_not_write_one_part(tmp_path):
    with ReelWriter(tmp_path / "part-00", KIND), pytest.raises(DataError, match="another process"):
        ReelWriter(tmp_path / "part-00", KIND)
    with ReelWriter(tmp_path / "part-00", KIND) as writer:
        assert writer.num_episodes == 0


def test_what_is_damaged_or_wrong_is_said(tmp_path):
    parts = written(tmp_path)
    with ReelWriter(parts / "part-00", KIND) as writer:
        rows, views, tasks, events = episode(3, 4)
        for wrong in (
            ({}, views, tasks),
            (rows, views, tasks[:2]),
            (rows, views, [*tasks[1:], "else"]),
            ({"action": rows["action"], "observation.state": rows["action"][:, :3]}, views, tasks),
        ):
            with pytest.raises(BadInput):
                writer.add_episode(*wrong, events)
    join_reels(parts, tmp_path / "robot", KIND)
    source = Reels(tmp_path / "robot")
    with pytest.raises(BadInput, match="has episodes 0"):
        source.episode(2)
    with pytest.raises(BadInput, match=r"0\.\.4"):
        source.frames(0, "third_person", [5])
    with pytest.raises(DataError, match="has no view"):
        source.frames(0, "phone", [0])
    with pytest.raises(DataError, match="has no force"):
        source.rows(0, ["force"])
    with pytest.raises(DataError, match="leave --fps out"):
        open_source(tmp_path / "robot", 16.0)
    part = tmp_path / "robot/part-00"
    (part / "frames.bin").write_bytes(b"")
    with pytest.raises(DataError, match="too short"):
        Reels(tmp_path / "robot")
    with pytest.raises(DataError, match="shorter than its episodes"):
        ReelWriter(part, KIND)
    (part / "episodes.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match="damaged after 0 episodes"):
        Reels(tmp_path / "robot")
    (tmp_path / "robot/reels.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(DataError, match="another version"):
        Reels(tmp_path / "robot")


def test_the_bench_records_the_same_either_way(tmp_path):
    """Rows, events and tasks alike; pictures those of the video but for its losses. An interrupted one goes on."""
    config = RecordConfig(split="mastered", episodes_per_task=1, size=64, workers=2, stray=1.0)
    raw = replace(config, raw=32)
    list(record(tmp_path / "video", "robot", config))
    notes = record(tmp_path / "raw", "robot", raw)
    next(notes)
    notes.close()
    assert num_done(tmp_path / "raw") >= 1
    list(record(tmp_path / "raw", "robot", raw))
    assert list(record(tmp_path / "raw", "robot", raw)) == []
    assert not parts_of(tmp_path / "raw").exists()
    one, other = open_source(tmp_path / "video"), open_source(tmp_path / "raw")
    assert len(one) == len(other) == len(split().mastered) == num_done(tmp_path / "raw")
    for index in range(len(one)):
        assert one.episode(index) == other.episode(index)
        assert one.events(index) == other.events(index)
        names = ["observation.state", "action"]
        a, b = one.rows(index, names), other.rows(index, names)
        assert all(np.array_equal(a[name], b[name]) for name in names)
        last = one.episode(index).length - 1
        for view in one.views:
            frames = [source.frames(index, view, [0, last], (32, 32)).astype(int) for source in (one, other)]
            assert np.abs(frames[0] - frames[1]).mean() < 6
    assert main(["data", "stats", str(tmp_path / "raw"), "--horizon", "8"]) == 0
    assert statistics_path(tmp_path / "raw").is_file()
    with pytest.raises(BadInput, match="at most --size 64"):
        replace(config, raw=96)

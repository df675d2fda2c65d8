"""Writing: a round trip of every element, files joined without loss, nothing acknowledged ever lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import av
import numpy as np
import pyarrow.parquet as pq
import pytest

from hostbot.data.check import repair_dataset
from hostbot.data.features import FeatureSpec
from hostbot.data.files import MANIFEST, OVERLAY
from hostbot.data.journal import STAGING, Staging
from hostbot.data.merge import Slot, assign
from hostbot.data.schema import V3_VIDEO
from hostbot.data.store import open_dataset
from hostbot.data.write import DatasetWriter
from hostbot.types import BadInput, DataError, Event, bimanual
from tests.data import build
from tests.data.build import (
    VIEWS,
    add,
    decoded,
    everything,
    make_episodes,
    open_writer,
    read_bars,
    same,
    write_v3,
)

KEYS = {view: f"observation.images.{view}" for view in VIEWS}
LENGTHS = (7, 31, 12, 1, 40, 18, 33, 2, 25, 16, 9, 30, 29, 31, 5, 6, 21, 38, 3, 11)


def test_round_trip_of_three_views_twenty_episodes_five_tasks(tmp_path: Path) -> None:
    episodes = make_episodes(1, LENGTHS)
    with open_writer(tmp_path / "set") as writer:
        for e in episodes:
            add(writer, e)
        single = {
            (e.number, view): decoded(
                tmp_path / "set" / V3_VIDEO.format(video_key=key, chunk_index=0, file_index=e.number)
            )
            for e in episodes
            for view, key in KEYS.items()
        }
    dataset = open_dataset(tmp_path / "set")
    assert len(dataset) == 20
    assert len(dataset.tasks) == 5
    assert dataset.embodiment == bimanual(30, VIEWS)
    assert dataset.num_frames == sum(LENGTHS)
    for e in episodes:
        rows = dataset.rows(e.number, list(e.rows))
        for name in e.rows:
            assert rows[name].dtype == e.rows[name].dtype
            np.testing.assert_array_equal(rows[name], e.rows[name])
        assert [dataset.tasks[i] for i in dataset.frame_tasks(e.number)] == e.tasks
        assert dataset.events(e.number) == e.events
        for view in VIEWS:
            frames = dataset.frames(e.number, view, range(len(e)))
            assert [read_bars(f) for f in frames] == e.codes(view)
            np.testing.assert_array_equal(frames, single[e.number, view])
    assert len(list((tmp_path / "set").glob("data/*/*"))) == 1
    assert len(list((tmp_path / "set").glob("videos/*/*/*"))) == 3
    assert len(list((tmp_path / "set").glob("meta/episodes/*/*"))) == 1


def test_a_dataset_is_whole_before_it_is_finalized_and_the_same_after(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "set", VIEWS[:1], batch=100)
    for e in make_episodes(2, (5, 9, 4)):
        add(writer, e, VIEWS[:1])
    before = everything(open_dataset(tmp_path / "set"))
    assert len(list((tmp_path / "set").glob("videos/*/*/*.mp4"))) == 3
    writer.finalize()
    writer.finalize()
    assert len(list((tmp_path / "set").glob("videos/*/*/*.mp4"))) == 1
    assert same(before, everything(open_dataset(tmp_path / "set")))


def test_episodes_committed_together_are_the_same_dataset(tmp_path: Path) -> None:
    """Seen in threes, the rest at the end; joined in between; the same files as one by one."""
    episodes = make_episodes(2, LENGTHS[:8])
    for name, together in (("one", 1), ("three", 3)):
        with open_writer(tmp_path / name, batch=5, together=together) as writer:
            for count, e in enumerate(episodes, start=1):
                add(writer, e)
                joined = 5 if count >= 5 else 0  # joining commits what was left
                waiting = (count - joined) % together
                assert len(open_dataset(tmp_path / name)) == count - waiting
                assert writer.num_episodes == count
    assert same(everything(open_dataset(tmp_path / "three")), everything(open_dataset(tmp_path / "one")), 8)


def test_a_mistake_loses_none_of_those_that_wait_to_be_committed(tmp_path: Path) -> None:
    episodes = make_episodes(2, LENGTHS[:5])
    with open_writer(tmp_path / "set", together=4) as writer:
        for number, e in enumerate(episodes):
            with pytest.raises(RuntimeError, match="half-way"), writer.episode() as buffer:
                views = {view: next(e.frames(view)) for view in VIEWS}
                buffer.add({name: values[0] for name, values in e.rows.items()}, views, e.tasks[0])
                raise RuntimeError("half-way")
            assert writer.num_episodes == number
            add(writer, e)
    write_v3(tmp_path / "other", episodes)
    assert same(everything(open_dataset(tmp_path / "set")), everything(open_dataset(tmp_path / "other")), 8)


def test_an_interrupt_between_staging_and_committing_forgets_that_episode_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes = make_episodes(2, LENGTHS[:4])
    with open_writer(tmp_path / "set", together=3) as writer:
        for e in episodes[:2]:
            add(writer, e)
        with monkeypatch.context() as patched:
            patched.setattr(writer, "_settle", lambda: signal.default_int_handler(signal.SIGINT, None))
            with pytest.raises(KeyboardInterrupt):
                add(writer, episodes[2])
        assert writer.num_episodes == 2
        for e in episodes[2:]:
            add(writer, e)
    write_v3(tmp_path / "other", episodes)
    assert same(everything(open_dataset(tmp_path / "set")), everything(open_dataset(tmp_path / "other")), 8)


def test_a_killed_writer_loses_only_those_that_wait_to_be_committed(tmp_path: Path) -> None:
    episodes = make_episodes(2, LENGTHS[:5])
    writer = open_writer(tmp_path / "set", together=3)
    for e in episodes:
        add(writer, e)
    writer._lock.close()  # as the system does for a process that died
    with open_writer(tmp_path / "set", resume=True, together=3) as again:
        assert again.num_episodes == 3
        for e in episodes[3:]:
            add(again, e)
    write_v3(tmp_path / "other", episodes)
    assert same(everything(open_dataset(tmp_path / "set")), everything(open_dataset(tmp_path / "other")), 8)


def test_resume_continues_joined_and_unjoined(tmp_path: Path) -> None:
    episodes = make_episodes(3, (5, 9, 4, 6, 3, 8, 2))
    write_v3(tmp_path / "whole", episodes, VIEWS[:2])
    write_v3(tmp_path / "parts", episodes[:3], VIEWS[:2])
    for group in (episodes[3:5], episodes[5:6]):
        writer = open_writer(tmp_path / "parts", VIEWS[:2], resume=True)
        for e in group:
            assert add(writer, e, VIEWS[:2]) == e.number
        writer._lock.close()
    with open_writer(tmp_path / "parts", VIEWS[:2], resume=True) as writer:
        add(writer, episodes[6], VIEWS[:2])
    assert same(everything(open_dataset(tmp_path / "whole")), everything(open_dataset(tmp_path / "parts")), 8)
    assert len(list((tmp_path / "parts").glob("videos/*/*/*.mp4"))) == 2
    ours, theirs = (json.loads((tmp_path / n / "meta/stats.json").read_text()) for n in ("whole", "parts"))
    for feature in ours:
        for name in ours[feature]:
            np.testing.assert_allclose(ours[feature][name], theirs[feature][name], rtol=1e-12)


def test_resume_refuses_another_kind_of_dataset(tmp_path: Path) -> None:
    write_v3(tmp_path / "set", make_episodes(3, (5,)), VIEWS[:1])
    for options in ({"fps": 25}, {"features": {"action": 19}}, {"codec": "av1"}):
        with pytest.raises(DataError, match="another"):
            open_writer(tmp_path / "set", VIEWS[:1], resume=True, **options)
    with pytest.raises(DataError, match="not empty"):
        open_writer(tmp_path / "set", VIEWS[:1])


def test_two_writers_cannot_meet(tmp_path: Path) -> None:
    with open_writer(tmp_path / "set", ()), pytest.raises(DataError, match="another process"):
        open_writer(tmp_path / "set", (), resume=True)


def test_files_rotate_at_their_limit(tmp_path: Path) -> None:
    episodes = make_episodes(4, (40,) * 8)
    write_v3(tmp_path / "set", episodes, VIEWS[:1], batch=3, data_file_mb=0.03, video_file_mb=0.012)
    files = sorted((tmp_path / "set").glob("videos/*/*/*.mp4"))
    assert 1 < len(files) < 8
    assert all(f.stat().st_size < 14_000 for f in files)
    assert 1 < len(list((tmp_path / "set").glob("data/*/*"))) < 8
    dataset = open_dataset(tmp_path / "set")
    for e in episodes:
        assert [read_bars(f) for f in dataset.frames(e.number, VIEWS[0], range(40))] == e.codes(VIEWS[0])


def test_slots_follow_the_chunk_rule_and_the_limits() -> None:
    assert Slot(chunk=0, file=999).next() == Slot(chunk=1, file=0)
    assert Slot(chunk=2, file=7).next() == Slot(chunk=2, file=8)
    tail = Slot(chunk=0, file=3, num_bytes=80, num_frames=10)
    placed = [(s.file, start) for s, start in assign(tail, [(10, 5), (20, 5), (95, 5), (5, 5)], 100, 1000)]
    assert placed == [(3, 10), (4, 0), (5, 0), (5, 5)]
    assert [s.file for s, _ in assign(None, [(1, 600), (1, 600)], 100, 1000)] == [0, 1]
    assert [s.file for s, _ in assign(None, [(500, 1)], 100, 1000)] == [0]


def test_videos_run_at_a_constant_rate_with_a_keyframe_at_every_episode(tmp_path: Path) -> None:
    write_v3(tmp_path / "set", make_episodes(5, (7, 40, 12)), VIEWS[:1])
    path = next((tmp_path / "set").glob("videos/*/*/*.mp4"))
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [p for p in container.demux(stream) if p.size]
        seconds = [float(p.pts * p.time_base) for p in packets]
        np.testing.assert_allclose(seconds, np.arange(59) / 30, atol=1e-6)
        assert all(packets[i].is_keyframe for i in (0, 7, 47))
        assert float(stream.average_rate) == 30
        assert stream.codec_context.name == "h264"
        assert not stream.codec_context.has_b_frames
    assert all(p.stat().st_mode & 0o044 == 0o044 for p in (tmp_path / "set").rglob("*") if p.is_file())


@pytest.mark.parametrize("codec", ["hevc", "av1"])
def test_other_codecs_are_joined_as_well(tmp_path: Path, codec: str) -> None:
    episodes = make_episodes(5, (7, 33, 1))
    with open_writer(tmp_path / "set", (), views={"left_wrist": (64, 96)}, codec=codec) as writer:
        for e in episodes:
            writer.add_episode(e.rows, {"left_wrist": e.frames("left_wrist", (64, 96))}, e.tasks, e.events)
    dataset = open_dataset(tmp_path / "set")
    assert dataset.schema.views["left_wrist"].codec == codec
    assert len(list((tmp_path / "set").glob("videos/*/*/*.mp4"))) == 1
    for e in episodes:
        frames = dataset.frames(e.number, "left_wrist", range(len(e)))
        assert [read_bars(f) for f in frames] == e.codes("left_wrist")


def test_one_row_group_an_episode_with_page_checksums(tmp_path: Path) -> None:
    write_v3(tmp_path / "set", make_episodes(5, (7, 40, 12)), ())
    path = tmp_path / "set/data/chunk-000/file-000.parquet"
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(i).num_rows for i in range(3)] == [7, 40, 12]
    raw = bytearray(path.read_bytes())
    raw[400] ^= 1
    path.write_bytes(raw)
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)
    with pytest.raises(DataError, match="checksum"):
        open_dataset(tmp_path / "set").rows(0, ["action"])


def test_statistics_are_those_of_the_data(tmp_path: Path) -> None:
    episodes = make_episodes(6, (30, 50))
    write_v3(tmp_path / "set", episodes, VIEWS[:1])
    stats = json.loads((tmp_path / "set/meta/stats.json").read_text())
    actions = np.concatenate([e.rows["action"] for e in episodes]).astype(np.float64)
    for name, expected in (
        ("min", actions.min(0)),
        ("max", actions.max(0)),
        ("mean", actions.mean(0)),
        ("std", actions.std(0)),
    ):
        np.testing.assert_allclose(stats["action"][name], expected, atol=1e-9)
    assert stats["action"]["count"] == [80]
    table = pq.read_table(tmp_path / "set/meta/episodes/chunk-000/file-000.parquet")
    first = np.quantile(episodes[0].rows["action"].astype(np.float64), 0.9, axis=0)
    np.testing.assert_allclose(table["stats/action/q90"][0].as_py(), first)
    pixels = np.stack(list(episodes[0].frames(VIEWS[0]))).reshape(-1, 3) / 255
    key = f"stats/observation.images.{VIEWS[0]}"
    for name, value in (
        ("mean", pixels.mean(0)),
        ("std", pixels.std(0)),
        ("min", pixels.min(0)),
        ("q50", np.quantile(pixels, 0.5, axis=0, method="inverted_cdf")),
    ):
        np.testing.assert_allclose(
            np.array(table[f"{key}/{name}"][0].as_py()), value.reshape(3, 1, 1), atol=1e-9
        )


def test_mistakes_are_told_and_leave_nothing_behind(tmp_path: Path) -> None:
    (good,) = make_episodes(7, (6,))
    writer = open_writer(tmp_path / "set", VIEWS[:1])
    add(writer, good, VIEWS[:1])
    nan = {**good.rows, "action": np.where(np.arange(120).reshape(6, 20) == 47, np.nan, good.rows["action"])}
    short = {**good.rows, "action": good.rows["action"][:5]}
    wide = {**good.rows, "action": np.zeros((6, 21), np.float32)}
    frames = list(good.frames(VIEWS[0]))
    for rows, images, tasks, events in (
        (nan, frames, "t", ()),
        (short, frames, "t", ()),
        (wide, frames, "t", ()),
        ({"action": good.rows["action"]}, frames, "t", ()),
        (good.rows, frames[:5], "t", ()),
        (good.rows, [*frames, frames[0]], "t", ()),
        (good.rows, [f.astype(np.float32) for f in frames], "t", ()),
        (good.rows, [f[:16] for f in frames], "t", ()),
        (good.rows, frames, "", ()),
        (good.rows, frames, ["t"] * 5, ()),
        (good.rows, frames, "t", (Event(name="late", frame=6),)),
    ):
        with pytest.raises(BadInput) as told:
            writer.add_episode(rows, {VIEWS[0]: images}, tasks, events)
        assert "\n" not in str(told.value)
        assert not (tmp_path / "set" / STAGING).exists()
    with pytest.raises(BadInput, match="'action' at frame 2 is not finite"):
        writer.add_episode(nan, {VIEWS[0]: frames}, "t")
    add(writer, good, VIEWS[:1])
    writer.finalize()
    with pytest.raises(BadInput, match="finalized"):
        add(writer, good, VIEWS[:1])
    dataset = open_dataset(tmp_path / "set")
    assert len(dataset) == 2
    np.testing.assert_array_equal(dataset.rows(1, ["action"])["action"], good.rows["action"])


@pytest.mark.parametrize(
    "options",
    [
        {"fps": 29.97},
        {"fps": 0},
        {"views": {"a": (31, 96)}},
        {"features": {"index": 1}},
        {"features": {"a/b": 1}},
        {"features": {"a": FeatureSpec(dtype="complex64", shape=(2,))}},
    ],
)
def test_what_cannot_be_written_is_refused_at_once(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        DatasetWriter(tmp_path / "set", **({"fps": 30, "features": {"action": 20}} | options))  # type: ignore[arg-type]


def test_features_of_every_kind_are_written(tmp_path: Path) -> None:
    features = {
        "touch": FeatureSpec(dtype="float32", shape=(3, 2)),
        "note": FeatureSpec(dtype="string", shape=(1,)),
        "count": FeatureSpec(dtype="int64", shape=(1,)),
        "pixels": FeatureSpec(dtype="uint8", shape=(4,)),
    }
    rows = {
        "touch": np.arange(30, dtype=np.float32).reshape(5, 3, 2),
        "note": list("abcde"),
        "count": np.arange(5),
        "pixels": np.arange(20, dtype=np.uint8).reshape(5, 4),
    }
    with DatasetWriter(tmp_path / "set", fps=10, features=features) as writer:
        writer.add_episode(rows, {}, "t")
    dataset = open_dataset(tmp_path / "set")
    assert set(dataset.unread) == {"touch", "note"}
    np.testing.assert_array_equal(dataset.rows(0, ["pixels"])["pixels"], rows["pixels"])
    table = pq.read_table(tmp_path / "set/data/chunk-000/file-000.parquet")
    assert table["note"].to_pylist() == list("abcde")
    np.testing.assert_array_equal(np.array(table["touch"].to_pylist()), rows["touch"])


def break_off(writer: DatasetWriter, row: dict[str, np.ndarray], views: dict[str, np.ndarray]) -> None:
    with writer.episode() as episode:
        episode.add(row, views, "t")
        raise ZeroDivisionError


def test_frame_by_frame_equals_whole(tmp_path: Path) -> None:
    (e,) = make_episodes(8, (12,))
    write_v3(tmp_path / "whole", [e], VIEWS[:1])
    with open_writer(tmp_path / "stream", VIEWS[:1]) as writer:
        with writer.episode() as episode:
            for n, image in enumerate(e.frames(VIEWS[0])):
                episode.add({k: v[n] for k, v in e.rows.items()}, {VIEWS[0]: image}, e.tasks[n])
                for event in e.events:
                    if event.frame == n:
                        episode.event(event.name)
        with pytest.raises(ZeroDivisionError):
            break_off(writer, {k: v[0] for k, v in e.rows.items()}, {VIEWS[0]: image})
    assert same(
        everything(open_dataset(tmp_path / "whole")), everything(open_dataset(tmp_path / "stream")), 8
    )


def test_a_commit_is_seen_whole_at_every_step_of_its_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop before each single move of a join: our reader always sees the same, and settling ends it."""
    episodes = make_episodes(9, (5, 9, 4))
    real, seen = os.replace, 0
    for stop in range(40):
        root = tmp_path / f"stopped{stop}"
        writer = open_writer(root, VIEWS[:2])
        for e in episodes:
            add(writer, e, VIEWS[:2])
        expected = everything(open_dataset(root))
        left = [stop]

        def replace(a: str, b: str, left: list[int] = left) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            real(a, b)

        monkeypatch.setattr("hostbot.data.journal.os.replace", replace)
        try:
            writer.finalize()
        except KeyboardInterrupt:
            seen += 1
        monkeypatch.setattr("hostbot.data.journal.os.replace", real)
        assert same(expected, everything(open_dataset(root))), stop
        writer._lock.close()
        repair_dataset(root)
        assert not (root / OVERLAY).exists()
        assert same(expected, everything(open_dataset(root))), stop
        if left[0]:
            break
    assert seen > 5


def test_staged_but_uncommitted_files_are_invisible(tmp_path: Path) -> None:
    episodes = make_episodes(9, (5, 9))
    write_v3(tmp_path / "set", episodes, ())
    expected = everything(open_dataset(tmp_path / "set"))
    staging = Staging(tmp_path / "set", {})
    staging.write("meta/info.json", b"{}")
    assert same(expected, everything(open_dataset(tmp_path / "set")))
    with open_writer(tmp_path / "set", (), resume=True):
        pass
    assert not (tmp_path / "set" / STAGING).exists()
    assert (tmp_path / "set" / MANIFEST).exists()


CHILD = """
import sys
from pathlib import Path
from tests.data.build import VIEWS, add, make_episodes, open_writer
episodes = make_episodes(11, (3, 9, 5, 2, 7, 4) * 20)
writer = open_writer(Path(sys.argv[1]), VIEWS[:2], resume=True, batch=4)
for episode in episodes[writer.num_episodes :]:
    print(add(writer, episode, VIEWS[:2]), flush=True)
"""


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    episodes = make_episodes(11, (3, 9, 5, 2, 7, 4) * 20)
    rng = np.random.default_rng(0)
    root, acknowledged, checked = tmp_path / "set", 0, 0
    for _ in range(12):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(root)], stdout=subprocess.PIPE, env=_environment()
        )
        assert child.stdout is not None
        line = child.stdout.readline()
        time.sleep(rng.uniform(0, 0.25))
        child.send_signal(signal.SIGKILL)
        lines = [line, *child.stdout.read().splitlines()]
        child.wait()
        acknowledged = max([acknowledged, *(int(n) + 1 for n in lines if n.strip())])
        dataset = open_dataset(root)
        assert len(dataset) >= acknowledged > 0
        for e in episodes[: len(dataset)][checked:]:
            np.testing.assert_array_equal(dataset.rows(e.number, ["action"])["action"], e.rows["action"])
            assert [read_bars(f) for f in dataset.frames(e.number, VIEWS[1], range(len(e)))] == e.codes(
                VIEWS[1]
            )
            assert dataset.events(e.number) == e.events
        checked = max(0, len(dataset) - 8)
    with open_writer(root, VIEWS[:2], resume=True) as writer:
        writer.finalize()
    dataset = open_dataset(root)
    for e in episodes[: len(dataset)]:
        for view in VIEWS[:2]:
            assert [read_bars(f) for f in dataset.frames(e.number, view, range(len(e)))] == e.codes(view)
    assert len(list(root.glob("videos/*/*/*.mp4"))) == 2


def test_a_reader_may_open_while_a_writer_commits(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "set")], stdout=subprocess.PIPE, env=_environment()
    )
    assert child.stdout is not None
    child.stdout.readline()
    lengths = []
    try:
        while child.poll() is None and len(lengths) < 150:
            lengths.append(len(open_dataset(tmp_path / "set")))
    finally:
        child.kill()
        child.communicate()
    assert lengths == sorted(lengths)
    assert lengths[-1] > lengths[0] >= 1


@pytest.mark.parametrize("looks", range(1, 7))
def test_a_file_may_leave_the_overlay_after_any_look_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    with open_writer(tmp_path / "set", VIEWS[:1]) as writer:
        add(writer, make_episodes(3, (4,))[0], VIEWS[:1])
    video = next((tmp_path / "set").glob("videos/*/*/*.mp4"))
    staged = tmp_path / "set" / OVERLAY / video.relative_to(tmp_path / "set")
    staged.parent.mkdir(parents=True)
    video.rename(staged)
    left, look = looks, Path.stat

    def look_then_commit(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        nonlocal left
        found = look(self, follow_symlinks=follow_symlinks)
        if self == staged:
            left -= 1
            if left == 0:
                staged.rename(video)
        return found

    monkeypatch.setattr(Path, "stat", look_then_commit)
    assert len(open_dataset(tmp_path / "set")) == 1


def _environment() -> dict[str, str]:
    here = Path(build.__file__).parents[2]
    return {**os.environ, "PYTHONPATH": f"{here / 'src'}:{here}"}

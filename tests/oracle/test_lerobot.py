"""The real lerobot loads what we write, and we load what it writes: every row, every frame, every task.

Marked ``oracle``: ``tests/oracle/setup.sh`` builds an environment of its own for lerobot, which pins an
older torch.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import av
import numpy as np
import pytest

from hostbot.data.check import check_dataset
from hostbot.data.store import open_dataset
from tests.data.build import VIEWS, add, bars, make_episodes, open_writer, read_bars, write_v3

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(240)]
HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv-oracle/bin/python"
LENGTHS = (7, 31, 12, 1, 40, 18)


@pytest.fixture(scope="module", autouse=True)
def environment() -> None:
    subprocess.run([HERE / "setup.sh"], check=True)


def worker(*arguments: object) -> None:
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONPATH": ""}
    offline["HF_HOME"] = str(Path(str(arguments[1])).parent / "hf")
    done = subprocess.run(
        [PYTHON, HERE / "worker.py", *map(str, arguments)], env=offline, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]


def load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    with np.load(path, allow_pickle=False) as saved:
        arrays = {key: saved[key] for key in saved.files if key != "meta"}
        return arrays, json.loads(saved["meta"].tobytes())


@pytest.mark.parametrize("finalized", [True, False])
def test_lerobot_reads_what_we_write(tmp_path: Path, finalized: bool) -> None:
    episodes = make_episodes(31, LENGTHS)
    root = tmp_path / "set"
    if finalized:
        write_v3(root, episodes, batch=4)
    else:
        writer = open_writer(root, batch=4)
        for e in episodes:
            add(writer, e)
    worker("read", root, tmp_path / "out.npz")
    arrays, meta = load(tmp_path / "out.npz")
    assert meta["lengths"] == list(LENGTHS)
    assert meta["fps"] == 30
    assert meta["robot_type"] == "test_arms"
    assert meta["tasks"] == [task for e in episodes for task in e.tasks]
    for name in episodes[0].rows:
        expected = np.concatenate([e.rows[name] for e in episodes])
        np.testing.assert_array_equal(arrays[name].reshape(expected.shape), expected)
    np.testing.assert_array_equal(arrays["episode_index"], np.repeat(range(6), LENGTHS))
    np.testing.assert_array_equal(arrays["frame_index"], np.concatenate([np.arange(n) for n in LENGTHS]))
    np.testing.assert_array_equal(arrays["index"], np.arange(sum(LENGTHS)))
    ours = open_dataset(root)
    for view in VIEWS:
        key = f"observation.images.{view}"
        assert [read_bars(f) for f in arrays[key]] == [code for e in episodes for code in e.codes(view)]
        mine = np.concatenate([ours.frames(e.number, view, range(len(e))) for e in episodes])
        # Both decode the same packets; only the conversion from YUV to RGB rounds differently.
        assert np.abs(arrays[key].astype(int) - mine).max() <= 3
        assert all(0.2 < s < 0.6 for s in meta["image_std"][key])  # type: ignore[index]
    assert set(meta["stats"]) >= {"action", "observation.state", "timestamp", key}  # type: ignore[arg-type]


def test_lerobot_reads_windows_of_what_we_write(tmp_path: Path) -> None:
    """delta_timestamps: 33 frames' worth of reach, clamped at the episode's ends and marked as padding."""
    episodes, offsets = make_episodes(32, (9, 14, 5)), (-4, 0, 3, 8)
    write_v3(tmp_path / "set", episodes, VIEWS[:2])
    worker("read", tmp_path / "set", tmp_path / "out.npz", "--offsets", ",".join(map(str, offsets)))
    arrays, _ = load(tmp_path / "out.npz")
    row = 0
    for e in episodes:
        for n in range(len(e)):
            wanted = np.clip(np.add(n, offsets), 0, len(e) - 1)
            np.testing.assert_array_equal(arrays["action"][row], e.rows["action"][wanted])
            outside = np.add(n, offsets) != wanted
            np.testing.assert_array_equal(arrays["action_is_pad"][row], outside)
            for view in VIEWS[:2]:
                images = arrays[f"observation.images.{view}"][row]
                assert [read_bars(f) for f in images] == [e.codes(view)[i] for i in wanted]
            row += 1


def test_we_read_what_lerobot_writes(tmp_path: Path) -> None:
    rng = np.random.default_rng(33)
    tasks = [["push"] * 6, ["pull"] * 4 + ["push"] * 5, ["lift, då"] * 20]
    given: dict[str, np.ndarray] = {"meta": np.frombuffer(json.dumps({"tasks": tasks}).encode(), np.uint8)}
    codes = {}
    for number, listed in enumerate(tasks):
        for name, shape in (("observation.state", (20,)), ("action", (20,)), ("touch", (2, 3))):
            given[f"{number}/{name}"] = rng.normal(size=(len(listed), *shape)).astype(np.float32)
        for c, camera in enumerate(("left", "still")):
            codes[number, camera] = [(number * 64 + n) * 4 + c for n in range(len(listed))]
            given[f"{number}/{camera}"] = np.stack([bars(code, (64, 96)) for code in codes[number, camera]])
    np.savez(tmp_path / "in.npz", **given)
    worker("write", tmp_path / "in.npz", tmp_path / "set")
    dataset = open_dataset(tmp_path / "set")
    assert dataset.views == ("left", "still")
    assert set(dataset.unread) == {"touch"}
    assert dataset.schema.robot_type == "oracle"
    assert len(dataset) == 3
    for number, listed in enumerate(tasks):
        rows = dataset.rows(number, ["observation.state", "action"])
        for name, values in rows.items():
            np.testing.assert_array_equal(values, given[f"{number}/{name}"])
        assert [dataset.tasks[i] for i in dataset.frame_tasks(number)] == listed
        for camera in dataset.views:
            frames = dataset.frames(number, camera, range(len(listed)))
            assert [read_bars(f) for f in frames] == codes[number, camera]
        np.testing.assert_array_equal(
            dataset.frames(number, "still", range(len(listed))), given[f"{number}/still"]
        )
        _matches_codec(
            tmp_path / "set",
            dataset.frames(number, "left", range(len(listed))),
            sum(map(len, tasks[:number])),
        )
    report = check_dataset(tmp_path / "set")
    assert report.ok, report.problems
    assert report.num_frames == 35


def _matches_codec(root: Path, frames: np.ndarray, first: int) -> None:
    """The same pixels as decoding the mp4 from its beginning and counting."""
    (path,) = root.glob("videos/*left/*/*.mp4")
    with av.open(str(path)) as container:
        pictures = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
    expected = np.stack(pictures[first : first + len(frames)]).astype(int)
    assert np.abs(expected - frames).max() <= 3

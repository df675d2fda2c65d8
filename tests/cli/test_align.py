"""``hostbot align`` as a user types it: two datasets in, weights, maps, labels, figures and pictures out."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from hostbot.align.labels import Labels
from hostbot.cli import main
from hostbot.data.store import open_dataset
from hostbot.data.write import DatasetWriter
from hostbot.video import VideoWriter, open_video
from tests.align.conftest import aligner, weights  # noqa: F401
from tests.align.fakes import FilmSource, film

SIZE = 32


def write_dataset(root, source):
    with DatasetWriter(
        root, fps=source.fps, features={}, views=dict.fromkeys(source.views, (SIZE, SIZE))
    ) as writer:
        for index in range(len(source)):
            info = source.episode(index)
            views = {v: source.frames(index, v, range(info.length), (SIZE, SIZE)) for v in source.views}
            writer.add_episode({}, views, [info.instruction] * info.length, source.events(index))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    write_dataset(
        root / "robot", FilmSource("robot", 2, 2, ("left_wrist", "third_person"), seed=1, lengths=(8, 11))
    )
    write_dataset(root / "human", FilmSource("human", 2, 2, seed=2, lengths=(9, 13)))
    return root


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    root = tmp_path_factory.mktemp("videos")
    for name, task, bend, size in (("a", 0, 1.0, 64), ("b", 0, 2.0, 96)):
        frames = film(task, np.linspace(0, 1, 30) ** bend, size, 0)
        with VideoWriter(root / f"{name}.mp4", (size, size), 16) as writer:
            for frame in frames:
                writer.write(frame)
    return root


def hostbot(*arguments):
    return main([str(a) for a in ("align", *arguments)])


def test_map_writes_json_csv_and_a_video_in_step(videos, weights, tmp_path, capsys):  # noqa: F811
    out = tmp_path / "new" / "map.json"
    assert hostbot("map", videos / "a.mp4", videos / "b.mp4", "--out", out, "--weights", weights) == 0
    found = json.loads(out.read_text())
    assert (found["a"]["frames"], found["b"]["frames"]) == (30, 30)
    assert found["a"]["seconds"] == pytest.approx(np.arange(30) / 16, abs=1e-3)
    assert len(found["b_to_a"]) == len(found["b_confidence"]) == 30
    assert (np.diff(found["b_to_a"]) >= 0).all()
    rows = list(csv.DictReader(out.with_suffix(".csv").open()))
    assert [int(r["a_frame"]) for r in rows] == found["b_to_a"]
    assert float(rows[16]["b_seconds"]) == 1.0
    with open_video(out.with_suffix(".mp4")) as reader:
        assert reader.info.size == (248, 480)
        assert 30 <= len(reader) <= 60
    assert "confidence" in capsys.readouterr().out
    assert hostbot("map", videos / "a.mp4", videos / "b.mp4", "--out", out, "--weights", weights) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_map_says_when_it_is_not_sure(videos, weights, tmp_path, capsys):  # noqa: F811
    sceptic = json.loads(weights.read_text())
    sceptic["config"]["confident"] = 1.0
    (tmp_path / "align.json").write_text(json.dumps(sceptic))
    (tmp_path / "align.safetensors").write_bytes(weights.with_suffix(".safetensors").read_bytes())
    out = tmp_path / "map.json"
    given = ["--out", out, "--weights", tmp_path, "--no-video"]
    assert hostbot("map", videos / "a.mp4", videos / "b.mp4", *given) == 0
    assert "is low (below 1.00)" in capsys.readouterr().out
    assert not out.with_suffix(".mp4").exists()


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        ("missing.mp4", "does not exist"),
        ("text.mp4", "no video"),
        ("empty.mp4", "is empty"),
        ("one.mp4", "has 1 frame"),
        ("cut.mp4", "cut"),
    ],
)
def test_map_refuses_what_it_cannot_do_in_a_sentence(videos, weights, tmp_path, capsys, first, sentence):  # noqa: F811
    (tmp_path / "text.mp4").write_text("not a film at all\n" * 50)
    (tmp_path / "empty.mp4").touch()
    whole = (videos / "a.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    with VideoWriter(tmp_path / "one.mp4", (64, 64), 16) as writer:
        writer.write(np.zeros((64, 64, 3), np.uint8))
    out = tmp_path / "out" / "map.json"
    assert hostbot("map", tmp_path / first, videos / "b.mp4", "--out", out, "--weights", weights) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("hostbot: ")
    assert sentence in told
    assert not list(out.parent.iterdir())


def test_map_never_writes_over_its_own_input(videos, weights, tmp_path, capsys):  # noqa: F811
    mine = tmp_path / "mine.mp4"
    mine.write_bytes((videos / "a.mp4").read_bytes())
    given = ["--out", tmp_path / "mine.json", "--weights", weights, "--overwrite"]
    assert hostbot("map", mine, videos / "b.mp4", *given) == 2
    assert "is one of the videos" in capsys.readouterr().err
    assert mine.read_bytes() == (videos / "a.mp4").read_bytes()


def test_plot_draws_a_picture(videos, weights, tmp_path, capsys):  # noqa: F811
    pytest.importorskip("matplotlib")
    out = tmp_path / "p.png"
    assert hostbot("plot", videos / "a.mp4", videos / "b.mp4", "--out", out, "--weights", weights) == 0
    picture = Image.open(out).convert("RGB")
    assert picture.width > 1000
    assert len(picture.getcolors(1 << 24)) > 100
    assert hostbot("plot", videos / "a.mp4", videos / "b.mp4", "--out", tmp_path / "p.txt") == 2
    assert ".png, .pdf or .svg" in capsys.readouterr().err


def test_labels_lie_beside_the_dataset_and_leave_it_sound(data, weights, capsys):  # noqa: F811
    given = ["--demos", data / "human", "--weights", weights, "--json"]
    assert hostbot("label", data / "robot", *given) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["num_pairs"], found["num_done"]) == (8, 8)
    labels = Labels(data / "robot" / "meta" / "hostbot" / "alignment" / "human")
    assert len(labels) + sum(found["left_out"].values()) == 8
    robot = open_dataset(data / "robot")
    for episode, demo in labels.pairs():
        assert len(labels.correspondence(episode, demo).robot_to_demo) == robot.episode(episode).length
    assert main(["data", "check", str(data / "robot")]) == 0
    capsys.readouterr()
    assert hostbot("label", data / "robot", "--weights", weights, "--name", "self", "--shard", "1/1") == 0
    assert "4 of 4 pairs labelled" in capsys.readouterr().out
    assert hostbot("label", data / "robot", "--weights", weights, "--shard", "3/2") == 2
    assert "I from 1 to N" in capsys.readouterr().err


def test_eval_prints_alignment_beside_the_clock(data, weights, tmp_path, capsys):  # noqa: F811
    given = ["--human", data / "human", "--weights", weights, "--by", "task"]
    assert hostbot("eval", data / "robot", *given, "--json", "--out", tmp_path / "e.json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pairs"] == 8
    assert [g["task"] for g in found["groups"]] == ["move the blob 0", "move the blob 1", "all"]
    for key in ("event_error", "event_error_clock", "kendall_tau"):
        assert set(found[key]) == {"mean", "deviation"}
    assert 0 <= found["auroc_wrong_task"] <= 1
    assert json.loads((tmp_path / "e.json").read_text())["pairs"] == 8
    assert hostbot("eval", data / "robot", *given) == 0
    assert "clock time" in capsys.readouterr().out


def test_training_stops_on_time_and_goes_on_to_weights_that_work(data, videos, tmp_path, capsys):
    run = tmp_path / "run"
    given = ["--human", data / "human", "--steps", 3, "--batch-size", 2, "--device", "cpu"]
    assert hostbot("train", data / "robot", run, *given, "--minutes", 0.0001) == 0
    assert "saved after step 2 of 3; go on with --resume" in capsys.readouterr().out
    assert not (run / "align.json").exists()
    assert hostbot("train", data / "robot", run, *given) == 2
    assert "--resume" in capsys.readouterr().err
    assert hostbot("train", data / "robot", run, *given, "--resume", "--minutes", 9) == 0
    steps = [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3]
    assert json.loads((run / "run.json").read_text())["seeds"] == {"align": 0}
    assert (run / "align.safetensors").stat().st_size < 6e6
    given = ["--weights", run, "--out", tmp_path / "m.json", "--no-video"]
    assert hostbot("map", videos / "a.mp4", videos / "b.mp4", *given) == 0


def test_ctrl_c_saves_and_says_how_to_go_on(data, tmp_path):
    command = [
        sys.executable,
        "-m",
        "hostbot",
        "align",
        "train",
        data / "robot",
        tmp_path,
        "--batch-size",
        "2",
    ]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, env=os.environ)
    log = tmp_path / "log.jsonl"
    deadline = time.monotonic() + 100
    while not (log.exists() and log.read_text().count("\n") >= 1):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on with --resume" in told.splitlines()[-1]
    assert len(list(tmp_path.glob("step-*/state.json"))) == 1

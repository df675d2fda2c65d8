"""The command line as a user types it: exit codes, sentences, JSON, interruption."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image

from hostbot.cli import GROUPS, main, verb_name

HOSTBOT = [sys.executable, "-m", "hostbot"]


def run(*arguments, **options):
    return subprocess.run(
        [*HOSTBOT, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two datasets of the bench, and what the robot's actions are normalised by."""
    out = tmp_path_factory.mktemp("recorded")
    done = run("sim", "record", "--out", out, "--families", "close_drawer", "--episodes-per-task", 2)
    assert done.returncode == 0, done.stderr
    assert run("data", "stats", out / "robot").returncode == 0
    return out


def test_info_is_json_and_only_json(recorded):
    done = run("data", "info", recorded / "robot", "--json")
    found = json.loads(done.stdout)
    assert found["layout"] == "LeRobot v3.0"
    assert found["num_episodes"] == 6
    assert found["embodiment"] == "bimanual"
    assert found["has_statistics"]
    assert sorted(found["views"]) == ["left_wrist", "right_wrist", "third_person"]
    assert sum(found["tasks"].values()) == 6


def test_reading_a_dataset_never_imports_torch(recorded):
    script = (
        "import sys; from hostbot.cli import main; "
        f"code = main(['data', 'info', {str(recorded / 'robot')!r}]); "
        "sys.exit(code or (3 if 'torch' in sys.modules else 0))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60).returncode == 0


def test_statistics_are_written_once(recorded):
    refused = run("data", "stats", recorded / "robot")
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr
    done = run("data", "stats", recorded / "robot", "--overwrite", "--json")
    assert set(json.loads(done.stdout)["features"]) == {"observation.state", "action", "action.relative"}


def test_view_draws_the_episodes_asked_for(recorded, tmp_path):
    done = run(
        "data", "view", recorded / "robot", "--out", tmp_path / "s.png", "--episodes", 3, 1, "--columns", 4
    )
    assert done.returncode == 0, done.stderr
    assert Image.open(tmp_path / "s.png").height > 600
    for wrong, sentence in (
        (["--episodes", 9], "episode 9 was asked for"),
        (["--columns", 0], "--columns"),
        (["--out", "x.txt"], ".png"),
    ):
        refused = run("data", "view", recorded / "robot", *wrong)
        assert refused.returncode == 2
        assert sentence in refused.stderr


def test_check_and_pairs_and_convert_from_the_command_line(recorded, tmp_path):
    assert "all sound" in run("data", "check", recorded / "robot").stdout
    done = run(
        "data",
        "pairs",
        recorded / "robot",
        "--human",
        recorded / "human",
        "--out",
        tmp_path / "s.json",
        "--json",
    )
    counts = json.loads(done.stdout)["pairs"]
    assert {(c["part"], c["demonstrations"]): c["pairs"] for c in counts}["train", "robot"] == 6
    done = run("data", "convert", recorded / "robot", tmp_path / "copy", "--size", 48, 48, "--json")
    assert json.loads(done.stdout)["num_episodes"] == 6
    assert (
        json.loads(run("data", "info", tmp_path / "copy", "--json").stdout)["views"]["left_wrist"]["height"]
        == 48
    )


def test_datasets_are_joined(recorded, tmp_path):
    done = run("data", "join", tmp_path / "both", recorded / "robot", recorded / "robot")
    assert done.returncode == 0, done.stderr
    assert json.loads(run("data", "info", tmp_path / "both", "--json").stdout)["num_episodes"] == 12
    assert run("data", "join", tmp_path / "mixed", recorded / "robot", recorded / "human").returncode == 2
    assert run("data", "repair", tmp_path / "both").returncode == 0


def test_a_damaged_dataset_fails_the_check_with_exit_code_2(recorded, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(recorded / "robot", copy)
    video = next(copy.glob("videos/**/*.mp4"))
    content = bytearray(video.read_bytes())
    content[len(content) // 2] ^= 0x40
    video.write_bytes(content)
    done = run("data", "check", copy)
    assert done.returncode == 2
    assert video.name in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_cut_writes_what_the_model_sees(recorded, tmp_path):
    clip = next((recorded / "human/videos").glob("**/*.mp4"))
    out = tmp_path / "cut.mp4"
    assert run("video", "cut", clip, out, "--rate", 8, "--size", 64, 96).returncode == 0
    found = json.loads(run("video", "info", out, "--json").stdout)
    assert (found["height"], found["width"], found["fps"]) == (64, 96, 8)
    assert "--overwrite" in run("video", "cut", clip, out).stderr
    assert "even" in run("video", "cut", clip, tmp_path / "odd.mp4", "--size", 63, 96).stderr


@pytest.fixture
def stream(tmp_path):
    """A clip of 3 s served over HTTP on loopback, as an IP camera would."""
    import functools
    import http.server
    import threading

    import numpy as np

    from hostbot.video import VideoWriter

    with VideoWriter(tmp_path / "camera.mp4", (48, 64), 20) as writer:
        for n in range(60):
            writer.write(np.full((48, 64, 3), 4 * n, np.uint8))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/camera.mp4"
        server.shutdown()


def test_a_stream_is_recorded_at_the_rate_and_length_asked_for(stream, tmp_path):
    from hostbot.video import open_video

    out = tmp_path / "me.mp4"
    done = run("video", "record", stream, out, "--seconds", 2, "--rate", 10, "--size", 48, 64)
    assert done.returncode == 0, done.stderr
    with open_video(out) as reader:
        levels = reader.frames(range(len(reader))).mean((1, 2, 3))
    assert len(levels) == 20
    expected = [8 * k for k in range(20)]
    assert max(abs(levels - expected)) <= 6
    for wrong, sentence in (
        (["webcam:7", tmp_path / "x.mp4"], "no camera"),
        ([out, tmp_path / "x.mp4"], "no camera or stream"),
        (["http://127.0.0.1:9/none", tmp_path / "x.mp4"], "cannot be opened"),
        ([stream, out], "--overwrite"),
    ):
        refused = run("video", "record", *wrong)
        assert refused.returncode == 2
        assert sentence in refused.stderr
        assert not (tmp_path / "x.mp4").exists()


MISTAKES = [
    (["dtaa"], "did you mean 'data'"),
    (["data", "info", "/does/not/exist"], "does not exist"),
    (["data", "info"], "DATASET"),
    (["data", "frobnicate"], "frobnicate"),
    (["data", "info", "x", "--jsn"], "--jsn"),
    (["video", "info", "/dev/null"], "video"),
    (["video", "info", __file__], "no video"),
    (["video", "cut", __file__, "out.mp4"], "no video"),
    (["demo", "--seconds", "0"], "got 0"),
    (["demo", "--execute", "many"], "many"),
    (["demo", "--execute", "17"], "a chunk has 16 steps"),
]


@pytest.mark.parametrize(
    ("arguments", "sentence"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_mistakes_get_a_sentence_and_exit_code_2(arguments, sentence, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_page_of_help_reads(capsys):
    import importlib

    assert main([]) == 0
    first_page = capsys.readouterr().out
    assert all(group in first_page for group in GROUPS)
    for group in GROUPS:
        verbs = importlib.import_module(f"hostbot.cli.{group}").VERBS
        for verb in verbs:
            words = [group] if len(verbs) == 1 else [group, verb_name(verb)]
            assert main([*words, "--help"]) == 0
            page = capsys.readouterr().out
            assert verb.__doc__.split()[0] in page
            assert "{None}" not in page


def test_an_unwritable_folder_is_told(recorded, tmp_path):
    target = tmp_path / "file"
    target.write_text("in the way")
    refused = run("data", "convert", recorded / "robot", target / "below")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr


def test_ctrl_c_leaves_whole_episodes_and_says_how_to_go_on(tmp_path):
    out = tmp_path / "out"
    big = tmp_path / "big"
    few = ("--families", "close_drawer", "--episodes-per-task", 5)
    assert run("sim", "record", "--out", big, "--embodiment", "robot", *few).returncode == 0
    process = subprocess.Popen(
        [*HOSTBOT, "data", "convert", str(big / "robot"), str(out), "--size", "320", "320"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that puts the suite into the background has it ignore Ctrl-C, and its children with it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while (
        not (out / "meta" / "info.json").exists()
        or json.loads((out / "meta" / "info.json").read_text())["total_episodes"] < 1
    ):
        assert time.monotonic() < deadline
        assert process.poll() is None, "it ended before it could be interrupted"
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in told
    assert "Traceback" not in told
    assert run("data", "check", out).returncode == 0
    assert run("data", "convert", big / "robot", out, "--size", 320, 320, "--resume").returncode == 0
    assert json.loads(run("data", "info", out, "--json").stdout)["num_episodes"] == 15


def test_a_closed_pipe_is_no_error(recorded):
    command = f"{sys.executable} -m hostbot data info {recorded / 'robot'} --json | head -c 20"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_debug_shows_the_traceback():
    done = run("data", "info", "/does/not/exist", env={**os.environ, "HOSTBOT_DEBUG": "1"})
    assert "Traceback" in done.stderr

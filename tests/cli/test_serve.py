"""``hostbot serve`` as a person types it, and a robot that uses it."""

import os
import re
import signal
import subprocess
import sys

import pytest

from hostbot.cli import main
from hostbot_client import Limits, PolicyClient, Refused, ServerLost, arm_limits
from tests.memory.fakes import clip
from tests.serve.running import observation

TOKEN = "sixteen-characters-and-more"


def started(*words, **environment):
    process = subprocess.Popen(
        [sys.executable, "-m", "hostbot", "serve", "--port", "0", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    assert "warmed up" in process.stdout.readline(), process.stderr.read()
    line = process.stdout.readline()
    return process, re.search(r"wss?://\S+", line).group()


def test_a_rehearsal_from_start_to_ctrl_c(tmp_path):
    both = (
        *arm_limits("left", [-9] * 3, [9] * 3, gripper=(-9, 9)),
        *arm_limits("right", [-9] * 3, [9] * 3, gripper=(-9, 9)),
    )
    Limits(both, 16.0).save(tmp_path / "limits.json")
    (tmp_path / "token").write_text(TOKEN + "\n")
    video = clip(tmp_path / "v.mp4")
    process, url = started(
        "--rehearse", "--token-file", tmp_path / "token", "--limits", tmp_path / "limits.json",
        "--video", video, "--instruction", "stack the bowls", "--memory", tmp_path / "m",
    )  # fmt: skip
    try:
        with pytest.raises(ServerLost, match="401"):
            PolicyClient(url).connect()
        with PolicyClient(url, token=TOKEN) as robot:
            sent = observation()
            sent["state"][:] = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0] * 2
            answer = robot.infer(sent)
            assert (answer["actions"] == sent["state"]).all()
            assert answer["actions"].shape == (32, 20)
            kept = robot.acquire(video, "wipe the plate", remember=True)
            assert kept["remembered"] == "wipe-the-plate@1"
            assert robot.ask("query", instruction="clean the plate")["candidates"]
            (tmp_path / "no.mp4").write_bytes(b"no video")
            with pytest.raises(Refused, match="video"):
                robot.acquire(tmp_path / "no.mp4", "x")
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "stopped" in out
    assert TOKEN not in out + err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--rehearse", "--host", "0.0.0.0"], "give a token"),
        (["--rehearse", "--limits", "nothing.json"], "holds no limits"),
        (["--rehearse", "--tls-cert", "a.pem"], "both a certificate"),
        (["--rehearse", "--port", "99999"], "0..65535"),
        (["--rehearse", "--token-file", "nothing"], "nothing"),
        ([], "--rehearse"),
        (["--policy", "nowhere", "--rehearse"], "either"),
        (["--policy", "nowhere"], "no policy at nowhere"),
    ],
)
def test_mistakes_are_one_sentence(words, told, capsys, monkeypatch):
    monkeypatch.delenv("HOSTBOT_TOKEN", raising=False)
    assert main(["serve", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_port_in_use_is_told():
    process, url = started("--rehearse")
    try:
        port = url.rsplit(":", 1)[1]
        second = subprocess.run(
            [sys.executable, "-m", "hostbot", "serve", "--rehearse", "--port", port],
            capture_output=True,
            text=True,
        )
        assert second.returncode == 2
        assert "in use" in second.stderr
        assert "Traceback" not in second.stderr
    finally:
        process.terminate()
        assert process.wait(20) == 0

"""``hostbot demo`` with a policy of random weights: everything but success."""

import json
import math

import numpy as np
import pytest
from PIL import Image

from hostbot.bench.movie import BAR, GAP
from hostbot.cli import main
from hostbot.cli.demo_policy import SIDE
from hostbot.policy.bundle import write_bundle
from hostbot.video import open_video
from tests.clips import encode, number_on
from tests.policy.small_policy import small_model, small_spec, small_vae, statistics

STEPS = 32


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder, vae = tmp_path_factory.mktemp("policy") / "small", small_vae()
    write_bundle(folder, model=small_model(), spec=small_spec(vae), statistics=statistics(), vae=vae)
    return folder


@pytest.fixture
def demo(tmp_path, bundle, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*words, code=0, policy=True):
        chosen = ("--policy", bundle, "--seconds", STEPS / 16) if policy else ()
        assert main(["demo", "--out", str(tmp_path / "demo"), *map(str, (*chosen, *words))]) == code
        told = capsys.readouterr()
        return told.out + told.err

    return run


def frames(path):
    with open_video(path) as reader:
        return reader.frames(range(len(reader)))


def test_a_person_is_watched_and_the_robot_filmed(tmp_path, demo):
    said = demo("--task", "topple-blue_bottle", "--seed", 3)
    assert "topple-blue_bottle (novel)" in said
    assert f"NOT done after {STEPS} steps" in said
    told = json.loads((tmp_path / "demo/demo.json").read_text())
    assert (told["success"], told["steps"], told["robot_s"]) == (False, STEPS, 2.0)
    assert 0 < told["acquire_s"] < 60
    assert not (tmp_path / ".cache/hostbot/latents").exists(), (
        "a video seen before would be acquired in no time"
    )
    assert "bottle" in told["instruction"]
    film = frames(tmp_path / "demo/demo.mp4")
    assert film.shape[:3] == (STEPS, SIDE + GAP + BAR, 3 * SIDE + 2 * GAP)
    assert Image.open(tmp_path / "demo/demo.png").width > 6 * 192
    assert (tmp_path / "demo/demo.rrd").stat().st_size > 100_000
    human = frames(tmp_path / "demo/human.mp4").astype(int)
    left = film[0, :SIDE, :SIDE].astype(int)
    nearest = np.abs(human - left).mean((1, 2, 3))
    assert nearest.min() < 4, "the left panel shows a frame of the video"
    bar = film[-1, -BAR // 2, :, 0] < 220
    assert math.isclose(bar.mean(), told["progress"], abs_tol=0.15)


def test_a_video_of_one_s_own_is_followed(tmp_path, demo):
    own = encode(tmp_path / "own.mp4", "libx264", 60, (160, 160))
    said = demo("--video", own, "--instruction", "topple the blue bottle", "--task", "topple-blue_bottle")
    assert "told: topple the blue bottle" in said
    assert not (tmp_path / "demo/human.mp4").exists()
    film = frames(tmp_path / "demo/demo.mp4")
    assert number_on(film[0, :SIDE, :SIDE]) < 60


def test_mistakes_are_one_sentence(tmp_path, demo):
    assert "goes with --video" in demo("--instruction", "wave", code=2)
    assert "does not exist" in demo("--video", tmp_path / "no.mp4", code=2)
    assert "no policy at" in demo("--policy", tmp_path / "none", code=2, policy=False)
    assert "a chunk has" in demo("--execute", 17, code=2)
    assert not (tmp_path / "demo").exists()


def test_other_people_s_folders_are_spared_and_an_earlier_demo_is_replaced(tmp_path, demo):
    mine = tmp_path / "demo"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    assert "holds no earlier demo" in demo("--task", "topple-blue_bottle", code=2)
    (mine / "thesis.txt").rename(tmp_path / "thesis.txt")
    for _ in range(2):
        demo("--task", "topple-blue_bottle", "--seconds", 0.5)
    assert json.loads((mine / "run.json").read_text())["seeds"] == {"demo": 0}

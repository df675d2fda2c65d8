"""``hostbot acquire`` and ``hostbot do`` with a policy of random weights: everything but success."""

import json

import pytest

from hostbot.cli import main
from hostbot.policy.bundle import write_bundle
from hostbot.policy.skill import Skill
from tests.memory.fakes import clip
from tests.policy.small_policy import small_model, small_spec, small_vae, statistics

TASK = "stack-red_small_pot-grey_pot"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder, vae = tmp_path_factory.mktemp("policy") / "small", small_vae()
    write_bundle(folder, model=small_model(), spec=small_spec(vae), statistics=statistics(), vae=vae)
    return folder


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOSTBOT_MEMORY", str(tmp_path / "m"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*words, code=0):
        assert main(list(map(str, words))) == code
        told = capsys.readouterr()
        return json.loads(told.out) if "--json" in words else told.out + told.err

    return run


def test_a_video_is_acquired_kept_and_done_again_by_its_words(tmp_path, bundle, said):
    video = clip(tmp_path / "v.mp4")
    made = said(
        "acquire", video, "--policy", bundle, "--instruction", "Stack the pots", "--memory", tmp_path / "m",
        "--out", tmp_path / "skill.safetensors", "--json",
    )  # fmt: skip
    assert made["remembered"] == "stack-the-pots@1"
    assert Skill.load(tmp_path / "skill.safetensors").id == made["skill"]
    words = ("--policy", bundle, "--task", TASK, "--out", tmp_path / "robot.mp4", "--json")
    done = said("do", "stack the pots", *words)
    assert done["demonstration"] == "stack-the-pots@1"
    assert "matches" in done["found"]
    assert 0 < done["steps"] <= 224
    assert (tmp_path / "robot.mp4").stat().st_size > 1000


def test_a_novel_task_asks_for_a_video_and_keeps_it(tmp_path, bundle, said, monkeypatch):
    monkeypatch.setattr("hostbot.sim.env.EnvConfig.seconds", 1.0)
    words = ("--policy", bundle, "--task", TASK)
    assert "pass --video" in said("do", "pile the pots", *words, code=2)
    video = clip(tmp_path / "v.mp4")
    assert "novel; learned from" in said("do", "pile the pots", *words, "--video", video)
    assert said("do", "pile the pots", *words, "--json")["demonstration"] == "pile-the-pots@1"


def test_mistakes_are_one_sentence(tmp_path, bundle, said):
    video = clip(tmp_path / "v.mp4")
    assert "no policy at" in said("acquire", video, "--policy", tmp_path / "none", code=2)
    assert "by their words" in said("acquire", video, "--policy", bundle, "--memory", tmp_path / "m", code=2)
    assert "skill needs a video" not in said("acquire", video, "--policy", bundle)
    assert "no task" in said("do", "x", "--policy", bundle, "--task", "nothing", code=2)

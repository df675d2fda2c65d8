"""The weights that come with hostbot: whole, of a size that can be shipped, and able to follow a person's video."""

import json
from pathlib import Path

import numpy as np
import pytest

from hostbot.cli import main
from hostbot.cli.policies import SHIPPED, policy_folder
from hostbot.policy.policy import Policy
from hostbot.types import Demonstration, Observation

FOLDER = policy_folder(SHIPPED)


def test_all_weights_together_can_be_shipped():
    assert sum(path.stat().st_size for path in FOLDER.parent.rglob("*") if path.is_file()) < 30e6


def test_they_watch_a_video_and_act():
    policy = Policy.load(FOLDER)
    rng = np.random.default_rng(0)
    before = policy.fingerprint()
    video = rng.integers(0, 256, (60, 96, 96, 3), dtype=np.uint8)
    skill = policy.acquire(Demonstration(views={"third_person": video}, fps=16.0), "Press the red button.")
    views = {view: rng.integers(0, 256, (64, 64, 3), dtype=np.uint8) for view in policy.embodiment.views}
    home = np.array([0.2, 0.22, 0.24, 0, 1, 0, 1, 0, 0, 0.07, 0.2, -0.22, 0.24, 0, 1, 0, 1, 0, 0, 0.07])
    chunk = policy.step(policy.start(skill), Observation(views=views, state=home.astype(np.float32)))
    assert chunk.actions.shape == (16, 20)
    assert (
        np.abs(chunk.actions[0, [0, 1, 2, 10, 11, 12]] - home[[0, 1, 2, 10, 11, 12]]).max() < 0.1
    )  # a step, no leap
    assert policy.fingerprint() == before


@pytest.mark.timeout(600)
def test_they_do_tasks_from_one_human_video_each(tmp_path):
    tasks = ("press-red_button", "place_in-red_apple-white_bowl")
    words = ["eval", "--tasks", *tasks, "--trials", "2", "--workers", "1", "--films", "0"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    trials = [json.loads(line) for line in Path(tmp_path, "trials.jsonl").read_text().splitlines()]
    assert len(trials) == 4
    told = json.loads(Path(tmp_path, "evaluation.json").read_text())["config"]
    assert told["execution"]["execute"] == Policy.load(FOLDER).spec.execute == 8
    assert sum(trial["success"] for trial in trials) >= 3

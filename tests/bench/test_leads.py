"""What a policy did is kept, and experts go on from there."""

import json

import numpy as np
import pytest

from hostbot.bench.leads import keep_executed, lead_of, leads
from hostbot.cli import main
from hostbot.data.sources import open_source
from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig
from hostbot.sim.episode import robot_episode
from hostbot.types import BadInput

NAME = "press-yellow_button"


def record(trials, out):
    return f"sim record --out {out}/data --led {trials} --embodiment robot".split()


def evaluate(policy, out):
    words = f"eval --policy {policy} --tasks {NAME} --trials 1 --first-seed 20000 --films 0 --workers 1 --out {out}"
    return words.split()


@pytest.fixture
def evaluation(tmp_path):
    for seed in (20_000, 20_001):
        path = robot_episode(task(NAME), seed, EnvConfig(views=())).trajectory
        keep_executed(tmp_path / "trials", NAME, seed, path.action[: len(path.action) // 2])
    return tmp_path / "trials"


def test_what_was_carried_out_comes_back(evaluation):
    found = leads(evaluation)
    assert [(lead.task, lead.seed) for lead in found] == [(NAME, 20_000), (NAME, 20_001)]
    assert found[1] == lead_of(evaluation, NAME, 20_001)
    assert found[1].actions().shape[1] == 20


def test_nothing_is_learned_from_novel_tasks(evaluation, tmp_path, capsys):
    novel = split().novel[0]
    keep_executed(evaluation, novel, 20_000, np.zeros((8, 20), np.float32))
    words = record(evaluation, tmp_path)
    assert main(words) == 2
    assert novel in capsys.readouterr().err


@pytest.mark.parametrize("bad", [np.zeros((4, 7)), np.full((4, 20), np.nan), np.array([{}], dtype=object)])
def test_what_are_no_actions_is_refused(evaluation, tmp_path, capsys, bad):
    np.save(lead_of(evaluation, NAME, 20_000).path, bad, allow_pickle=True)
    words = record(evaluation, tmp_path)
    assert main([*words, "--episodes-per-task", "1", "--raw", "64"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "evaluate again" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--embodiment", "both"], "only robots are led"),
        (["--embodiment", "robot", "--stray", "1"], "no split"),
        (["--embodiment", "robot", "--first-seed", "7"], "no split"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(evaluation, tmp_path, capsys, more, said):
    assert main(["sim", "record", "--out", str(tmp_path / "data"), "--led", str(evaluation), *more]) == 2
    assert said in capsys.readouterr().err


def test_an_evaluation_without_actions_is_refused(tmp_path, capsys):
    words = record(tmp_path, tmp_path)
    assert main(words) == 2
    assert "--keep-actions" in capsys.readouterr().err


def test_every_trial_is_used_so_many_times_up_to_other_steps(evaluation, tmp_path):
    words = record(evaluation, tmp_path)
    assert main([*words, "--episodes-per-task", "3", "--raw", "64"]) == 0
    robot = open_source(tmp_path / "data/robot")
    assert len(robot) == 6
    assert {robot.episode(i).instruction for i in range(6)} == {task(NAME).instructions[0]}
    begins = {tuple(robot.rows(i, ["observation.state"])["observation.state"][0].round(4)) for i in range(6)}
    assert len(begins) >= 5


def test_an_evaluation_keeps_what_was_carried_out(tmp_path):
    words = evaluate("expert", tmp_path)
    assert main([*words, "--keep-actions"]) == 0
    (lead,) = leads(tmp_path)
    (trial,) = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    path = robot_episode(task(NAME), 20_000, EnvConfig(views=())).trajectory
    actions = lead.actions()
    assert len(actions) == trial["frames"]
    same = min(len(actions), len(path.action))
    assert np.allclose(actions[:same], path.action[:same])


def test_a_trial_may_be_short(tmp_path, capsys):
    words = evaluate("hold", tmp_path)
    assert main([*words, "--keep-actions", "--seconds", "1.5"]) == 0
    (lead,) = leads(tmp_path)
    assert len(lead.actions()) == 24
    assert main([*evaluate("hold", tmp_path / "none"), "--seconds", "0"]) == 2
    assert "--seconds" in capsys.readouterr().err


def test_trials_without_their_actions_are_not_gone_on_with(tmp_path, capsys):
    words = evaluate("hold", tmp_path)
    assert main(words) == 0
    assert main([*words, "--keep-actions"]) == 2
    assert "not kept" in capsys.readouterr().err
    assert main([*words, "--keep-actions", "--perturb", "light"]) == 2
    assert "scenes as they are" in capsys.readouterr().err


def test_leads_of_changed_scenes_or_far_seeds_are_refused(evaluation):
    (evaluation / "evaluation.json").write_text(json.dumps({"config": {"suite": {"perturb": "scene"}}}))
    with pytest.raises(BadInput, match="changed scenes"):
        leads(evaluation)
    (evaluation / "evaluation.json").unlink()
    keep_executed(evaluation, NAME, 1_000_100, np.zeros((8, 20), np.float32))
    with pytest.raises(BadInput, match="below 1000003"):
        leads(evaluation)


def test_a_recording_is_not_gone_on_with_after_more_trials(evaluation, tmp_path, capsys):
    words = record(evaluation, tmp_path)
    words += ["--episodes-per-task", "1", "--raw", "64"]
    assert main([*words, "--minutes", "0"]) == 0
    keep_executed(evaluation, NAME, 20_002, lead_of(evaluation, NAME, 20_000).actions())
    assert main(words) == 2
    assert "other settings" in capsys.readouterr().err

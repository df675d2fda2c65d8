"""``hostbot eval`` as a user types it, with a policy of random weights."""

import json

import numpy as np
import pytest
from PIL import Image

from hostbot.cli import main
from hostbot.data.stats import ACTION, STATE
from hostbot.data.write import DatasetWriter
from hostbot.policy.bundle import write_bundle
from hostbot.sim.catalogue import task
from hostbot.sim.env import EnvConfig
from hostbot.sim.episode import robot_episode
from hostbot.video import probe
from tests.policy.small_policy import ROBOT, small_model, small_spec, small_vae, statistics

TASK = "topple-blue_bottle"


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    folder, vae = tmp_path_factory.mktemp("policy") / "small", small_vae()
    write_bundle(folder, model=small_model(), spec=small_spec(vae), statistics=statistics(), vae=vae)
    return str(folder)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Two episodes of one task, as the bench records them, small."""
    root = tmp_path_factory.mktemp("data") / "robot"
    views = dict.fromkeys(ROBOT.views, (32, 32))
    features = {STATE: 20, ACTION: 20}
    with DatasetWriter(root, fps=16, features=features, views=views, embodiment=ROBOT) as writer:
        for seed in (1, 2):
            made = robot_episode(task(TASK), seed, EnvConfig(size=32)).trajectory
            rows = {STATE: made.state, ACTION: made.action}
            writer.add_episode(rows, made.views, task(TASK).instructions[0], made.events)
    return root


def test_a_closed_loop_with_films_and_a_report(policy, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["eval", "--policy", policy, "--tasks", TASK, "--trials", "1", "--videos", "1"]
    command += ["--films", "1", "--workers", "1", "--out", str(out)]
    assert main([*command, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["all"]["n"] == 1
    assert printed["player"].startswith("small ")
    assert printed["provenance"]["commit"]
    (film,) = (out / "films").iterdir()
    info = probe(film)
    assert info.num_frames == json.loads((out / "trials.jsonl").read_text())["frames"]
    assert (info.width, info.height) == (584, 206)
    before = (out / "report.md").read_bytes()
    assert main(command) == 0  # again: nothing to do, the same table
    assert (out / "report.md").read_bytes() == before
    assert TASK in before.decode()
    assert main([*command, "--demo", "swapped"]) == 2
    assert "another evaluation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--policy", "nowhere"], "there is no policy at nowhere"),
        (["--policy", "zero", "--tasks", "fly"], "there is no task 'fly'"),
        (["--policy", "zero", "--demo", "none", "--video-only"], "neither a video nor an instruction"),
        (["--policy", "zero", "--open-loop", "x"], "has no predictions"),
        (["--policy", "zero", "--noise", "0"], "are for a policy's folder"),
        (["--policy", "ws://localhost:1", "--reach", "8"], "are for a policy's folder"),
        (["--policy", "nowhere", "--reach", "8", "--demo", "none"], "there is none"),
        (["--policy", "zero", "--stir", "0.02"], "only with fewer"),
        (["--policy", "zero", "--stir", "-1", "--execute", "4"], "0 or more metres"),
        (["--policy", "zero", "--stir", "0.02", "--execute", "4", "--drive", "expert"], "nobody does here"),
    ],
)
def test_mistakes_are_told_in_a_sentence(flags, sentence, tmp_path, capsys):
    assert main(["eval", *flags, "--out", str(tmp_path / "out")]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("demo", ["self", "other", "none"])
def test_open_loop_tells_errors_and_draws_them(policy, dataset, demo, tmp_path, capsys):
    flags = ["--open-loop", str(dataset), "--episodes", "1", "--open-loop-demo", demo]
    assert main(["eval", "--policy", policy, *flags, "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["dimensions"]) == set(ROBOT.axis_names())
    for name, errors in found["dimensions"].items():
        assert errors["mae"] ** 2 <= errors["mse"] + 1e-12, name
    picture = np.asarray(Image.open(tmp_path / "open_loop-0001.png").convert("RGB"))
    orange = (np.abs(picture.astype(int) - (255, 127, 14)).max(axis=2) < 40).sum()
    assert orange > 500  # the predicted curves are there
    kept = json.loads((tmp_path / "open_loop.json").read_text())
    assert kept["demo"] == demo
    assert kept["dimensions"] == found["dimensions"]


def test_open_loop_refuses_what_it_cannot_compare(policy, dataset, tmp_path, capsys):
    flags = ["eval", "--policy", policy, "--open-loop", str(dataset), "--out", str(tmp_path)]
    assert main([*flags, "--episodes", "7"]) == 2
    assert "has episodes 0..1, asked for 7" in capsys.readouterr().err

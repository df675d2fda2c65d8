"""Training as a user types it, from a dataset to a policy, with what goes wrong on the way."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hostbot.cli import main
from hostbot.cli.train_data import Data, sample_config
from hostbot.cli.train_loop import Loop, train_config
from hostbot.data.cameras import save_cameras
from hostbot.data.write import DatasetWriter
from hostbot.model.vae import VaeShape, tiny_vae
from hostbot.presets import training
from hostbot.types import BadInput, Event, Observation, bimanual
from tests.data.fakes import robot_episode
from tests.data.toy import ABOVE

ROBOT = bimanual(16.0)
TASKS = ("push the cup", "open the lid")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two tasks of two robot episodes and one human video each, statistics, a split, a VAE, cameras."""
    home, rng = tmp_path_factory.mktemp("home"), np.random.default_rng(0)
    for body, views in (("robot", ROBOT.views), ("human", ("third_person",))):
        options = {"embodiment": ROBOT} if body == "robot" else {}
        widths = {"observation.state": 20, "action": 20} if body == "robot" else {}
        with DatasetWriter(
            home / body, fps=16, features=widths, views=dict.fromkeys(views, (64, 64)), **options
        ) as writer:
            for number in range(4 if body == "robot" else 2):
                length = 14 + 3 * number
                frames = rng.integers(0, 255, (length, 64, 64, 3), dtype=np.uint8)
                rows = robot_episode(rng, length, ROBOT) if body == "robot" else {}
                events = (Event(name="contact", frame=5), Event(name="push", frame=9 + number))
                writer.add_episode(rows, dict.fromkeys(views, frames), [TASKS[number % 2]] * length, events)
    assert main(["data", "stats", str(home / "robot"), "--horizon", "16"]) == 0
    split = ["data", "pairs", str(home / "robot"), "--human", str(home / "human"), "--validation", "0"]
    assert main([*split, "--out", str(home / "split.json")]) == 0
    tiny_vae().save_pretrained(home / "vae")
    save_cameras((ABOVE,), home / "cameras.json")
    return home


def samples(home, out, *more):
    paths = {
        "robot": "robot",
        "human": "human",
        "split": "split.json",
        "vae": "vae",
        "cameras": "cameras.json",
    }
    flags = [x for name, path in paths.items() for x in (f"--{name}", str(home / path))]
    return main(
        ["train", "samples", *flags, "--out", str(home / out), "--demos", "1", "--states", "3", *more]
    )


def value(capsys):
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def store(home):
    assert samples(home, "store") == 0
    return home / "store"


SHORT = ["--batch", "2", "--log-every", "1", "--device", "cpu"]


def test_from_data_to_a_policy_and_on(home, store, capsys):
    for body in ("robot", "human"):
        assert samples(home, f"s-{body}", "--body", body, "--json") == 0
        found = value(capsys)
        assert found["samples"] == 12
        assert found["pieces_done"] == found["pieces"]
    run = ["--samples", str(store), "--vae", str(home / "vae"), *SHORT]
    match = ["train", "match", *run, "--steps", "1", "--sight"]
    assert main([*match, "third_person", "--out", str(home / "match")]) == 0
    stage = ["train", "policy", *run, "--from", str(home / "match"), "--out", str(home / "one"), "--json"]
    assert main([*stage, "--steps", "1"]) == 0
    capsys.readouterr()
    assert main([*stage, "--steps", "2"]) == 2
    assert "give --resume" in capsys.readouterr().err
    assert main([*stage, "--steps", "2", "--lr", "0.5", "--resume"]) == 2
    assert "other settings (train)" in capsys.readouterr().err
    assert main([*stage, "--steps", "2", "--resume"]) == 0
    found = value(capsys)
    assert found["step"] == 2
    assert found["finished"]
    human = ["train", "policy", "--stage", "2", "--samples", str(home / "s-human"), str(store), *SHORT]
    human += ["--weights", "0.7", "0.3", "--from", str(home / "one"), "--out", str(home / "two")]
    assert main([*human, "--steps", "1", "--stem", "4"]) == 0
    tune = [
        "train",
        "sft",
        "--robot",
        str(home / "robot"),
        "--vae",
        str(home / "vae"),
        "--task",
        "Push the cup.",
    ]
    tune += [
        "--from",
        str(home / "two"),
        "--out",
        str(home / "tuned"),
        "--lora",
        "2",
        "--demonstrations",
        "2",
    ]
    assert main([*tune, "--steps", "1", *SHORT]) == 0
    from hostbot.policy.policy import Policy

    policy = Policy.load(home / "tuned" / "policy")
    assert policy.model.config.horizon == 16
    assert policy.model.config.stem == 4  # as the weights that it was started from
    lacking = ["train", "policy", *run, "--from", str(home / "two"), "--out", str(home / "three")]
    assert main([*lacking, "--steps", "1", "--stem", "0"]) == 2
    assert "a stem of 4" in capsys.readouterr().err


def test_a_model_is_made_for_the_latents_of_its_samples(home, tmp_path, capsys):
    """A VAE of another shape, finer tokens: the policy that comes out sees with both, and acts."""
    tiny_vae(VaeShape(fine=True, channels=4, width=8, decoder_width=8)).save_pretrained(tmp_path / "vae")
    assert samples(home, tmp_path / "store", "--vae", str(tmp_path / "vae")) == 0
    run = ["--samples", str(tmp_path / "store"), "--vae", str(tmp_path / "vae"), *SHORT, "--steps", "1"]
    match = ["train", "match", *run, "--out", str(tmp_path / "match")]
    assert main([*match, "--patch", "4"]) == 0
    assert (
        main(["train", "policy", *run, "--from", str(tmp_path / "match"), "--out", str(tmp_path / "one")])
        == 2
    )
    assert "the --patch it was made with" in capsys.readouterr().err
    assert main([*match, "--patch", "3"]) == 2
    from hostbot.policy.policy import Policy

    policy = Policy.load(tmp_path / "match" / "policy")
    grid = policy.model.config.grid
    assert (grid.latent_channels, grid.view_height, grid.view_width, grid.patch) == (4, 16, 16, 4)
    views = {view: np.zeros((64, 64, 3), np.uint8) for view in ROBOT.views}
    session = policy.start(policy.acquire(None, TASKS[0]), 0)
    out = policy.step(session, Observation(views=views, state=np.zeros(20, np.float32)))
    assert out.actions.shape == (16, 20)


def test_a_vae_of_no_shape_is_refused(home, tmp_path, capsys):
    vae = [
        "train",
        "vae",
        "--data",
        str(home / "human"),
        "--out",
        str(tmp_path / "v"),
        "--clips",
        "70",
        "--steps",
        "1",
    ]
    assert main([*vae, "--growth", "1", "2", "3"]) == 2
    assert "growth (1, 2, 3)" in capsys.readouterr().err
    assert main([*vae, "--channels", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
    assert main([*vae, "--channels", "32", "--from", str(tmp_path / "another")]) == 2
    assert "keeps its shape" in capsys.readouterr().err


def test_a_batch_of_any_size_finds_its_micro_batches(tmp_path):
    def settings(preset, **given):
        return train_config(Loop(out=tmp_path, **given), training(preset, "1"))

    assert settings("tiny", batch=768).micro == 768, "taken whole, as the preset takes its own"
    assert settings("tiny", batch=96, micro=32).micro == 32
    assert settings("wan5b", batch=96).micro == 2
    assert settings("wan5b", batch=3).micro == 1


def test_mistakes_are_told_in_a_sentence(home, store, capsys):
    run = ["--samples", str(store), *SHORT, "--steps", "1"]
    for arguments, said in (
        (["train", "policy", *run, "--out", str(home / "x"), "--preset", "wan5b"], "hostbot model init"),
        (["train", "policy", *run, "--out", str(home / "x"), "--resume"], "holds no run"),
        (["train", "match", *run, "--out", str(home / "y"), "--from", str(home)], "no weights to start from"),
        (["train", "match", *run, "--out", str(home / "z"), "--mode", "fsdp"], "torchrun"),
        (
            ["train", "match", *run, "--out", str(home / "z"), "--sight", "top"],
            "no view 'top', only left_wrist",
        ),
        (["train", "match", "--samples", str(home), "--out", str(home / "v")], "hostbot train samples"),
        (["train", "policy", *run, "--out", str(home / "u"), "--more", str(home / "none")], "is no folder"),
        (
            ["train", "policy", *run, "--out", str(home / "u"), "--more", str(home), "--weights", "1"],
            "leave --more or --weights out",
        ),
    ):
        assert main(arguments) == 2
        assert said in " ".join(capsys.readouterr().err.split())
    assert samples(home, "bad", "--labels", "nowhere") == 2
    assert "are no labels" in capsys.readouterr().err
    assert samples(home, "store", "--seed", "7") == 2
    assert "other settings" in capsys.readouterr().err
    assert samples(home, "bad", "--shard", "3/2") == 2
    assert "1 to N" in capsys.readouterr().err


def test_the_vae_learns_and_is_exported_with_its_scale(home, capsys):
    vae = [
        "train",
        "vae",
        "--data",
        str(home / "robot"),
        str(home / "human"),
        "--clips",
        "8",
        "--out",
        str(home / "v"),
    ]
    assert main([*vae, "--steps", "2", *SHORT, "--validate-every", "2", "--json"]) == 0
    assert value(capsys)["last"]["val/error_of_255"] > 0
    from hostbot.model.vae import load_vae

    first = load_vae(home / "v")
    assert first.config.latents_std != [1.0] * 16
    vae[-1] = str(home / "w")
    assert main([*vae, "--from", str(home / "v"), "--lr", "0", "--steps", "1", *SHORT]) == 0
    for name, weight in load_vae(home / "w").state_dict().items():
        assert torch.equal(weight, first.state_dict()[name]), name


def test_haste_is_for_coupled_targets():
    asked = Data(robot=Path("robot"), vae=Path("vae"), haste=0.5)
    assert sample_config(asked).couple.haste == 0.5
    assert sample_config(replace(asked, haste=None)).couple.haste == 1
    assert sample_config(replace(asked, haste=None, preset="wan5b")).couple.haste == 0
    with pytest.raises(BadInput, match="'release' has none"):
        sample_config(replace(asked, variant="release"))
    with pytest.raises(BadInput, match="0 to 1"):
        sample_config(replace(asked, haste=2.0))

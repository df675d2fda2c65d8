import json
from dataclasses import replace

import pytest
import torch

from hostbot.model import checkpoint
from hostbot.model.host import HostConfig
from hostbot.model.sizes import tiny_model, wan5b_model
from hostbot.types import BadInput
from tests.model.small import small_model


@pytest.mark.parametrize("config", [tiny_model(), wan5b_model()])
def test_a_config_survives_json(config):
    text = json.dumps(checkpoint.dataclasses.asdict(config))
    assert checkpoint.from_json(HostConfig, json.loads(text)) == config
    with pytest.raises(BadInput, match="has no colour"):
        checkpoint.from_json(HostConfig, json.loads(text) | {"colour": 1})


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path):
    model = small_model()
    checkpoint.save(model, tmp_path / "a", {"step": 3})
    back = checkpoint.load(tmp_path / "a")
    assert back.config == model.config
    for (name, mine), (other, theirs) in zip(
        model.state_dict().items(), back.state_dict().items(), strict=True
    ):
        assert name == other
        assert torch.equal(mine, theirs)
    assert checkpoint.read_manifest(tmp_path / "a")["notes"] == {"step": 3}
    half = checkpoint.load(tmp_path / "a", torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
    assert [p.name for p in tmp_path.iterdir()] == ["a"]  # nothing left aside
    with pytest.raises(BadInput, match="exists already"):
        checkpoint.save(model, tmp_path / "a")


def test_a_save_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="no space"):
        checkpoint.save(small_model(), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_damage_is_told(tmp_path):
    folder = tmp_path / "a"
    checkpoint.save(small_model(), folder)
    weights, manifest = folder / checkpoint.WEIGHTS, folder / checkpoint.MANIFEST
    whole, text = weights.read_bytes(), manifest.read_text()
    weights.write_bytes(whole[:-10])
    with pytest.raises(BadInput, match=r"has \d+ bytes, not"):
        checkpoint.load(folder)
    weights.write_bytes(b"\xff" * len(whole))
    with pytest.raises(BadInput, match="damaged"):
        checkpoint.load(folder)
    weights.write_bytes(whole)
    manifest.write_text(text[:-20])
    with pytest.raises(BadInput, match="damaged"):
        checkpoint.load(folder)
    manifest.write_text(text.replace('"format": 1', '"format": 9'))
    with pytest.raises(BadInput, match="format 9"):
        checkpoint.load(folder)
    data = json.loads(text)
    data["config"]["horizon"] = 9  # shapes do not depend on it: the weights still fit
    manifest.write_text(json.dumps(data))
    assert checkpoint.load(folder).config.horizon == 9
    data["config"]["action_dim"] = 6
    manifest.write_text(json.dumps(data))
    with pytest.raises(BadInput, match="action_in"):
        checkpoint.load(folder)
    with pytest.raises(BadInput, match="no hostbot checkpoint"):
        checkpoint.load(tmp_path)


def test_an_empty_model_is_allocated_once():
    config = replace(tiny_model())
    model = checkpoint.empty_model(config, torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert {p.device.type for p in model.parameters()} == {"cpu"}

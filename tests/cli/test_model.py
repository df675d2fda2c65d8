import json
from typing import Annotated, Union

import pytest
import tyro

from hostbot.cli import model as group
from hostbot.model import checkpoint
from hostbot.types import BadInput


def hostbot_model(*arguments: str) -> None:
    """The group as the command line parses it."""
    named = [
        Annotated[verb, tyro.conf.subcommand(verb.__name__.lower(), prefix_name=False)]
        for verb in group.VERBS
    ]
    tyro.cli(Union[tuple(named)], args=list(arguments)).run()  # noqa: UP007


def test_init_then_info(tmp_path, capsys):
    folder = tmp_path / "tiny"
    hostbot_model("init", str(folder), "--size", "tiny", "--dtype", "bfloat16")
    capsys.readouterr()
    hostbot_model("info", str(folder), "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == sum(p.numel() for p in checkpoint.load(folder).parameters())
    assert found["stored as"] == "BF16"
    assert found["bytes"] < 21e6  # the shipped weights' budget is 30 MB for everything
    assert (found["tokens a frame"], found["demo frames"], found["origin"]) == (48, 17, "drawn")
    hostbot_model("info", str(folder))
    assert "tokens a frame" in capsys.readouterr().out
    with pytest.raises(BadInput, match="exists already"):
        hostbot_model("init", str(folder), "--size", "tiny")


def test_init_refuses_what_it_cannot_read(tmp_path):
    pickled = tmp_path / "weights.pt"
    pickled.write_bytes(b"junk")
    with pytest.raises(BadInput, match="pickles are not read"):
        hostbot_model("init", str(tmp_path / "out"), "--from", str(pickled), "--size", "tiny")
    with pytest.raises(BadInput, match="lacks"):
        hostbot_model("init", str(tmp_path / "out"), "--from", str(tmp_path), "--size", "tiny")
    assert not (tmp_path / "out").exists()

"""``hostbot memory`` as a person types it."""

import json

import pytest

from hostbot.cli import main
from tests.memory.fakes import clip


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOSTBOT_MEMORY", str(tmp_path / "m"))

    def run(*words, code=0):
        assert main(["memory", *map(str, words)]) == code
        told = capsys.readouterr()
        return json.loads(told.out) if "--json" in words else told.out + told.err

    return run


def test_from_adding_to_forgetting(tmp_path, said):
    video = clip(tmp_path / "v.mp4")
    assert "kept stack-the-bowls@1" in said("add", video, "--instruction", "Stack the bowls")
    assert said("add", video, "--instruction", "Wipe the plate", "--json")["skill"] == "wipe-the-plate@1"
    found = said("query", "pile up the bowls", "--delta", 0.5, "--json")
    assert (found["answer"], found["candidates"][0]["skill"]) == ("match", "stack-the-bowls@1")
    assert "novel" in said("query", "open the door")
    assert [e["name"] for e in said("list", "--json")] == ["stack-the-bowls", "wipe-the-plate"]
    assert str(tmp_path / "m") in said("show", "wipe-the-plate", "--json")["video"]
    assert said("export", tmp_path / "out", "--json")["exported"] == 2
    assert "forgot stack-the-bowls@1" in said("remove", "stack-the-bowls")
    assert "imported 1 demonstrations; 1 were known" in said("import", tmp_path / "out")
    assert said("check", "--sweep", "--json") == {"entries": 2, "swept": 0, "wrong": []}


def test_mistakes_are_one_sentence(tmp_path, said):
    for words in (["list"], ["query", "stack"], ["show", "stack"], ["export", tmp_path / "out"], ["check"]):
        assert "there is no memory in" in said(*words, code=2)
    assert not (tmp_path / "m").exists(), "looking makes nothing"
    video = clip(tmp_path / "v.mp4")
    said("add", video, "--instruction", "stack")
    assert "has no 'nothing'" in said("show", "nothing", code=2)
    assert "is no file" in said("add", tmp_path, "--instruction", "x y", code=2)
    assert "exists" in said("export", tmp_path, code=2)
    next((tmp_path / "m/videos").glob("??/*")).write_bytes(b"")
    assert "not what was stored" in said("check", code=2)

import json

import pytest
from PIL import Image

from hostbot.cli import main
from hostbot.video import probe


def test_list_tells_the_split(capsys):
    assert main(["sim", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 279
    assert set(rows[0]) == {"name", "family", "split", "mastered", "comparison", "instructions"}
    assert sum(row["split"] == "novel" for row in rows) == 50
    assert sum(row["comparison"] for row in rows) == 8


def test_play_writes_a_video_and_zeros_fail(tmp_path, capsys):
    out = tmp_path / "play.mp4"
    assert main(["sim", "play", "press-red_button", "--video", str(out), "--size", "64"]) == 0
    assert probe(out).num_frames > 10
    assert main(["sim", "play", "press-red_button", "--agent", "zero"]) == 1
    assert "Not done" in capsys.readouterr().out


def test_demo_writes_a_one_view_video(tmp_path):
    out = tmp_path / "human.mp4"
    assert main(["sim", "demo", "press-red_button", "--out", str(out), "--size", "64"]) == 0
    info = probe(out)
    assert (info.width, info.height) == (64, 64)


def test_check_goes_on_where_it_stopped(tmp_path, capsys):
    out = tmp_path / "trials.jsonl"
    arguments = ["sim", "check", "press-red_button", "--seeds", "2", "--agents", "expert", "--out", str(out)]
    assert main(arguments) == 0
    lines = out.read_text()
    assert lines.count("\n") == 2
    out.write_text(lines.splitlines(keepends=True)[0] + '{"task": "press-red')
    assert main([*arguments, "--json"]) == 0
    assert sorted(out.read_text().splitlines()) == sorted(lines.splitlines())
    assert json.loads(capsys.readouterr().out.split("sound")[-1])["rates"] == {"expert": 1.0}
    assert "| press | 1 | 100.0% |" in out.with_suffix(".md").read_text()


def test_a_wrong_task_is_one_sentence(capsys):
    assert main(["sim", "play", "fold-pink_sok"]) == 2
    assert "perhaps fold-pink_sock" in capsys.readouterr().err


def test_bench_tells_physics_and_pictures_apart(capsys):
    assert main(["sim", "bench", "--seconds", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["physics_ms_per_step"] > 0
    assert figures["pictures_ms_per_step"] > 0


@pytest.mark.slow
def test_sheet_shows_every_family(tmp_path):
    out = tmp_path / "sheet.png"
    assert main(["sim", "sheet", "--out", str(out), "--size", "48", "--frames", "3"]) == 0
    assert Image.open(out).height > 500

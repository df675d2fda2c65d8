"""A full check finds what opening does not look at, and says how much it looked at."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hostbot.data.check import check_dataset
from tests.damage.datasets import reseal
from tests.data.build import VIEWS, make_episodes, write_v2, write_v3

LENGTHS = (5, 9, 3)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("check") / "set"
    write_v3(root, make_episodes(1, LENGTHS), VIEWS[:2])
    return root


def test_a_sound_dataset_is_verified_whole(sound: Path) -> None:
    seen = []
    report = check_dataset(sound, progress=lambda done, total: seen.append((done, total)))
    assert report.ok
    assert (report.num_episodes, report.num_frames) == (3, 17)
    assert report.num_files_verified == report.num_files == 3
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_v21_folder_is_checked_without_checksums(tmp_path: Path) -> None:
    write_v2(tmp_path / "set", make_episodes(1, LENGTHS), VIEWS[:2])
    report = check_dataset(tmp_path / "set")
    assert report.ok
    assert (report.num_files_verified, report.num_files) == (0, 9)


def test_every_problem_is_listed_not_only_the_first(sound: Path, tmp_path: Path) -> None:
    root = tmp_path / "set"
    shutil.copytree(sound, root)
    path = root / "data/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    rows = table["action"].to_pylist()
    rows[6][0] = rows[15][1] = float("nan")
    place = table.schema.get_field_index("action")
    pq.write_table(table.set_column(place, "action", [rows]).cast(table.schema), path)
    shutil.copy(path, root / "data/chunk-000/file-001.parquet")
    reseal(root)
    mp4 = next(root.glob("videos/*/*/*.mp4"))
    raw = bytearray(mp4.read_bytes())
    raw[len(raw) // 2] ^= 255
    mp4.write_bytes(raw)
    report = check_dataset(root)
    text = "\n".join(report.problems)
    assert len(report.problems) == 4
    assert "episode 1 is not finite at frame 1" in text
    assert "episode 2 is not finite at frame 1" in text
    assert "file-001.parquet belongs to no episode" in text
    assert "checksum" in text
    assert report.num_episodes == 0


def test_a_flip_that_opening_never_reads_is_found(sound: Path, tmp_path: Path) -> None:
    root = tmp_path / "set"
    shutil.copytree(sound, root)
    stats = root / "meta/stats.json"
    stats.write_bytes(stats.read_bytes().replace(b"1", b"2", 1))
    assert any("stats.json" in problem for problem in check_dataset(root).problems)


def test_what_cannot_be_opened_is_one_problem(tmp_path: Path) -> None:
    report = check_dataset(tmp_path / "nothing")
    assert not report.ok
    assert len(report.problems) == 1
    assert report.num_frames == 0

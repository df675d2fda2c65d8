"""Parts put together are the same episodes in order, whole for every reader, and can be gone on with."""

from pathlib import Path

import numpy as np
import pytest

from hostbot.data.check import check_dataset
from hostbot.data.concat import concatenate
from hostbot.data.store import open_dataset
from hostbot.types import DataError
from tests.data.build import VIEWS, make_episodes, write_v3

LENGTHS = (5, 9, 3, 7, 4, 6)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    episodes = make_episodes(3, LENGTHS)
    roots = []
    for number, members in enumerate((episodes[:1], episodes[1:4], episodes[4:])):
        roots.append(tmp_path / f"part-{number}")
        write_v3(roots[-1], members, VIEWS[:2])
    return roots


def test_the_whole_is_its_parts_in_order(parts, tmp_path):
    concatenate(parts, tmp_path / "all")
    whole = open_dataset(tmp_path / "all")
    assert len(whole) == 6
    number = 0
    for part in map(open_dataset, parts):
        for index in range(len(part)):
            assert whole.episode(number).instruction == part.episode(index).instruction
            assert whole.events(number) == part.events(index)
            theirs = [part.tasks[i] for i in part.frame_tasks(index)]
            assert [whole.tasks[i] for i in whole.frame_tasks(number)] == theirs
            for name, values in part.rows(index, list(part.widths)).items():
                np.testing.assert_array_equal(whole.rows(number, [name])[name], values)
            for view in part.views:
                wanted = range(part.episode(index).length)
                np.testing.assert_array_equal(
                    whole.frames(number, view, wanted), part.frames(index, view, wanted)
                )
            number += 1
    assert whole.embodiment == open_dataset(parts[0]).embodiment
    report = check_dataset(tmp_path / "all")
    assert report.problems == ()
    assert report.num_frames == sum(LENGTHS)


def test_the_whole_can_be_gone_on_with(parts, tmp_path):
    concatenate(parts, tmp_path / "all")
    more = make_episodes(9, (8, 2))
    write_v3(tmp_path / "all", more, VIEWS[:2], resume=True)
    whole = open_dataset(tmp_path / "all")
    assert [whole.episode(i).length for i in range(8)] == [*LENGTHS, 8, 2]
    assert check_dataset(tmp_path / "all").problems == ()


def test_parts_survive_and_a_change_of_the_whole_does_not_reach_them(parts, tmp_path):
    concatenate(parts, tmp_path / "all")
    write_v3(tmp_path / "all", make_episodes(9, (8,)), VIEWS[:2], resume=True)
    for part in parts:
        assert check_dataset(part).problems == ()


def test_what_cannot_be_one_dataset_is_refused(parts, tmp_path):
    write_v3(tmp_path / "other", make_episodes(3, (4,)), VIEWS[:1])
    with pytest.raises(DataError, match="differ in their features"):
        concatenate([*parts, tmp_path / "other"], tmp_path / "all")
    assert not (tmp_path / "all").exists()
    with pytest.raises(DataError, match="is not empty"):
        concatenate(parts, parts[0])
    with pytest.raises(DataError, match="nothing to put together"):
        concatenate([], tmp_path / "none")

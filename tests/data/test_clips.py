"""Clips for the VAE: the same ones whoever decodes them."""

import numpy as np

from hostbot.data.clips import collect_clips
from tests.data.toy import SIZE, sources


def test_clips_depend_on_the_seed_and_not_on_the_number_of_processes(tmp_path):
    bodies = list(sources().values())
    given = (bodies, 70, 5, (1, 3), SIZE)
    done = []
    alone = collect_clips(*given, 0, tmp_path / "alone.npy", done.append)
    several = collect_clips(*given, 0, tmp_path / "several.npy", workers=2)
    assert alone.shape == (70, 5, *SIZE, 3)
    assert np.array_equal(alone, several)
    assert sum(done) == 70
    assert not np.array_equal(alone, collect_clips(*given, 1, tmp_path / "other.npy"))
    assert not list(tmp_path.glob(".*")), "nothing is left aside"

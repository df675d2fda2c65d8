"""The offline text encoder: no download, and words that mean the same are near."""

import numpy as np
import pytest

from hostbot.memory.embed import unit_text
from hostbot.memory.words import WordVectors
from hostbot.types import BadInput


@pytest.fixture(scope="module")
def words():
    return WordVectors()


def cosine(words, a, b):
    return float(unit_text(words, a) @ unit_text(words, b))


def test_the_same_task_in_other_words_is_nearer_than_another_task(words):
    same = cosine(words, "Stack the red bowl on the plate.", "Put the red bowl on top of the plate")
    other = cosine(words, "Stack the red bowl on the plate.", "Close the drawer")
    assert same > 0.7 > 0.5 > other


def test_case_marks_and_common_words_make_no_difference(words):
    np.testing.assert_array_equal(unit_text(words, "wipe plate"), unit_text(words, "Wipe the plate!"))


def test_only_common_words_still_say_something(words):
    assert np.isfinite(unit_text(words, "up and over")).all()
    with pytest.raises(BadInput, match="no words"):
        words.embed_text(["!?"])

"""The CPU text encoder: other words for the same task are near, another colour, thing, side or order is not."""

import numpy as np
import pytest

from hostbot.memory.embed import unit_text
from hostbot.memory.grammar import Thing, read
from hostbot.memory.phrases import PhraseConfig, PhraseVectors
from hostbot.types import BadInput

DELTA = 0.75
GOLDEN = [-0.115403, 0.141192, 0.032426, 0.004469]


@pytest.fixture(scope="module")
def phrases():
    return PhraseVectors()


def cosine(phrases, a, b):
    return float(unit_text(phrases, a) @ unit_text(phrases, b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Fold the towel.", "fold towel"),
        ("Stack the bowls.", "Pile up the bowls"),
        ("Put the silver spoon in the brown mug.", "Drop the silver spoon into the brown mug, please"),
        ("Cover the brown mug with the beige napkin.", "Put the beige napkin over the brown mug."),
        ("Hide the gold coin under the white hat.", "Lay the white hat over the gold coin"),
        ("Sweep the floor with the red broom.", "Use the red broom to sweep the floor."),
        ("Ring the red bell, then the gold bell.", "Ring the gold bell after the red bell."),
        ("Turn the grey dial to the left.", "Twist the gray dial anticlockwise"),
        ("Push the red stool.", "I would like the red stool pushed."),
    ],
)
def test_other_words_for_the_same_task_are_near(phrases, a, b):
    assert cosine(phrases, a, b) > DELTA


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Put the silver spoon in the brown mug.", "Put the gold spoon in the brown mug."),
        ("Put the silver spoon in the brown mug.", "Put the silver spoon in the brown drawer."),
        ("Put the silver spoon in the brown mug.", "Put the silver fork in the brown mug."),
        ("Lay the white hat on the red hat.", "Lay the red hat on the white hat."),
        ("Turn the grey dial to the left.", "Turn the grey dial to the right."),
        ("Open the door.", "Close the door."),
        ("Turn on the lamp.", "Turn the lamp off."),
    ],
)
def test_another_task_is_far_though_the_words_are_nearly_the_same(phrases, a, b):
    assert cosine(phrases, a, b) < DELTA


def test_the_same_words_in_another_order_are_farther_than_other_words_in_the_same_order(phrases):
    asked = "Ring the red bell, then the gold bell."
    swapped = cosine(phrases, asked, "Ring the gold bell, then the red bell.")
    reworded = cosine(phrases, asked, "First strike the red bell, next the gold bell.")
    assert swapped + 0.1 < reworded


def test_a_reading_has_things_in_the_order_of_their_roles():
    found = read("Wipe the big white plate clean with the yellow sponge, away from you.")
    assert found.things == (Thing(("yellow",), "sponge"), Thing(("big", "white"), "plate"))
    assert dict(found.directions) == {"depth": -1, "source": 1}
    assert found.acts == ("wipe", "clean")
    two = read("Place the gold ring in the white cup once the red ring is in the black cup.")
    assert [" ".join((*t.modifiers, t.head)) for t in two.things] == [
        "red ring", "black cup", "gold ring", "white cup",
    ]  # fmt: skip


def test_the_product_of_waves_is_the_gaussian_kernel_of_the_words(phrases):
    """With many waves: cos(e, e') -> exp(-s² |u - u'|² / 2) where two sentences differ by one noun, nothing else."""
    config = PhraseConfig(waves=20_000, together=0.0, pairs=0.0, acts=0.0)
    wide = PhraseVectors(phrases.words, config)
    u, v = (phrases.words.direction(word) for word in ("mug", "cup"))
    expected = np.exp(-(config.sharp_things**2) * np.sum((u - v) ** 2) / 2)
    assert cosine(wide, "Wash the mug", "Wash the cup") == pytest.approx(expected, abs=0.02)


def test_vectors_do_not_depend_on_a_library_s_generator(phrases):
    """A memory is read for years: these numbers may change only together with the identity."""
    found = unit_text(phrases, "Put the red apple in the white bowl.")
    assert phrases.identity.endswith("-phrases-1")
    assert found.shape == (256,)
    np.testing.assert_allclose(found[:4], GOLDEN, atol=1e-5)


def test_another_rule_has_another_identity(phrases):
    assert PhraseVectors(phrases.words, PhraseConfig(acts=0.3)).identity != phrases.identity


def test_words_that_name_nothing_are_refused(phrases):
    with pytest.raises(BadInput, match="names nothing"):
        phrases.embed_text(["and then it is"])

"""Which product is used where: what the table says on a card that can run it, and nothing silent on one that cannot."""

import warnings

import pytest
import torch

from hostbot.model.kernels import cuts, hopper, ways
from hostbot.model.kernels.hopper import HopperTiling
from hostbot.model.kernels.ways import Tiling, best_way, fits, read_ways, way_in_words, widths

CARD = torch.device("cuda", 0)
CUT = HopperTiling(outputs=128, w_stages=6, x_stages=6, shares=5, half=True)
KEY = (160, 3072, 3072)


@pytest.fixture
def card(monkeypatch):
    """Pretend that the card has some capability, and that one product is best made by ``hopper.cu``."""

    def of(capability):
        monkeypatch.setattr(hopper, "_capability", lambda device: capability)
        monkeypatch.setitem(ways.MEASURED, KEY, CUT)
        monkeypatch.setitem(ways.ELSEWHERE, KEY, 4)
        ways._say_once.cache_clear()

    yield of
    ways._say_once.cache_clear()


@pytest.mark.parametrize("rows", [129, 147, 148, 160])
def test_a_hopper_card_uses_what_was_measured(card, rows):
    card((9, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert best_way(rows, *KEY[1:], may_share=True, device=CARD) == CUT
        assert way_in_words(rows, *KEY[1:], CARD) == "hopper, tiles of 128, in 5"


@pytest.mark.parametrize("capability", [(8, 9), (10, 0), (12, 0)])
def test_another_card_says_once_that_it_does_not(card, capability):
    card(capability)
    with pytest.warns(UserWarning, match="cuda:0 cannot run the Hopper product"):
        assert best_way(147, *KEY[1:], may_share=True, device=CARD) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert way_in_words(147, *KEY[1:], CARD) == "library in 4"


def test_a_cpu_is_no_hopper_card(card):
    card((9, 0))
    assert not hopper.runs_on(torch.device("cpu"))
    assert hopper.runs_on(CARD)


def test_a_shape_without_a_row_is_guessed_and_many_rows_are_the_library_s(card):
    card((9, 0))
    assert best_way(147, 96, 200, may_share=True, device=CARD) == Tiling(outputs=128, inputs=64, warps=8)
    assert best_way(161, *KEY[1:], may_share=True, device=CARD) == 1
    assert best_way(8, 64, 4096, may_share=True, device=CARD).shares == 8
    assert best_way(8, 64, 4096, may_share=False, device=CARD).shares == 1


def test_a_row_names_the_way_for_other_cards_too():
    plain = {"rows": 16, "outputs": 64, "inputs": 128, "tiling": {"outputs": 64, "inputs": 64}}
    fast = {"rows": 32, "outputs": 64, "inputs": 128, "library_shares": 2}
    measured, elsewhere = read_ways([plain, fast | {"hopper": {"outputs": 64, "w_stages": 3, "x_stages": 2}}])
    assert measured == {
        (16, 64, 128): Tiling(outputs=64, inputs=64),
        (32, 64, 128): HopperTiling(outputs=64, w_stages=3, x_stages=2),
    }
    assert elsewhere == {(16, 64, 128): Tiling(outputs=64, inputs=64), (32, 64, 128): 2}
    with pytest.raises(KeyError, match="library_shares"):
        read_ways([{"rows": 1, "outputs": 8, "inputs": 8, "hopper": {}}])


def test_the_table_is_what_is_used():
    assert read_ways(cuts.read()["products"]) == (ways.MEASURED, ways.ELSEWHERE)


@pytest.mark.parametrize("rows", range(1, 161))
def test_rows_are_at_most_two_powers_of_two(rows):
    low, high = widths(rows)
    assert rows <= low + high <= max(16, 2 * rows)
    assert low & (low - 1) == 0
    assert high & (high - 1) == 0


def test_what_is_read_early_must_belong_to_the_last_share_too():
    assert fits(Tiling(outputs=64, inputs=64, shares=2, early=64), 192)
    assert not fits(Tiling(outputs=64, inputs=64, shares=2, early=128), 192)
    assert fits(Tiling(outputs=64, inputs=64, shares=2), 192)

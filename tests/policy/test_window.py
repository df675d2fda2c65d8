"""The window only advances, stays inside, follows the eye of a perfect localiser to the end, and stops there."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostbot.policy.window import (
    DemoGrid,
    Window,
    WindowConfig,
    advance,
    follow,
    place_in,
    retimed,
    snap,
)
from hostbot.types import BadInput

TINY = DemoGrid(stride=4, window_latents=5)
PAPER = DemoGrid(stride=8, window_latents=7)
grids = st.builds(DemoGrid, stride=st.integers(1, 8), window_latents=st.integers(2, 8))
estimates = st.lists(
    st.tuples(
        st.one_of(st.floats(-9, 9), st.sampled_from([math.nan, math.inf, -math.inf])),
        st.one_of(st.floats(0, 1), st.just(math.nan)),
    ),
    max_size=40,
)


def test_the_papers_sizes():
    assert PAPER.length == 192
    assert PAPER.unit == 32
    assert TINY.length == 64
    assert len(PAPER.frames(193)) == 25  # seven latents of 1 + 4 k frames
    assert PAPER.frames(193).tolist() == list(range(0, 193, 8))
    assert PAPER.num_latents(194) == 8
    assert PAPER.last_start(194) == 32


def test_window_advance_by_hand():
    """w = 64, L = 192, p = 0.8: q = 64 + 153 = 217, w' = 217 - 96 = 121, on the grid of 32: 128."""
    rules = WindowConfig(max_advance=1000, end_tolerance=16)
    out = advance(Window(num_frames=1000, start=64), 0.8, 1.0, PAPER, rules)
    assert (out.frame, out.start) == (217, 128)
    # p = 0.3: q = 121, w' = 25, which lies behind the start and is clipped to it.
    out = advance(Window(num_frames=1000, start=64), 0.3, 1.0, PAPER, rules)
    assert (out.frame, out.start) == (121, 64)


@given(grids, st.integers(1, 600), estimates, st.floats(0, 1))
def test_only_advances_and_stays_inside(grid, num_frames, seen, min_confidence):
    rules = WindowConfig(max_advance=24, end_tolerance=8, min_confidence=min_confidence)
    window = Window(num_frames=num_frames)
    for p, confidence in seen:
        before, window = window, advance(window, p, confidence, grid, rules)
        assert window.start >= before.start
        assert window.start - before.start <= math.ceil(24 / grid.unit) * grid.unit
        assert window.start % grid.unit == 0
        assert 0 <= window.start <= grid.last_start(num_frames)
        assert 0 <= window.frame < num_frames
        assert window.finished >= before.finished
        if not math.isfinite(p) or confidence < min_confidence:
            assert (window.start, window.frame) == (before.start, before.frame)


@given(
    st.builds(DemoGrid, stride=st.integers(1, 8), window_latents=st.integers(3, 8)),
    st.integers(1, 600),
    st.integers(1, 40),
    st.integers(0, 1000),
)
def test_a_perfect_localiser_reaches_the_end(grid, num_frames, speed, seed):
    """A robot that does not outrun what the window shows ahead is never lost, and is told when it is done."""
    speed = min(speed, (grid.length - grid.unit) // 2)
    horizon = max(speed, grid.stride)
    rules, rng = follow(horizon), np.random.default_rng(seed)
    window, true = Window(num_frames=num_frames), 0
    for _ in range(num_frames + 4):
        assert window.start <= true <= window.start + grid.length
        window = advance(window, place_in(window, true, grid) + 1e-9, 1.0, grid, rules)
        assert abs(window.frame - true) <= 1
        if window.finished:
            break
        true = min(true + int(rng.integers(1, 1 + speed)), num_frames - 1)
    assert window.finished
    assert num_frames - 1 - window.frame <= rules.end_tolerance


def test_it_relocalises_backwards_within_the_window():
    rules = follow(16)
    window = Window(num_frames=400, start=160)
    window = advance(window, 0.75, 1.0, TINY, rules)
    assert (window.frame, window.start) == (208, 176)
    back = advance(window, 0.1, 1.0, TINY, rules)  # somebody took the cup out of the hand
    assert back.frame == 182
    assert back.start == 176
    again = advance(back, 0.5, 1.0, TINY, rules)
    assert again.frame == 208


def test_the_end_must_be_seen_twice_in_a_row():
    rules = follow(16)
    end = Window(num_frames=65, start=0)
    once = advance(end, 1.0, 1.0, TINY, rules)
    assert not once.finished
    assert advance(once, 0.95, 1.0, TINY, rules).finished
    away = advance(once, 0.4, 1.0, TINY, rules)
    assert not advance(away, 1.0, 1.0, TINY, rules).finished


def test_a_doubted_estimate_is_counted_and_changes_nothing():
    rules = WindowConfig(max_advance=16, end_tolerance=8, min_confidence=0.5)
    window = advance(Window(num_frames=200, start=32, frame=40), 1.0, 0.4, TINY, rules)
    assert (window.start, window.frame, window.num_held) == (32, 40, 1)
    assert advance(window, 0.5, 0.6, TINY, rules).num_held == 0


@given(st.integers(-500, 500), st.integers(1, 64))
def test_snap_is_to_the_nearest(frame, unit):
    place = snap(frame, unit)
    assert place % unit == 0
    assert abs(place - frame) <= unit / 2


@given(grids, st.integers(1, 700))
def test_the_grid_covers_the_demonstration_and_holds_its_end(grid, num_frames):
    frames = grid.frames(num_frames)
    assert len(frames) == 1 + 4 * (grid.num_latents(num_frames) - 1)
    assert frames[0] == 0
    assert frames[-1] == num_frames - 1
    assert (np.diff(frames) >= 0).all()
    assert (frames[frames < num_frames - 1] % grid.stride == 0).all()


@given(st.integers(1, 500), st.floats(0.2, 5))
def test_pace_keeps_both_ends_and_changes_the_length(num_frames, pace):
    order = retimed(num_frames, pace)
    assert abs(len(order) - 1 - (num_frames - 1) / pace) <= 0.5 + 1e-9
    assert order[0] == 0
    assert (np.diff(order) >= 0).all()
    if len(order) > 1:
        assert order[-1] == num_frames - 1


def test_a_slowed_human_shows_every_frame_twice():
    assert len(retimed(10, 0.5)) == 19
    assert (np.bincount(retimed(10, 0.5))[1:-1] >= 1).all()
    assert retimed(5, 2.0).tolist() == [0, 2, 4]


@pytest.mark.parametrize("pace", [0.0, -1.0, math.nan, math.inf])
def test_a_pace_is_a_factor(pace):
    with pytest.raises(BadInput, match="above 0"):
        retimed(10, pace)


def test_grids_and_rules_that_make_no_sense_are_refused():
    with pytest.raises(BadInput, match="two latents"):
        DemoGrid(stride=4, window_latents=1)
    with pytest.raises(BadInput, match="at least one frame"):
        TINY.num_latents(0)
    with pytest.raises(BadInput, match="advance by 1"):
        WindowConfig(max_advance=0, end_tolerance=0)

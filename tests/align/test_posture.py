"""What hands do: numbers both bodies share, and where hands are in pictures."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hostbot.align.posture import POSTURE, Annotations, in_order, motion, motion_seen, on_circles, posture
from hostbot.types import BadInput


def hands_at(right, opening=0.05):
    """A right hand on its way; the left one waits."""
    hands = np.zeros((len(right), 20))
    hands[:, :3] = (0.06, 0.22, 0.17)
    hands[:, 10:13] = right
    hands[:, 9], hands[:, 19] = 0.05, opening
    return hands


def test_heading_is_the_moving_hand_s_and_nobody_s_pace_counts():
    up = np.linspace(0, 1, 30)[:, None] * [0, 0, 0.3]
    slow, fast = motion(hands_at(up), 16.0), motion(hands_at(up[::2]), 16.0)
    assert (slow[:, 0] > 0.9).all()
    np.testing.assert_allclose(slow[:, 1], 0, atol=0.02)
    np.testing.assert_allclose(slow[5:-5, 0], 1, atol=0.06)
    np.testing.assert_allclose(fast[3:-3, 0], 1, atol=0.02)
    across = motion(hands_at(up[:, [2, 0, 1]]), 16.0)
    np.testing.assert_allclose(across[:, 0], 0, atol=0.02)
    assert (across[:, 1] > 0.9).all()


def test_a_posture_tells_touching_and_what_stirs():
    hands = hands_at(np.tile([0.2, -0.2, 0.1], (8, 1)))
    things = np.zeros((8, 2, 3))
    things[4:, 1, 0] = 0.1 * np.arange(4)
    found = posture(hands, np.arange(8) >= 4, things, 16.0)
    assert found.shape == (8, len(POSTURE))
    assert found.dtype == np.float32
    assert len(set(found[:4, 6])) == len(set(found[4:, 6])) == 1
    assert found[4, 6] > found[3, 6]
    assert (found[5:, 7] > 1).all()
    assert (found[:3, 7] < 0).all()
    assert posture(hands, np.zeros(8, bool), np.zeros((8, 0, 3)), 16.0).shape == (8, len(POSTURE))


@given(st.lists(st.floats(-9, 9, width=32), min_size=len(POSTURE), max_size=len(POSTURE)))
def test_postures_lie_on_the_sphere_and_what_differs_more_lies_farther(values):
    told = torch.tensor(values)
    points = on_circles(told)
    torch.testing.assert_close(points.norm(), torch.tensor(1.0))
    nearer = on_circles(0.5 * told)
    middle = on_circles(torch.zeros_like(told))
    assert (points - middle).norm() >= (nearer - middle).norm() - 1e-6


def test_the_hand_further_left_comes_first_and_none_lies_outside():
    spots = torch.tensor([[[0.5, 0.1], [-0.5, 0.2]], [[-2.0, 0.0], [0.3, 1.5]]])
    torch.testing.assert_close(
        in_order(spots), torch.tensor([[[-0.5, 0.2], [0.5, 0.1]], [[-1.0, 0.0], [0.3, 1.0]]])
    )


def test_motion_seen_is_of_the_hand_that_moves_most_and_ends_with_its_video():
    spots = np.zeros((9, 2, 2, 2), np.float32)
    spots[:, 0] = 7.0 * np.arange(9)[:, None, None]  # a view that is not the last
    spots[:5, 1, 1] = np.arange(5)[:, None] * [-0.1, 0.05]
    spots[5:, 1, 0] = np.arange(4)[:, None] * [0.0, -0.1]
    found = motion_seen(spots, np.array([5, 4]))
    np.testing.assert_allclose(found[2], [4 * 0.4, 4 * 0.2, 4 * np.hypot(0.4, 0.2)], rtol=1e-5)
    np.testing.assert_allclose(found[4], [4 * 0.2, 4 * 0.1, 4 * np.hypot(0.2, 0.1)], rtol=1e-5)
    np.testing.assert_allclose(found[5], [0, -4 * 0.2, 4 * 0.2], rtol=1e-5)


def test_annotations_that_do_not_belong_together_are_refused():
    with pytest.raises(BadInput, match=r"\[T, 8\]"):
        Annotations(posture=np.zeros((3, 2), np.float32), spots=np.zeros((3, 1, 2, 2), np.float32))

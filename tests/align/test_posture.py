"""What hands do: numbers both bodies share, where they are in changed pictures, and how they are learned."""

import dataclasses
from dataclasses import astuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hostbot.align.cache import FrameCache
from hostbot.align.encoders import whole_clips
from hostbot.align.look import Look, applied
from hostbot.align.posture import (
    POSTURE,
    Annotations,
    motion,
    on_circles,
    posture,
    posture_loss,
    seen_spots,
    spots_loss,
)
from hostbot.align.recipe import small_draw
from hostbot.align.small import SmallFrameEncoder
from hostbot.align.train import Trainer
from hostbot.types import BadInput
from tests.align.training import CONFIG, ENCODER, make_pairs


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


def test_places_move_with_the_picture():
    """A bright pixel is where a place says, after any look."""
    frames = torch.zeros(1, 1, 3, 64, 64, 3, dtype=torch.uint8)
    frames[..., 20:23, 40:43, :] = 255
    spot = torch.tensor([(41.5 / 64) * 2 - 1, (21.5 / 64) * 2 - 1])
    looks = [Look(), Look(mirror=-1.0), Look(mirror=-1.0, scale=0.8, right=0.15, down=-0.1)]
    numbers = torch.tensor([[astuple(look) for look in looks]])
    seen = applied(whole_clips(frames), numbers).frames[0, 0].float().sum(-1)
    spots = spot.expand(1, 3, 2, 2)
    found = seen_spots(spots, numbers[..., 4], numbers[..., 5], numbers[..., 6:])
    for picture, (x, y) in zip(seen, found[0, :, 0], strict=True):
        rows, columns = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
        weight = picture / picture.sum()
        torch.testing.assert_close((weight * columns).sum() + 0.5, (x + 1) * 32, atol=0.1, rtol=0)
        torch.testing.assert_close((weight * rows).sum() + 0.5, (y + 1) * 32, atol=0.1, rtol=0)


def test_the_hand_further_left_comes_first():
    spots = torch.tensor([[[[0.5, 0.1], [-0.5, 0.2]]]])
    one = torch.ones(1, 1)
    assert seen_spots(spots, one, one, torch.zeros(1, 1, 2)).tolist()[0][0][0] == pytest.approx([-0.5, 0.2])
    mirrored = seen_spots(spots, -one, one, torch.zeros(1, 1, 2))
    torch.testing.assert_close(mirrored[0, 0], torch.tensor([[-0.5, 0.1], [0.5, 0.2]]))


def test_only_what_is_there_counts():
    told, there = torch.zeros(1, 3, len(POSTURE)), torch.tensor([[True, True, False]])
    wanted = told.clone()
    wanted[0, 2] = 100.0
    assert posture_loss(told, wanted, there) == 0
    wanted[0, 0] = 2.0
    assert posture_loss(told, wanted, there) == 2
    found, seen = torch.zeros(1, 1, 2, 2, 2), torch.tensor([[[True, False]]])
    spots = torch.tensor([[[[[0.3, 0.4], [0.0, 0.0]], [[9.0, 9.0], [9.0, 9.0]]]]])
    torch.testing.assert_close(spots_loss(found, spots, seen), torch.tensor(0.125))


CLOSE = dataclasses.replace(ENCODER, glimpse=16, near=(-1, 0, 1), glimpse_width=4)
TAUGHT = dataclasses.replace(CONFIG, posture=1.0, steps=30, learning_rate=2e-3, look_every=100)


def annotated_pairs(root):
    """Films whose posture is how bright their blob's row is, and where it is."""
    pairs = make_pairs(root, small_draw(max_steps=14))
    for body, cache in pairs.caches.items():
        pictures = np.concatenate([cache.whole(k).numpy() for k in range(len(cache))])
        bright = pictures.max(-1) > 150
        rows, columns = (bright.mean(axis) * np.arange(32) for axis in (3, 2))
        middle = np.stack(
            [columns.sum(-1) / bright.mean(2).sum(-1), rows.sum(-1) / bright.mean(3).sum(-1)], -1
        )
        spots = np.repeat(middle[:, :, None] / 16 - 1, 2, 2).astype(np.float32)
        told = np.tile(spots[:, :1, 0, :1].reshape(-1, 1), (1, len(POSTURE)))
        known = Annotations(posture=told, spots=spots)
        pairs.caches[body] = FrameCache(body, cache.views, cache.lengths, pictures, known)
    return pairs


def test_what_is_known_of_hands_is_learned_besides(tmp_path):
    torch.manual_seed(0)
    trainer = Trainer(SmallFrameEncoder(CLOSE), annotated_pairs(tmp_path), TAUGHT, tmp_path / "run")
    known = [report.posture for report in trainer.run()]
    assert np.mean(known[-5:]) < 0.6 * np.mean(known[:5])


def test_drawn_steps_come_with_their_own_annotations(tmp_path):
    pairs = annotated_pairs(tmp_path)
    batch = pairs.batch(0, range(4))
    clip = pairs.draw(0, 1)[1]
    known = pairs.caches[clip.body].annotated(clip.episode, clip.steps)
    np.testing.assert_array_equal(batch.posture[1, : len(clip.steps)], known.posture)
    np.testing.assert_array_equal(
        batch.spots[1, : len(clip.steps), : len(clip.views)], known.spots[:, clip.views]
    )


def test_what_cannot_be_learned_is_refused(tmp_path):
    plain = make_pairs(tmp_path, small_draw(max_steps=14))
    with pytest.raises(BadInput, match="annotated"):
        next(iter(Trainer(SmallFrameEncoder(CLOSE), plain, TAUGHT, tmp_path / "a").run()))
    with pytest.raises(BadInput, match="looks closely"):
        next(iter(Trainer(SmallFrameEncoder(ENCODER), plain, TAUGHT, tmp_path / "b").run()))
    with pytest.raises(BadInput, match=r"\[T, 8\]"):
        Annotations(posture=np.zeros((3, 2), np.float32), spots=np.zeros((3, 1, 2, 2), np.float32))

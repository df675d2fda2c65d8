"""The reader of hands: finds places, sees squares around them, follows the video, knows no clock."""

from dataclasses import replace

import pytest
import torch

from hostbot.align.encoders import whole_clips
from hostbot.align.hands import Follow, HandReader, HandsConfig, as_one, centres, corners, cut, middles
from hostbot.types import BadInput
from tests.align.test_encoders import HANDS, clips


def reader(config=HANDS, size=32):
    """Random weights everywhere, so that no zero hides a path."""
    torch.manual_seed(1)
    model = HandReader(config, size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def told(model, given, views=None, at_once=1000):
    with torch.no_grad():
        return model(given, given.present[None] if views is None else views, at_once)


def test_glimpses_lie_around_their_places_and_inside_the_picture():
    places = torch.tensor([[[0.0, 0.0], [-1.0, 1.0]], [[0.5, -0.25], [7.0, -9.0]]])
    first = corners(places, 32, 8)
    assert first.tolist() == [[[12, 12], [0, 24]], [[20, 8], [24, 0]]]
    torch.testing.assert_close(middles(first, 32, 8)[0, 0], torch.zeros(2))
    assert middles(first, 32, 8).abs().max() <= 0.75
    given = clips(num=1, steps=2, views=1)
    found = cut(given, torch.tensor([[0, 1, 0], [0, 0, 0]]), first[[0, 1], [1, 0]], 8, -1)
    assert torch.equal(found[0], given.frames[0, 0, 0, 24:, :8])
    assert torch.equal(found[1], given.frames[0, 0, 0, 8:16, 20:28])


def test_places_of_one_hand_are_looked_at_once_to_the_same_effect():
    near, far = [[0.1, 0.2], [0.15, 0.2]], [[-0.5, 0.0], [0.5, 0.0]]
    found = as_one(torch.tensor([near, far]))
    torch.testing.assert_close(found, torch.tensor([[[0.125, 0.2]] * 2, far]))
    model, given = reader(), clips(num=1, steps=2, views=1)
    places, looked = given.places(given.present), []
    model.trunk.register_forward_hook(lambda _, given, __: looked.append(len(given[0])))
    with torch.no_grad():
        around = model.searched(given, places)[0]
        both = model.closely(given, places, found, around)
        alone = [model.closely(given, places[k : k + 1], found[k : k + 1], around[k : k + 1]) for k in (0, 1)]
    assert looked == [3, 1, 2]
    torch.testing.assert_close(both, torch.cat(alone))


def test_a_peak_is_found_where_it_is():
    heights = torch.full((1, 2, 4, 8), -50.0)
    heights[0, 0, 3, 0] = heights[0, 1, 0, 5] = 50.0
    torch.testing.assert_close(centres(heights), torch.tensor([[[-0.875, 0.75], [0.375, -0.75]]]))
    torch.testing.assert_close(centres(torch.zeros(1, 1, 4, 8)), torch.zeros(1, 1, 2))


def test_a_moment_sees_the_frames_it_names_and_no_others():
    model = reader(replace(HANDS, far=(0,), near=(-3, 0, 1), reach=()))
    given = clips(steps=9, views=1)
    frames = given.frames.clone()
    frames[:, 4] = 255 - frames[:, 4]
    moved = told(model, given).posture - told(model, replace(given, frames=frames)).posture
    assert (moved.abs().amax(-1) > 1e-6)[0, 0].nonzero().flatten().tolist() == [3, 4, 7]


@pytest.mark.parametrize(("apart", "sees"), [(1, [-2, -1, 0, 1, 2]), (4, [-8, -4, 0, 4, 8])])
def test_following_sees_neighbours_on_both_sides(apart, sees):
    torch.manual_seed(0)
    layer = Follow(6, apart)
    torch.nn.init.normal_(layer.out.weight)
    x = torch.randn(1, 30, 6)
    other = x.clone()
    other[0, 15] += torch.randn(6)
    moved = (layer(x, torch.tensor([29])) - layer(other, torch.tensor([29]))).abs().amax(-1)[0]
    assert (moved > 1e-6).nonzero().flatten().tolist() == [15 + k for k in sees]


def test_following_begins_as_what_moments_tell():
    layer = Follow(6, 2)
    x = torch.randn(2, 7, 6)
    assert torch.equal(layer(x, torch.tensor([6, 3])), x)


def test_a_video_is_followed_alike_alone_and_beside_longer_ones():
    both = clips(lengths=[5, 3])
    alone = whole_clips(both.frames[1:, :3], riding=both.riding[1:])
    model = reader(replace(HANDS, reach=(1, 4)))
    torch.testing.assert_close(told(model, both).posture[0, 1, :3], told(model, alone).posture[0, 0])


def test_chunks_change_nothing():
    model, given = reader(), clips()
    whole, parts = told(model, given), told(model, given, at_once=4)
    torch.testing.assert_close(whole.posture, parts.posture, atol=1e-6, rtol=0)
    torch.testing.assert_close(whole.spots, parts.spots, atol=1e-6, rtol=0)


def test_choices_of_views_are_told_apart():
    model, given = reader(), clips()
    choices = torch.tensor([[[1, 1, 1], [1, 1, 1]], [[1, 0, 0], [0, 1, 1]]], dtype=torch.bool)
    found = told(model, given, choices).posture
    one = told(model, replace(given, present=choices[1])).posture[0]
    torch.testing.assert_close(found[1], one, atol=1e-6, rtol=0)
    assert (found[0] - found[1]).abs().max() > 1e-4


def test_another_light_is_another_picture():
    model, given = reader(), clips(views=1)
    places = given.places(given.present)
    gain, shift = torch.full((len(places), 3), 0.8), torch.full((len(places), 1), 0.1)
    lit = replace(given, frames=(0.8 * given.frames.float() + 25.5).round().to(torch.uint8))
    with torch.no_grad():
        around, spots = model.searched(given, places, (gain, shift))
        seen = model.closely(given, places, spots, around, (gain, shift))
        around_lit, spots_lit = model.searched(lit, places)
        torch.testing.assert_close(spots, spots_lit, atol=5e-3, rtol=0)
        torch.testing.assert_close(seen, model.closely(lit, places, spots, around_lit), atol=0.02, rtol=0.02)


def test_every_weight_learns():
    model = reader().train()
    found = model(clips(), torch.ones(1, 2, 3, dtype=torch.bool), 1000)
    hidden = torch.randn(3, HANDS.width)
    aside = model.once(hidden).square().mean() + model.moving(hidden).square().mean()
    (found.posture.square().mean() + found.spots.square().mean() + aside).backward()
    for name, parameter in model.named_parameters():
        assert name in ("gate.bias", "point.bias") or parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(
    "change", [{"side": 12}, {"side": 0}, {"near": ()}, {"far": ()}, {"share": 1.0}, {"share": 0.0}]
)
def test_settings_that_make_no_sense_are_refused(change):
    with pytest.raises(BadInput, match="glimpse"):
        replace(HANDS, **change)


def test_glimpses_larger_than_pictures_are_refused():
    with pytest.raises(BadInput, match="40 pixels do not fit pictures of 32"):
        HandReader(HandsConfig(), 32)

"""Augmentation against Pillow and colorsys; one draw for all frames; speed retiming."""

import colorsys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance
from scipy.ndimage import gaussian_filter

from hostbot.data import augment as a
from hostbot.data.speed import SpeedConfig, draw_factor, retime, retime_events
from hostbot.types import BadInput, Event

RNG = np.random.default_rng(0)
PICTURE = RNG.integers(0, 256, (24, 32, 3), dtype=np.uint8)
NOTHING = a.Augmentation(brightness=1, contrast=1, saturation=1, hue=0, blur_sigma=None, crop=(0, 0, 1))


def tensor(picture):
    return torch.from_numpy(picture).permute(2, 0, 1).float()[None] / 255


def picture(frames):
    return (frames[0].permute(1, 2, 0) * 255).numpy()


@pytest.mark.parametrize("factor", [0.7, 0.9, 1.3])
@pytest.mark.parametrize(
    ("name", "enhance"),
    [
        ("brightness", ImageEnhance.Brightness),
        ("contrast", ImageEnhance.Contrast),
        ("saturation", ImageEnhance.Color),
    ],
)
def test_colour_agrees_with_pillow(name, enhance, factor):
    draw = a.Augmentation(**{**NOTHING.__dict__, name: factor})
    expected = np.asarray(enhance(Image.fromarray(PICTURE)).enhance(factor)).astype(float)
    # Pillow rounds its grey level and its result to whole numbers.
    np.testing.assert_allclose(picture(a.augment(tensor(PICTURE), draw)), expected, atol=1.6)


@pytest.mark.parametrize("turns", [-0.05, 0.02, 0.5])
def test_hue_agrees_with_colorsys(turns):
    ours = picture(a.shift_hue(tensor(PICTURE), turns)) / 255
    for row, column in np.ndindex(24, 32):
        hue, saturation, value = colorsys.rgb_to_hsv(*(PICTURE[row, column] / 255))
        expected = colorsys.hsv_to_rgb((hue + turns) % 1, saturation, value)
        np.testing.assert_allclose(ours[row, column], expected, atol=1e-5)


def test_grey_has_no_hue_to_shift():
    grey = torch.full((1, 3, 4, 4), 0.4)
    torch.testing.assert_close(a.shift_hue(grey, 0.3), grey)


@pytest.mark.parametrize("sigma", [0.1, 0.7, 2.0])
def test_blur_agrees_with_scipy(sigma):
    expected = gaussian_filter(
        PICTURE.astype(float),
        (sigma, sigma, 0),
        mode="mirror",
        radius=(max(1, int(np.ceil(3 * sigma))),) * 2 + (0,),
    )
    np.testing.assert_allclose(picture(a.blur(tensor(PICTURE), sigma)), expected, atol=1e-3)


def test_crop_cuts_the_named_box():
    ramp = torch.linspace(0, 1, 100).expand(1, 3, 100, 100)
    cut = a.crop(ramp, (0.1, 0.2, 0.5))
    assert cut[0, 0, 50, 0] == pytest.approx(0.2, abs=0.01)
    assert cut[0, 0, 50, -1] == pytest.approx(0.7, abs=0.02)


def test_every_frame_of_a_sample_gets_the_same_draw():
    frames = tensor(PICTURE)[0].expand(4, 2, 3, 24, 32)
    out = a.augment(frames, a.draw_augmentation(a.AugmentConfig(), np.random.default_rng(3)))
    for index in np.ndindex(4, 2):
        torch.testing.assert_close(out[index], out[0, 0], rtol=0, atol=0)
    assert not torch.equal(out[0, 0], frames[0, 0])


def test_the_neutral_draw_changes_nothing():
    torch.testing.assert_close(a.augment(tensor(PICTURE), NOTHING), tensor(PICTURE), rtol=0, atol=1e-6)


def test_draws_cover_the_papers_ranges_and_repeat_with_the_seed():
    config = a.AugmentConfig()
    draws = [a.draw_augmentation(config, np.random.default_rng([1, i])) for i in range(3000)]
    for name, (low, high) in (
        ("brightness", (0.7, 1.3)),
        ("contrast", (0.7, 1.3)),
        ("saturation", (0.7, 1.3)),
        ("hue", (-0.05, 0.05)),
    ):
        values = np.array([getattr(draw, name) for draw in draws])
        assert low <= values.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < values.max() <= high
    blurred = [draw.blur_sigma for draw in draws if draw.blur_sigma is not None]
    assert 0.46 < len(blurred) / len(draws) < 0.54
    assert min(blurred) >= 0.1
    assert max(blurred) <= 2.0
    areas = np.array([draw.crop[2] ** 2 for draw in draws])
    assert 0.8 <= areas.min() < 0.81
    assert areas.max() <= 1.0
    assert all(
        top + side <= 1 + 1e-9 and left + side <= 1 + 1e-9 for top, left, side in (d.crop for d in draws)
    )
    assert draws[7] == a.draw_augmentation(config, np.random.default_rng([1, 7]))


def test_wrong_layout_is_refused():
    with pytest.raises(BadInput, match="3 channels"):
        a.augment(torch.zeros(1, 24, 32, 3), NOTHING)


@given(st.integers(1, 500), st.floats(0.5, 2))
def test_retiming_keeps_ends_and_order(num_frames, factor):
    indices = retime(num_frames, factor)
    assert indices[0] == 0
    assert indices[-1] == num_frames - 1
    assert (np.diff(indices) >= 0).all()
    assert abs(len(indices) - ((num_frames - 1) / factor + 1)) <= 1


def test_retiming_by_one_is_the_identity_and_by_two_takes_every_other():
    assert retime(9, 1.0).tolist() == list(range(9))
    assert retime(9, 2.0).tolist() == [0, 2, 4, 6, 8]
    events = (Event(name="grasp", frame=4), Event(name="late", frame=7))
    assert [e.frame for e in retime_events(events, retime(9, 2.0))] == [2, 4]


def test_speed_factors_fill_the_range():
    factors = [draw_factor(SpeedConfig(), np.random.default_rng(i)) for i in range(2000)]
    assert 0.5 <= min(factors) < 0.51
    assert 1.99 < max(factors) <= 2
    with pytest.raises(BadInput, match="2.0 and 0.5"):
        SpeedConfig(low=2.0, high=0.5)

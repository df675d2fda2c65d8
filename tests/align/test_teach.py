"""Teaching a reader of hands: what is drawn, how it is made to look, that it learns, and goes on where it stopped."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hostbot.align.hands import HandReader
from hostbot.align.posture import POSTURE, Annotations
from hostbot.align.teach import (
    TeachConfig,
    Teacher,
    Videos,
    follow,
    lesson,
    moment_loss,
    posture_error,
    rate,
    shown,
)
from hostbot.types import BadInput
from tests.align.test_encoders import HANDS

CONFIG = TeachConfig(
    steps=150, follow_steps=60, moments={"one": 12}, weights={"one": 1.0}, videos=4, warmup=5, learning_rate=4e-3,
    bf16=False, save_every=40, follow_rate=5e-3,
)  # fmt: skip


def made(num=6, steps=12, views=("third_person",), seed=0):
    """A white square wanders over noise: where it is, how high it stands and, only over time, which way it goes."""
    rng = np.random.default_rng(seed)
    frames, spots, postures = [], [], []
    for _ in range(num):
        begin, end = rng.uniform(6, 26, (2, 2))
        way = np.linspace(begin, end, steps)
        film = rng.integers(0, 90, (steps, len(views), 32, 32, 3), dtype=np.uint8)
        for t, (x, y) in enumerate(way.round().astype(int)):
            film[t, :, y - 3 : y + 3, x - 3 : x + 3] = 250
        frames.append(film)
        spots.append(np.tile((way / 16 - 1)[:, None, None], (1, len(views), 2, 1)))
        told = np.zeros((steps, len(POSTURE)))
        told[:, 0], told[:, 4] = np.sign(end - begin)[1], way[:, 1] / 16 - 1
        postures.append(told)
    known = Annotations(
        posture=np.concatenate(postures).astype(np.float32), spots=np.concatenate(spots).astype(np.float32)
    )
    riding = tuple("wrist" in view for view in views)
    return Videos(views, np.concatenate(frames), np.full(num, steps), known, riding)


def teacher(folder, config=CONFIG, videos=None):
    torch.manual_seed(0)
    return Teacher(HandReader(HANDS, 32), {"one": videos or made()}, config, folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teach")
    one = teacher(folder)
    return one, list(one.run()), folder


def test_moments_come_with_the_frames_around_them_and_of_no_other_video():
    videos = made()
    clips = videos.moments(np.array([0, 11, 12, 30]), 3)
    for place, rows in enumerate(
        [[0, 0, 0, 0, 1, 2, 3], [8, 9, 10, 11, 11, 11, 11], [12] * 4 + [13, 14, 15]]
    ):
        np.testing.assert_array_equal(clips.frames[place], videos.pictures[rows])
    assert clips.picked.tolist() == [[3]] * 4


def test_videos_may_lie_anywhere_in_an_array_on_disk(tmp_path):
    videos = made()
    order = [4, 1, 0, 5]
    np.save(tmp_path / "pictures.npy", videos.pictures)
    some = Videos(
        videos.views, np.load(tmp_path / "pictures.npy", mmap_mode="r"), videos.lengths[order],
        Annotations(posture=videos.known.posture[:48], spots=videos.known.spots[:48]), (False,), videos.starts[order],
    )  # fmt: skip
    found = some.moments(np.array([0, 11, 12, 47]), 1).frames
    for clip, rows in zip(found, ([48, 48, 49], [58, 59, 59], [12, 12, 13], [70, 71, 71]), strict=True):
        np.testing.assert_array_equal(clip, videos.pictures[rows])
    assert len(some) == 48


def test_pictures_on_a_device_are_drawn_there_and_teach_the_same(tmp_path):
    videos = made()
    order = [4, 1, 0, 5]
    known = Annotations(posture=videos.known.posture[:48], spots=videos.known.spots[:48])
    some = Videos(videos.views, videos.pictures, videos.lengths[order], known, (False,), videos.starts[order])
    held = some.held(torch.device("cpu"))
    assert isinstance(held.pictures, torch.Tensor)
    rows = np.array([0, 11, 12, 47])
    assert torch.equal(held.moments(rows, 2).frames, some.moments(rows, 2).frames)
    ends = []
    for name, source in (("disk", some), ("held", held)):
        one = teacher(tmp_path / name, replace(CONFIG, steps=3, follow_steps=2), source)
        list(one.run())
        list(follow(one.reader, one.sources, one.config))
        ends.append(one.reader.state_dict())
    for key, value in ends[0].items():
        assert torch.equal(value, ends[1][key]), key


def test_what_is_shown_is_mirrored_with_its_places_and_the_light_is_its_own():
    videos = made(views=("left_wrist", "third_person"))
    found = lesson(videos, 40, 2, CONFIG, np.random.default_rng(3))
    pictures = found.clips.frames[:, 2].flatten(0, 1).float().mean(-1)
    for picture, spot in zip(pictures, found.spots[:, 0], strict=True):
        rows, columns = (picture > 200).nonzero().float().mean(0) + 0.5
        torch.testing.assert_close(torch.stack([columns, rows]) / 16 - 1, spot, atol=0.05, rtol=0)
    gain, shift = found.light
    assert gain.shape == (80, 3)
    assert shift.shape == (80, 1)
    assert gain.std() > 0.05
    assert found.views[0].any(-1).all()
    assert not found.views.all()
    assert found.clips.riding.tolist() == [[True, False]] * 40


def test_the_same_step_draws_the_same():
    videos = made()
    one, same, other = (lesson(videos, 8, 2, CONFIG, np.random.default_rng(k)) for k in (1, 1, 2))
    assert torch.equal(one.clips.frames, same.clips.frames)
    assert torch.equal(one.light[0], same.light[0])
    assert not torch.equal(one.posture, other.posture)


def test_rates_rise_stay_and_fall_to_nothing():
    found = [rate(step, 100, replace(CONFIG, warmup=10, falling=0.5), 1.0) for step in range(101)]
    assert found[:10] == pytest.approx([0.1 * k for k in range(1, 11)])
    assert set(found[10:51]) == {1.0}
    assert found[75] == pytest.approx(0.5)
    assert found[100] == 0


def test_large_errors_count_for_less_than_their_square():
    told, wanted = torch.zeros(1, len(POSTURE)), torch.zeros(1, len(POSTURE))
    wanted[0, 1] = 0.5
    small = posture_error(told, wanted)
    wanted[0, 1] = 5.0
    assert 10 * small < posture_error(told, wanted) < 100 * small


def test_places_and_postures_are_learned(whole):
    _, reports, _ = whole
    first, last = reports[:5], reports[-5:]
    for what, share in (("spots", 0.3), ("posture", 0.6)):
        began, ended = (np.mean([getattr(r, what)["one"] for r in part]) for part in (first, last))
        assert ended < share * began, what


def test_following_tells_what_single_moments_leave_open(whole):
    """Which way the square goes takes more than the few frames of a moment."""
    one, _, _ = whole
    errors = [error["one"] for _, error in follow(one.reader, {"one": made()}, CONFIG)]
    assert np.mean(errors[-5:]) < 0.5 * np.mean(errors[:5])
    assert not one.reader.training


def test_what_is_shown_of_a_picture_does_not_depend_on_how_many_there_are(whole, monkeypatch):
    one, _, _ = whole
    videos = made(num=2, views=("left_wrist", "third_person"))
    together = shown(one.reader, videos)
    monkeypatch.setattr("hostbot.align.teach._AT_ONCE", 5)
    torch.testing.assert_close(shown(one.reader, videos), together, atol=1e-5, rtol=0)
    assert together.shape == (24, 2, HANDS.width)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(whole, tmp_path):
    one, reports, _ = whole
    config = replace(CONFIG, save_every=1000)
    stopped = teacher(tmp_path, config)
    for report in stopped.run():
        if report.step == 60:
            stopped.stopping = True
    with pytest.raises(BadInput, match="other settings"):
        teacher(tmp_path, replace(config, seed=1)).resume()
    again = teacher(tmp_path, config)
    assert again.resume() == 60
    later = list(again.run())
    assert [r.step for r in later] == list(range(61, CONFIG.steps + 1))
    assert later[0] == reports[60]
    # Following has begun since with the first one: what moments are learned by is compared.
    for name, parameter in again.named.items():
        assert torch.equal(parameter, one.named[name]), name


def test_one_checkpoint_is_kept(whole):
    _, _, folder = whole
    assert [path.name for path in folder.iterdir()] == [f"step-{CONFIG.steps:08d}"]


def test_a_loss_that_is_not_finite_stops_before_the_weights_change(tmp_path):
    one = teacher(tmp_path)
    with torch.no_grad():
        one.reader.once.bias.fill_(torch.inf)
    before = {n: p.clone() for n, p in one.named.items()}
    with pytest.raises(BadInput, match="not finite at step 0"):
        next(one.run())
    assert all(torch.equal(p, before[n]) for n, p in one.named.items())


def test_gradients_of_places_and_postures_meet_in_what_is_seen(tmp_path):
    one = teacher(tmp_path)
    rng = np.random.default_rng(0)
    given = lesson(made(), 6, one._reach, CONFIG, rng)
    told, moving, where = moment_loss(one.reader, given, 0.5, rng)
    (told + moving + where).backward()
    silent = [n for n, p in one.named.items() if p.grad is None or not p.grad.any()]
    # With one view there is nothing to weigh, and a softmax knows no offset.
    assert set(silent) <= {"gate.weight", "gate.bias", "point.bias"}


def test_sources_and_settings_must_name_the_same(tmp_path):
    with pytest.raises(BadInput, match=r"moments and weights are of \['one'\], videos of \['two'\]"):
        Teacher(HandReader(HANDS, 32), {"two": made()}, CONFIG, tmp_path)
    with pytest.raises(BadInput, match="as many pictures and annotations"):
        videos = made()
        Videos(videos.views, videos.pictures[1:], videos.lengths, videos.known, (False,))

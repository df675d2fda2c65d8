"""Cache and pairs: decoded once, drawn by number, recoloured clip by clip."""

from collections import Counter
from dataclasses import astuple

import numpy as np
import pytest
import torch

from hostbot.align.cache import CacheConfig, FrameCache, build_cache
from hostbot.align.draw import DrawConfig, Pairs, stratified
from hostbot.align.encoders import whole_clips
from hostbot.align.look import Look, LookConfig, applied, draw_look
from hostbot.align.recipe import small_draw
from hostbot.align.steps import clock_map, expand, step_frames
from hostbot.types import BadInput, Correspondence, DataError
from tests.align.fakes import FilmSource, groups
from tests.align.training import make_pairs

CONFIG = CacheConfig(size=16, max_frames=10)


def test_the_cache_holds_the_source_s_frames(tmp_path):
    source = FilmSource("robot", views=("a", "b"))
    cache = build_cache(source, tmp_path, CONFIG)
    assert len(cache) == len(source)
    for episode in range(len(source)):
        steps = step_frames(source.episode(episode).length, 16.0, 16.0, 10)
        wanted = np.stack([source.frames(episode, view, steps, (16, 16)) for view in ("a", "b")], 1)
        assert np.array_equal(cache.read(episode, np.arange(len(steps))).numpy(), wanted)
    with pytest.raises(BadInput, match="no such frames"):
        cache.read(0, np.array([10]))


def test_a_cache_is_built_once_and_an_interrupted_one_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("hostbot.align.cache._FLUSH_EVERY", 2)
    source = FilmSource("robot")
    wanted = build_cache(FilmSource("robot"), tmp_path / "whole", CONFIG)

    class Stops(FilmSource):
        def frames(self, index, *rest):
            if index == 7:
                raise KeyboardInterrupt
            return super().frames(index, *rest)

    with pytest.raises(KeyboardInterrupt):
        build_cache(Stops("robot"), tmp_path / "part", CONFIG)
    ticks = []
    cache = build_cache(source, tmp_path / "part", CONFIG, ticks.append)
    assert ticks[0] == 6
    assert source.reads == len(source) - 6
    assert np.array_equal(cache._map, wanted._map)
    before = source.reads
    build_cache(source, tmp_path / "part", CONFIG)
    assert source.reads == before


def test_frames_held_on_a_device_are_the_same(tmp_path):
    cache = build_cache(FilmSource("robot"), tmp_path, CONFIG)
    steps = np.array([3, 0, 7])
    before = cache.read(2, steps)
    cache.hold(torch.device("cpu"))
    cache._map = cache._map[:0]
    assert torch.equal(cache.read(2, steps), before)


@pytest.mark.parametrize("held", [False, True])
def test_whole_episodes_are_read_at_once_with_their_last_frame_held(tmp_path, held):
    cache = build_cache(FilmSource("robot", views=("a", "b")), tmp_path, CONFIG)
    if held:
        cache.hold(torch.device("cpu"))
    episodes, views = np.array([4, 1]), np.array([[1, 0, 1], [0, 0, 1]])
    found = cache.padded(episodes, 12, views)
    for place, episode in enumerate(episodes):
        whole = cache.whole(episode)
        rows = np.minimum(np.arange(12), len(whole) - 1)
        assert torch.equal(found[place], whole[rows][:, views[place].tolist()])


def test_a_cache_refuses_frames_that_are_not_its_episodes():
    with pytest.raises(BadInput, match=r"5 frames of 1 views, got \[4, 1\]"):
        FrameCache("robot", ("a",), np.array([2, 3]), np.zeros((4, 1, 8, 8, 3), np.uint8))


def test_another_dataset_or_size_gets_a_cache_of_its_own(tmp_path):
    build_cache(FilmSource("robot"), tmp_path, CONFIG)
    build_cache(FilmSource("robot", seed=5), tmp_path, CONFIG)
    build_cache(FilmSource("robot"), tmp_path, CacheConfig(size=8, max_frames=10))
    assert len(list(tmp_path.glob("*/frames.npy"))) == 3


def test_a_dataset_without_video_is_refused(tmp_path):
    with pytest.raises(DataError, match="has no video"):
        build_cache(FilmSource("robot", views=()), tmp_path, CONFIG)


def test_steps_keep_both_ends_the_rate_and_the_limit():
    assert step_frames(5, 30, 30, 100).tolist() == [0, 1, 2, 3, 4]
    assert len(step_frames(300, 30, 15, 1000)) == 150
    found = step_frames(10_000, 30, 30, 64)
    assert len(found) == 64
    assert (found[0], found[-1]) == (0, 9999)
    assert np.ptp(np.diff(found)) <= 1
    assert step_frames(1, 30, 16, 64).tolist() == [0]


def test_a_map_of_steps_becomes_a_monotone_map_of_frames():
    steps = np.array([0, 4, 8])
    found = Correspondence(
        robot_to_demo=np.array([0, 1, 2]),
        demo_to_robot=np.array([0, 1, 2]),
        robot_confidence=np.array([1.0, 0.5, 0.0]),
        demo_confidence=np.ones(3),
        cost=0.5,
    )
    whole = expand(found, np.array([0, 2, 4]), steps, 5, 9)
    assert whole.robot_to_demo.tolist() == [0, 0, 1, 2, 2, 2, 3, 4, 4]
    assert whole.demo_to_robot.tolist() == [0, 2, 4, 6, 8]
    assert whole.robot_confidence[2] == 0.75
    assert clock_map(5, 9).tolist() == [0, 2, 4, 6, 8]


def test_draws_are_functions_of_seed_step_and_slot(tmp_path):
    pairs, again = make_pairs(tmp_path), make_pairs(tmp_path)
    other = make_pairs(tmp_path, seed=1)
    for step, slot in [(0, 0), (3, 1), (3, 2)]:
        assert str(pairs.draw(step, slot)) == str(again.draw(step, slot))
        assert str(pairs.draw(step, slot)) != str(other.draw(step, slot))


def test_processes_that_share_the_slots_see_what_one_would(tmp_path):
    pairs = make_pairs(tmp_path)
    batch = pairs.batch(5, range(4))
    whole = batch.clips
    for share, rows in ((range(2), [0, 1, 4, 5]), (range(2, 4), [2, 3, 6, 7])):
        found = pairs.batch(5, share)
        part = found.clips
        views, steps = part.frames.shape[2], part.picked.shape[1]
        assert torch.equal(found.looks, batch.looks[rows, :views])
        assert torch.equal(found.second, batch.second[rows, :views])
        assert torch.equal(part.riding, whole.riding[rows, :views])
        assert torch.equal(part.picked, whole.picked[rows, :steps])
        assert torch.equal(found.tasks, batch.tasks[share.start : share.stop])
        assert torch.equal(part.lengths, whole.lengths[rows])
        assert torch.equal(part.frames, whole.frames[rows][:, : part.frames.shape[1], :views])


def test_all_kinds_of_pairs_are_drawn_of_one_task_and_never_one_video_with_itself(tmp_path):
    pairs = make_pairs(tmp_path, DrawConfig(human_robot=0.5, human_human=0.2))
    kinds = Counter()
    for slot in range(300):
        task, demo, robot = pairs.draw(0, slot)
        kinds[demo.body, robot.body] += 1
        assert (demo.body, demo.episode) != (robot.body, robot.episode)
        for clip in (demo, robot):
            assert clip.episode in pairs.tasks[task][clip.body]
    assert kinds.keys() == {("human", "robot"), ("human", "human"), ("robot", "robot")}
    assert 120 < kinds["human", "robot"] < 180
    assert 35 < kinds["human", "human"] < 85


def test_the_slots_of_a_step_go_round_the_tasks(tmp_path):
    pairs = make_pairs(tmp_path)
    for step in range(5):
        assert {pairs.draw(step, slot)[0] for slot in range(3)} == set(pairs.names)
    assert len({pairs.draw(step, 0)[0] for step in range(20)}) == 3


def test_the_second_look_is_the_wrist_cameras_or_the_same_view_changed_otherwise(tmp_path):
    pairs = make_pairs(tmp_path, small_draw(outside_only=0.5))
    seen = set()
    for slot in range(60):
        for clip in pairs.draw(0, slot)[1:]:
            seen.add((clip.body, clip.views, clip.second))
            assert len(set(clip.looks)) == len(clip.views)
    twice = (False, True)
    wrists = ("robot", (0, 1, 2), (True, True, False))
    assert seen == {wrists, ("robot", (2, 2), twice), ("human", (0, 0), twice)}


def test_as_in_the_paper_all_views_of_a_clip_look_alike(tmp_path):
    pairs = make_pairs(tmp_path, DrawConfig(outside_only=0.0, human_robot=0.0))
    clip = pairs.draw(0, 0)[1]
    assert clip.views == (0, 1, 2)
    assert len(set(clip.looks)) == 1
    batch = pairs.load([clip], torch.tensor([0]))
    assert batch.clips.riding.tolist() == [[True, True, False]]


def test_robot_pairs_alone_and_human_pairs_alone_are_enough(tmp_path):
    robot, human = FilmSource("robot"), FilmSource("human", per_task=1)
    single = FilmSource("single", per_task=1)
    caches = {n: build_cache(s, tmp_path, CONFIG) for n, s in (("robot", robot), ("human", human))}
    assert Pairs(caches, groups(robot=robot), DrawConfig(), 0).draw(0, 0)[1].body == "robot"
    caches["robot"] = build_cache(single, tmp_path, CONFIG)
    both = Pairs(caches, groups(robot=single, human=human), DrawConfig(human_robot=0.0), 0)
    assert both.draw(0, 0)[1].body == "human"
    with pytest.raises(DataError, match="no task has two executions"):
        Pairs(caches, groups(robot=single), DrawConfig(), 0)


def test_sampling_takes_one_frame_of_every_stretch():
    rng = np.random.default_rng(0)
    assert stratified(5, 8, rng).tolist() == [0, 1, 2, 3, 4]
    for _ in range(50):
        found = stratified(100, 10, rng)
        assert (found // 10).tolist() == list(range(10))


def test_a_look_is_one_change_of_all_frames_of_a_view():
    g = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (2, 3, 2, 8, 8, 3), generator=g, dtype=torch.uint8)
    given = whole_clips(frames, present=torch.tensor([[True, True], [True, False]]))
    plain, other = Look(), Look(red=1.2, green=0.9, blue=0.8, shift=0.1, mirror=-1.0)
    half = Look(scale=0.5, right=-0.5, down=0.5)
    looks = torch.tensor([[astuple(look) for look in pair] for pair in ((plain, other), (half, other))])
    out = applied(given, looks).frames.numpy()
    assert np.array_equal(out[0, :, 0], frames[0, :, 0])
    assert np.array_equal(out[1, :, 1], frames[1, :, 1])  # absent
    mirrored = frames[0, :, 1].numpy()[:, :, ::-1].astype(np.float64) / 255
    wanted = (np.array([1.2, 0.9, 0.8]) * (mirrored - 0.5) + 0.6).clip(0, 1) * 255
    assert np.abs(out[0, :, 1] - wanted).max() <= 0.51
    quarter = frames[1, :, 0, 4:, :4].numpy().astype(np.float64)  # the lower left, drawn out
    inner = out[1, :, 0, 1:-1:2, 1:-1:2].astype(np.float64)
    wanted = 0.75 * (0.75 * quarter[:, :-1, :-1] + 0.25 * quarter[:, :-1, 1:])
    wanted += 0.25 * (0.75 * quarter[:, 1:, :-1] + 0.25 * quarter[:, 1:, 1:])
    assert np.abs(inner - wanted).max() <= 0.51


def test_looks_stay_within_their_ranges():
    rng = np.random.default_rng(0)
    config = LookConfig(flip=0.5, brightness=0.1, contrast=0.2, tint=0.1, crop=0.3)
    drawn = [draw_look(config, rng) for _ in range(300)]
    assert 100 < sum(look.mirror < 0 for look in drawn) < 200
    for look in drawn:
        assert abs(look.shift) <= 0.1
        assert (
            0.8 * 0.9
            <= min(look.red, look.green, look.blue)
            <= max(look.red, look.green, look.blue)
            <= 1.2 * 1.1
        )
        assert 0.7 <= look.scale <= 1
        assert max(abs(look.right), abs(look.down)) <= 1 - look.scale  # the part lies within the picture
    nothing = LookConfig(flip=0, brightness=0, contrast=0)
    assert draw_look(nothing, rng) == Look()


def test_draw_settings_that_make_no_sense_are_refused():
    too_much = {"human_robot": 0.7, "human_human": 0.7}
    for bad in ({"outside_only": 1.5}, {"max_steps": 1}, {"human_robot": -0.1}, too_much):
        with pytest.raises(BadInput):
            DrawConfig(**bad)
    for bad in ({"flip": 1.5}, {"crop": 1.0}, {"tint": -0.1}):
        with pytest.raises(BadInput):
            LookConfig(**bad)

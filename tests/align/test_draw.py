"""Cache and pairs: decoded once, drawn by number, recoloured clip by clip."""

import numpy as np
import pytest
import torch

from hostbot.align.cache import CacheConfig, build_cache
from hostbot.align.draw import DrawConfig, Pairs, recolour, stratified
from hostbot.align.encoders import Clips
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
    (cache.folder / "frames.npy").unlink()
    cache._map = cache._map[:0]
    assert torch.equal(cache.read(2, steps), before)


def test_another_dataset_or_size_gets_a_cache_of_its_own(tmp_path):
    one = build_cache(FilmSource("robot"), tmp_path, CONFIG)
    other = build_cache(FilmSource("robot", seed=5), tmp_path, CONFIG)
    smaller = build_cache(FilmSource("robot"), tmp_path, CacheConfig(size=8, max_frames=10))
    assert len({one.folder, other.folder, smaller.folder}) == 3


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
    whole, looks = batch.clips, batch.looks
    for share, rows in ((range(2), [0, 1, 4, 5]), (range(2, 4), [2, 3, 6, 7])):
        found = pairs.batch(5, share)
        part = found.clips
        assert torch.equal(found.looks, looks[rows])
        assert torch.equal(found.tasks, batch.tasks[share.start : share.stop])
        assert torch.equal(part.lengths, whole.lengths[rows])
        steps, views = part.frames.shape[1:3]
        assert torch.equal(part.frames, whole.frames[rows][:, :steps, :views])


def test_both_kinds_of_pairs_are_drawn_of_one_task_and_never_one_video_with_itself(tmp_path):
    pairs = make_pairs(tmp_path)
    kinds = {"human": 0, "robot": 0}
    for slot in range(300):
        task, demo, robot = pairs.draw(0, slot)
        kinds[demo.body] += 1
        assert robot.body == "robot"
        assert (demo.body, demo.episode) != (robot.body, robot.episode)
        for clip in (demo, robot):
            assert clip.episode in pairs.tasks[task][clip.body]
    assert 110 < kinds["human"] < 190


def test_view_dropout_leaves_at_least_one_view(tmp_path):
    pairs = make_pairs(tmp_path, DrawConfig(view_dropout=1.0))
    kept = [pairs.draw(0, slot)[2].views for slot in range(60)]
    assert {len(k) for k in kept} == {1, 2}
    assert {v for k in kept for v in k} == {0, 1, 2}


def test_robot_pairs_alone_and_human_pairs_alone_are_enough(tmp_path):
    robot, human = FilmSource("robot"), FilmSource("human", per_task=1)
    single = FilmSource("single", per_task=1)
    caches = {n: build_cache(s, tmp_path, CONFIG) for n, s in (("robot", robot), ("human", human))}
    assert Pairs(caches, groups(robot=robot), DrawConfig(), 0).draw(0, 0)[1].body == "robot"
    caches["robot"] = build_cache(single, tmp_path, CONFIG)
    both = Pairs(caches, groups(robot=single, human=human), DrawConfig(human_share=0.0), 0)
    assert both.draw(0, 0)[1].body == "human"
    with pytest.raises(DataError, match="no task has two executions"):
        Pairs(caches, groups(robot=single), DrawConfig(), 0)


def test_sampling_takes_one_frame_of_every_stretch():
    rng = np.random.default_rng(0)
    assert stratified(5, 8, rng).tolist() == [0, 1, 2, 3, 4]
    for _ in range(50):
        found = stratified(100, 10, rng)
        assert (found // 10).tolist() == list(range(10))


def test_recolouring_is_one_look_a_clip():
    g = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (2, 3, 2, 4, 4, 3), generator=g, dtype=torch.uint8)
    given = Clips(frames=frames, present=torch.ones(2, 2, dtype=torch.bool), lengths=torch.tensor([3, 3]))
    out = recolour(given, torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.8, 1.2]])).frames
    assert torch.equal(out[0], frames[0])
    for step in range(3):
        for view in range(2):
            picture = np.clip(frames[1, step, view].numpy()[:, ::-1].astype(np.float64) * 0.8, 0, 255)
            grey = (picture @ [0.299, 0.587, 0.114]).mean()
            wanted = np.clip(1.2 * picture - 0.2 * grey, 0, 255)
            assert np.abs(out[1, step, view].numpy() - wanted).max() <= 0.51


def test_draw_settings_that_make_no_sense_are_refused():
    for bad in ({"flip": 1.5}, {"max_steps": 1}, {"human_share": -0.1}):
        with pytest.raises(BadInput):
            DrawConfig(**bad)

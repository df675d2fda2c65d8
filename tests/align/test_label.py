"""Labels: shards, resuming, reasons, reading back; and the aligner's own files."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import torch

from hostbot.align.aligner import Aligner, AlignerConfig, Alignment, load_aligner, save_aligner
from hostbot.align.calibrate import Summaries, _wrong, calibrate, fold_of, folds_of, summaries_of
from hostbot.align.company import STEPS, kept_steps
from hostbot.align.confidence import FEATURES, fit_both
from hostbot.align.draw import Pairs
from hostbot.align.hands import HandsConfig
from hostbot.align.label import LabelConfig, label, parts_of_shard, reason_against
from hostbot.align.labels import Labels, summary
from hostbot.align.likeness import learn_likeness
from hostbot.align.posture import POSTURE
from hostbot.align.qwen import QwenConfig, QwenFrameEncoder
from hostbot.align.small import SmallConfig, SmallFrameEncoder
from hostbot.align.videos import align_whole, embed_episode, embed_video, played_in_step
from hostbot.types import BadInput, Correspondence, DataError
from tests.align import tiny_qwen
from tests.align.fakes import FilmSource
from tests.align.test_likeness import QUICK
from tests.align.training import make_pairs
from tests.clips import encode

CONFIG = LabelConfig(pairs_a_part=4, min_confidence=0.0)


@pytest.fixture(scope="module")
def sources():
    return FilmSource("robot", views=("a", "b"), seed=1), FilmSource("human", seed=2)


@pytest.fixture(scope="module")
def pairs(sources):
    return [(r, d) for t in range(3) for r in range(4 * t, 4 * t + 4) for d in range(4 * t, 4 * t + 2)]


def files(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_labels_are_the_aligner_s_own_and_read_back_whole(aligner, sources, pairs, tmp_path):
    report = label(aligner, *sources, pairs, tmp_path / "l", CONFIG)
    assert (report.num_pairs, report.num_done) == (24, 24)
    labels = Labels(tmp_path / "l")
    assert len(labels) == report.num_kept == 24 - sum(report.left_out.values())
    for robot, demo in labels.pairs():
        wanted = align_whole(
            aligner, embed_episode(aligner, sources[1], demo), embed_episode(aligner, sources[0], robot)
        ).found
        found = labels.correspondence(robot, demo)
        assert np.array_equal(found.robot_to_demo, wanted.robot_to_demo)
        assert np.array_equal(found.demo_to_robot, wanted.demo_to_robot)
        np.testing.assert_allclose(found.robot_confidence, wanted.robot_confidence, atol=1e-6)
        np.testing.assert_allclose(found.demo_confidence, wanted.demo_confidence, atol=1e-6)
        assert found.cost == pytest.approx(wanted.cost, rel=1e-6)
        assert len(found.robot_to_demo) == sources[0].episode(robot).length
        assert len(found.demo_to_robot) == sources[1].episode(demo).length
    with pytest.raises(DataError, match="no reliable label of robot episode 0 with demonstration 11"):
        labels.correspondence(0, 11)


def test_shards_together_are_the_whole(aligner, sources, pairs, tmp_path):
    label(aligner, *sources, pairs, tmp_path / "whole", CONFIG)
    for index in (2, 0):
        report = label(aligner, *sources, pairs, tmp_path / "parts", CONFIG, shard=(index, 3))
    assert report.num_done == 16
    with pytest.raises(DataError, match="16 of 24 pairs"):
        Labels(tmp_path / "parts")
    label(aligner, *sources, pairs, tmp_path / "parts", CONFIG, shard=(1, 3))
    assert files(tmp_path / "whole") == files(tmp_path / "parts")


def test_an_interrupted_run_goes_on_without_doing_anything_twice(aligner, sources, pairs, tmp_path):
    label(aligner, *sources, pairs, tmp_path / "whole", CONFIG)
    done = []

    def tick(steps):
        done.append(steps)
        if len(done) == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label(aligner, *sources, pairs, tmp_path / "part", CONFIG, tick=tick)
    assert sorted(p.name for p in (tmp_path / "part").iterdir()) == [
        "alignment.json",
        "part-000000.parquet",
        "part-000001.parquet",
    ]
    again = []
    label(aligner, *sources, pairs, tmp_path / "part", CONFIG, tick=again.append)
    assert again[:2] == [4, 4]
    assert again[2:] == [1] * 16
    assert files(tmp_path / "whole") == files(tmp_path / "part")


def test_labels_of_another_aligner_or_other_pairs_are_not_mixed(aligner, sources, pairs, tmp_path):
    label(aligner, *sources, pairs, tmp_path, CONFIG)
    with pytest.raises(DataError, match="another pairs"):
        label(aligner, *sources, pairs[1:] + pairs[:1], tmp_path, CONFIG)
    other = Aligner(aligner.encoder, dataclasses.replace(aligner.config, rate_hz=8.0))
    with pytest.raises(DataError, match="another aligner"):
        label(other, *sources, pairs, tmp_path, CONFIG)
    with pytest.raises(DataError, match="nothing to label"):
        label(aligner, *sources, [], tmp_path, CONFIG)
    part = next(tmp_path.glob("part-*"))
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(DataError, match="remove it and label again"):
        summary(tmp_path)


def test_shards_cover_every_part_once():
    config = LabelConfig(pairs_a_part=10)
    for total in (1, 3, 7, 20):
        found = [p for i in range(total) for p in parts_of_shard(95, config, (i, total))]
        assert found == list(range(10))
    with pytest.raises(BadInput, match="shard 4 of 3"):
        parts_of_shard(95, config, (3, 3))


def made(robot_to_demo, num_demo, confidence=0.9, cost=1.0):
    maps = Correspondence(
        robot_to_demo=np.array(robot_to_demo),
        demo_to_robot=np.zeros(num_demo, int),
        robot_confidence=np.ones(len(robot_to_demo)),
        demo_confidence=np.ones(num_demo),
        cost=cost,
    )
    return Alignment(found=maps, confidence=confidence)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (made(range(10), 10), ""),
        (made(range(10), 10, confidence=0.3), "confidence too low"),
        (made(range(10), 10, cost=3.0), "path cost too high"),
        (made([0] + [5] * 9, 10), "stays on one demo frame"),
        (made([0, 1], 50), "lengths too different"),
    ],
)
def test_unreliable_pairs_are_left_out_for_a_reason(found, reason):
    assert reason_against(found, LabelConfig(max_cost=2.0), 0.5) == reason


def test_reasons_are_counted_and_their_maps_not_kept(aligner, sources, pairs, tmp_path):
    report = label(aligner, *sources, pairs, tmp_path, LabelConfig(min_confidence=1.1))
    assert report.left_out == {"confidence too low": 24}
    assert (report.num_done, report.num_kept, len(Labels(tmp_path))) == (24, 0, 0)


def test_played_in_step_shows_every_frame_of_both_and_never_steps_back(aligner):
    rng = np.random.default_rng(0)
    for _ in range(200):
        num_robot, num_demo = rng.integers(1, 12, 2)
        maps = np.sort(rng.integers(0, num_demo, num_robot)), np.sort(rng.integers(0, num_robot, num_demo))
        found = Correspondence(
            robot_to_demo=maps[0],
            demo_to_robot=maps[1],
            robot_confidence=np.ones(num_robot),
            demo_confidence=np.ones(num_demo),
            cost=0.0,
        )
        shown = np.array(list(played_in_step(found)))
        assert (np.diff(shown, axis=0) >= 0).all()
        assert set(shown[:, 0]) == set(range(num_demo))
        assert set(shown[:, 1]) == set(range(num_robot))


def test_a_video_with_itself_is_its_own_map_and_its_reverse_is_less_sure(aligner, tmp_path):
    path = encode(tmp_path / "v.mp4", "libx264", num_frames=50)
    video = embed_video(aligner, path)
    assert (video.num_frames, len(video.steps)) == (50, 28)  # 30 Hz seen at 16, and the last frame
    found = align_whole(aligner, video, video)
    at_steps = found.found.robot_to_demo[video.steps]
    assert np.abs(at_steps - video.steps).max() <= 2
    turned = dataclasses.replace(video, points=np.ascontiguousarray(video.points[::-1]))
    assert found.confidence > align_whole(aligner, turned, video).confidence


def test_an_episode_backwards_is_that_of_its_frames_turned_round(aligner):
    source = FilmSource("robot", views=("third_person", "left_wrist"))
    length = source.episode(3).length
    views = {view: source.frames(3, view, range(length), (32, 32))[::-1].copy() for view in source.views}
    found = embed_episode(aligner, source, 3, backwards=True)
    np.testing.assert_allclose(found.points, aligner.embed(views), atol=1e-6)
    assert found.steps.tolist() == list(range(length))


def test_a_varying_rate_is_seen_by_the_clock(aligner, tmp_path):
    """Frames that come ten at once are one step, not ten."""
    pts = [*range(10), *range(300, 1500, 100)]
    path = encode(tmp_path / "v.mp4", "libx264", num_frames=22, pts=pts, time_base=Fraction(1, 1000))
    video = embed_video(aligner, path)
    assert np.allclose(video.times_s, np.array(pts) / 1000, atol=2e-3)
    assert (video.steps < 10).sum() <= 2
    assert set(range(10, 22)) <= set(video.steps.tolist())


def test_long_videos_are_thinned_and_mapped_whole(aligner, tmp_path):
    path = encode(tmp_path / "v.mp4", "libx264", num_frames=200, size=(32, 32))
    video = embed_video(aligner, path)
    assert len(video.steps) == 64
    found = align_whole(aligner, video, video).found
    assert len(found.robot_to_demo) == 200
    with pytest.raises(BadInput, match="has 1 frame"):
        embed_video(aligner, encode(tmp_path / "one.mp4", "libx264", num_frames=1))


def test_weights_round_trip_through_half_precision(aligner, weights):
    back = load_aligner(weights)
    assert back.config == aligner.config
    for name, tensor in aligner.encoder.state_dict().items():
        assert torch.equal(back.encoder.state_dict()[name], tensor.half().float())
    frames = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    np.testing.assert_allclose(back.embed({"v": frames}), aligner.embed({"v": frames}), atol=5e-3)


def test_damaged_and_missing_weights_are_refused(aligner, tmp_path, monkeypatch):
    monkeypatch.setattr("hostbot.align.aligner.SHIPPED", tmp_path / "none.json")
    with pytest.raises(BadInput, match="weights of this package are missing"):
        load_aligner()
    with pytest.raises(BadInput, match="does not exist"):
        load_aligner(tmp_path / "other.json")
    path = tmp_path / "align.json"
    save_aligner(aligner.encoder, aligner.config, path)
    assert load_aligner(tmp_path).config == aligner.config
    file = path.with_suffix(".safetensors")
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(BadInput, match="bytes, not the"):
        load_aligner(path)
    path.write_text("[]")
    with pytest.raises(BadInput, match="no alignment weights of format"):
        load_aligner(path)


def test_views_of_different_lengths_are_refused(aligner):
    frames = np.zeros((5, 32, 32, 3), np.uint8)
    with pytest.raises(BadInput, match="one length above 0"):
        aligner.embed({"a": frames, "b": frames[:3]})


def test_a_fine_tuned_qwen_is_whole_without_the_folder_it_came_from(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    tiny_qwen.write(base)
    config = AlignerConfig(encoder=QwenConfig(folder=str(base), size=32, embedding=8))
    encoder = QwenFrameEncoder(config.encoder).eval()
    save_aligner(encoder, config, tmp_path / "out" / "align.json")
    for file in base.iterdir():
        file.unlink()
    back = load_aligner(tmp_path / "out" / "align.json")
    frames = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    wanted = Aligner(encoder, config).embed({"v": frames})
    assert (np.sum(back.embed({"v": frames}) * wanted, 1) > 0.99).all()


def test_calibration_learns_from_pairs_that_are_not_augmented(aligner, tmp_path):
    pairs = make_pairs(tmp_path)
    found = calibrate(aligner, pairs, num=12)
    assert found is not None
    assert found.company is None
    assert np.isfinite([*found.calibration.weights, found.calibration.bias]).all()
    one_task = Pairs(pairs.caches, dict(list(pairs.tasks.items())[:1]), pairs.config, 0)
    assert calibrate(aligner, one_task, num=4) is None


def test_enough_tasks_keep_company_and_the_weights_carry_it(aligner, tmp_path):
    pairs = make_pairs(tmp_path, num_tasks=9)
    found = calibrate(aligner, pairs, num=18)
    assert found is not None
    assert found.company is not None
    assert found.company.demos.shape == found.company.robots.shape == (9, STEPS, 16)
    assert len(found.calibration.weights) == len(FEATURES[:4])
    whole = found.of(aligner)
    save_aligner(whole.encoder, whole.config, tmp_path / "align.json", company=whole.company)
    back = load_aligner(tmp_path / "align.json")
    assert back.company is not None
    np.testing.assert_allclose(back.company.demos, found.company.demos, atol=1e-3)
    np.testing.assert_allclose(back.company.robots, found.company.robots, atol=1e-3)
    demo, robot = (kept_steps(videos[0]) for videos in (found.company.demos, found.company.robots))
    assert back.align(demo, robot).confidence == pytest.approx(whole.align(demo, robot).confidence, abs=0.02)
    assert len({aligner.identity, whole.identity}) == 2
    alone = Aligner(whole.encoder, whole.config)
    with pytest.raises(BadInput, match="calibration of 4 features was given 3"):
        alone.align(demo, robot)


def test_company_is_of_looks_and_likeness_of_points_where_points_tell_more(tmp_path):
    torch.manual_seed(0)
    encoder = SmallFrameEncoder(
        SmallConfig(size=32, width=4, offsets=(-1, 0, 1), embedding=16, hands=HandsConfig(side=16))
    )
    close = Aligner(encoder, AlignerConfig(encoder=encoder.config))
    pairs = make_pairs(tmp_path, num_tasks=9)
    summaries = summaries_of(close, pairs, per_task=1)
    assert summaries.demos.shape == (9, 3 * (16 + 2 * len(POSTURE)))
    found = calibrate(close, pairs, num=18, summaries=summaries)
    whole = found.of(close)
    assert found.company.demos.shape == (9, STEPS, 16)
    assert found.company.maps.shape[2] == summaries.demos.shape[1] + 1
    demo = whole.embed({"third_person": pairs.caches["human"].whole(0)[:, 0].numpy()})
    assert demo.shape[1] == 16 + 2 * len(POSTURE)
    assert whole.looks(demo).shape == (len(demo), 16)
    np.testing.assert_allclose(np.linalg.norm(whole.looks(demo), axis=1), 1, atol=1e-5)
    assert 0 <= whole.align(demo, demo).confidence <= 1


def test_likeness_is_calibrated_on_tasks_it_was_not_learned_from_and_the_weights_carry_it(
    aligner, tmp_path, monkeypatch
):
    pairs = make_pairs(tmp_path, num_tasks=9)
    summaries = summaries_of(aligner, pairs, per_task=2)
    assert summaries.tasks == tuple(name for name in pairs.names for _ in range(2))
    asked = []
    monkeypatch.setattr(
        "hostbot.align.calibrate.learn_likeness",
        lambda demos, robots, tasks: asked.append(set(tasks)) or learn_likeness(demos, robots, tasks, QUICK),
    )
    found = calibrate(aligner, pairs, num=18, summaries=summaries)
    assert found is not None
    assert found.company is not None
    folds = [{k for k, name in enumerate(sorted(pairs.names)) if fold_of(name, 2) != fold} for fold in (0, 1)]
    assert asked == [*folds, set(range(9))]
    assert len(found.calibration.weights) == len(FEATURES)
    whole = found.of(aligner)
    save_aligner(whole.encoder, whole.config, tmp_path / "align.json", company=whole.company)
    back = load_aligner(tmp_path / "align.json")
    assert back.company is not None
    np.testing.assert_allclose(back.company.maps, found.company.maps, rtol=1e-2, atol=1e-2)
    demo, robot = (kept_steps(videos[0]) for videos in (found.company.demos, found.company.robots))
    assert back.align(demo, robot).confidence == pytest.approx(whole.align(demo, robot).confidence, abs=0.05)


def test_many_tasks_are_in_more_folds():
    names = [f"task {k}" for k in range(60)]
    assert folds_of(names[:39] * 3) == 2
    assert folds_of(names) == 5
    assert Summaries(tasks=tuple(names), demos=np.zeros((60, 3)), robots=np.zeros((60, 3))).folds == 5
    assert {fold_of(name, 5) for name in names} == set(range(5))


def test_every_demonstration_is_matched_with_a_few_other_tasks_of_its_fold(aligner, tmp_path, monkeypatch):
    pairs = make_pairs(tmp_path, num_tasks=9)
    kinds = {}
    monkeypatch.setattr(
        "hostbot.align.calibrate.fit_both",
        lambda *given: (
            kinds.update(zip(("same", "others", "backwards"), map(len, given), strict=True))
            or fit_both(*given)
        ),
    )
    assert calibrate(aligner, pairs, num=12) is not None
    assert kinds == {"same": 12, "others": 48, "backwards": 12}
    drawn = [(name, None, name.upper()) for name in [*"abcdefgh"] * 2]
    for task in "abcdefgh":
        found = _wrong(task, drawn, 2)
        assert len(found) == len(dict(found)) <= 4
        assert all(name != task and robot == name.upper() for name, robot in found)
        assert {fold_of(name, 2) for name, _ in found} == {fold_of(task, 2)}
    assert _wrong("a", drawn[3:5], 2) == [("d", "D"), ("e", "E")]  # its fold has no other


def test_likeness_needs_tasks_with_both_bodies_in_both_folds(aligner, tmp_path):
    """Else a long run would end in an error instead of weights."""
    pairs = make_pairs(tmp_path, num_tasks=9)
    told = []
    assert summaries_of(aligner, pairs, per_task=1, tick=lambda *now: told.append(now)) is not None
    assert told == [(1, 9)] * 9
    nobody = {task: {**bodies, "human": []} for task, bodies in pairs.tasks.items()}
    assert summaries_of(aligner, Pairs(pairs.caches, nobody, pairs.config, 0)) is None
    names = [name for name in (f"task {k}" for k in range(40)) if fold_of(name, 2) == 0][:8]
    one_fold = {name: next(iter(pairs.tasks.values())) for name in names}
    assert summaries_of(aligner, Pairs(pairs.caches, one_fold, pairs.config, 0)) is None

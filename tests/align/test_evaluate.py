"""Figures against oracles: scipy's tau, a counted AUROC, the bench's own truth, clocks."""

import itertools

import numpy as np
import pytest
from scipy.stats import kendalltau

from hostbot.align.company import STEPS, Company, kept_steps, margin
from hostbot.align.confidence import Curve, auroc, confidence, features, fit, fit_both
from hostbot.align.evaluate import (
    PairScores,
    Truth,
    clock_event_error,
    event_error,
    kendall_tau,
    nearest,
    phase_r2,
    table,
)
from hostbot.align.report import EvalPair, evaluate
from hostbot.sim.progress import clock_error, correspondence, knots, progress
from hostbot.types import BadInput, Correspondence, Event
from tests.align.fakes import FilmSource

ROBOT = [Event(name=n, frame=f) for n, f in (("approach", 5), ("grasp", 12), ("lift", 30))]
DEMO = [Event(name=n, frame=f) for n, f in (("approach", 20), ("grasp", 33), ("lift", 41))]


def bench_truth(robot=ROBOT, demo=DEMO, num_robot=40, num_demo=60):
    ours, theirs = progress(robot, demo, num_robot, num_demo)
    inner = knots(robot, demo, num_robot, num_demo)[0][1:-1].astype(int)
    return Truth(robot_progress=ours, demo_progress=theirs, robot_events=inner)


def test_the_true_map_has_no_error_and_the_clock_that_of_the_bench():
    true_map = correspondence(ROBOT, DEMO, 40, 60).robot_to_demo
    assert event_error(true_map, bench_truth()) == pytest.approx(0.0, abs=1e-12)
    assert clock_event_error(bench_truth()) == pytest.approx(clock_error(ROBOT, DEMO, 40, 60))
    assert clock_event_error(bench_truth()) > 0.1


def test_an_error_is_as_large_as_the_map_is_wrong():
    truth = bench_truth()
    late = np.minimum(correspondence(ROBOT, DEMO, 40, 60).robot_to_demo + 3, 59)
    by_hand = [abs(truth.robot_progress[f] - truth.demo_progress[late[f]]) for f in (5, 12, 30)]
    assert event_error(late, truth) == pytest.approx(np.mean(by_hand))
    with pytest.raises(BadInput, match="a map of 39 frames, but truth of 40"):
        event_error(late[:-1], truth)


def test_without_events_there_is_no_error_to_tell():
    assert np.isnan(event_error(np.arange(40), bench_truth(robot=[], demo=[])))


@pytest.mark.parametrize("seed", range(5))
def test_tau_is_scipy_s_where_there_are_no_ties(seed):
    order = np.random.default_rng(seed).permutation(30)
    assert kendall_tau(order) == pytest.approx(kendalltau(np.arange(30), order).statistic)


def test_tau_of_a_collapsed_map_is_zero_and_of_a_reversed_one_minus_one():
    assert kendall_tau(np.zeros(10, int)) == 0.0
    assert kendall_tau(np.arange(10)[::-1]) == -1.0
    assert np.isnan(kendall_tau(np.zeros(1, int)))


def test_nearest_neighbours_are_the_closest_points():
    rng = np.random.default_rng(0)
    demo, robot = (
        x / np.linalg.norm(x, axis=1, keepdims=True)
        for x in (rng.normal(size=(9, 4)), rng.normal(size=(7, 4)))
    )
    wanted = [min(range(9), key=lambda i: np.linalg.norm(demo[i] - r)) for r in robot]
    assert nearest(demo, robot).tolist() == wanted


def test_phase_progression_is_one_for_what_is_linear_and_none_for_noise():
    rng = np.random.default_rng(0)
    way = rng.normal(size=5)
    videos = []
    for n in (40, 60, 50, 30):
        p = np.linspace(0, 1, n) ** 2
        videos.append((np.outer(p, way) + 0.3, p))
    assert phase_r2(videos[:2], videos[2:]) > 0.99
    noise = [(rng.normal(size=(len(p), 5)), p) for _, p in videos]
    assert phase_r2(noise[:2], noise[2:]) < 0.2
    with pytest.raises(BadInput, match="got 0 and 1"):
        phase_r2([], videos[:1])


@pytest.mark.parametrize("seed", range(5))
def test_auroc_is_the_share_of_pairs_in_order(seed):
    rng = np.random.default_rng(seed)
    positive, negative = rng.integers(0, 6, 17), rng.integers(0, 5, 23)
    counted = [1.0 if p > n else 0.5 if p == n else 0.0 for p, n in itertools.product(positive, negative)]
    assert auroc(positive, negative) == pytest.approx(np.mean(counted))
    with pytest.raises(BadInput, match="both kinds"):
        auroc([], [1.0])


def test_a_calibration_tells_what_its_features_tell():
    rng = np.random.default_rng(0)
    same = rng.random(400) < 0.5
    values = rng.normal(size=(400, 3)) * [0.1, 2.0, 0.2]
    values[:, 0] += np.where(same, 0.8, 0.4)
    found = fit(values, same)
    p = found.probability(values)
    assert auroc(p[same], p[~same]) > 0.98
    assert ((p > 0.5) == same).mean() > 0.95
    assert confidence(values[0], found) == pytest.approx(p[0])
    assert confidence(np.array([0.7, 9.0, 0.1]), None) == pytest.approx(0.7)
    few = np.concatenate([np.flatnonzero(same)[:20], np.flatnonzero(~same)])
    rare = fit(values[few], same[few]).probability(
        values
    )  # both kinds count the same, however many there are of each
    assert abs((rare[same] > 0.5).mean() - (rare[~same] < 0.5).mean()) < 0.1
    with pytest.raises(BadInput, match="one task and of different tasks"):
        fit(values, np.ones(400, bool))


def test_tasks_and_directions_have_a_curve_each():
    """Backwards videos of the right task and forward ones of a wrong task are unlikely, each by its own feature."""
    rng = np.random.default_rng(0)

    def pairs(task, direction):
        return rng.normal([task, direction], 0.4, (300, 2))

    same, others, backwards = pairs(1, 1), pairs(-1, 1), pairs(1, -1)
    found = fit_both(same, others, backwards)
    right, wrong, reverse = (found.probability(values) for values in (same, others, backwards))
    assert auroc(right.tolist(), wrong.tolist()) > 0.99
    assert auroc(right.tolist(), reverse.tolist()) > 0.99
    assert abs(found.weights[0]) > 5 * abs(found.weights[1])
    assert found.direction is not None
    assert abs(found.direction.weights[1]) > 5 * abs(found.direction.weights[0])
    one = pairs(1, 1)[:1]
    assert found.probability(one) == pytest.approx(
        Curve(weights=found.weights, bias=found.bias).probability(one) * found.direction.probability(one)
    )


def test_features_are_means_over_both_maps():
    demo, robot = np.eye(3)[[0, 1, 2]], np.eye(3)[[0, 0, 2, 1]]
    found = Correspondence(
        robot_to_demo=np.array([0, 0, 2, 2]),
        demo_to_robot=np.array([0, 1, 2]),
        robot_confidence=np.full(4, 0.5),
        demo_confidence=np.full(3, 1.0),
        cost=0.25,
    )
    np.testing.assert_allclose(features(demo, robot, found), [0.5 * (3 / 4 + 2 / 3), 0.25, 0.75])


def test_the_table_has_a_row_a_group_and_one_for_all():
    scores = [
        PairScores(group=g, aligned=a, clock=c, tau=t)
        for g, a, c, t in [("b", 0.2, 0.4, 1.0), ("a", 0.1, 0.1, 0.5), ("b", 0.4, 0.2, float("nan"))]
    ]
    rows = table(scores)
    assert [r[:2] for r in rows] == [("a", 1), ("b", 2), ("all", 3)]
    assert rows[1][2:] == pytest.approx((0.3, 0.3, 1.0))
    assert table([]) == []


class Seeing:
    """An encoder's stand-in that knows where the blob is: what a perfect aligner would give."""

    size = 16

    def __init__(self, aligner, blind=False):
        self.config, self.blind, self._align = aligner.config, blind, aligner.align

    def embed(self, views):
        frames = next(iter(views.values())).astype(float)
        blob = (frames.max(-1) > 120)[..., None]
        colour = (frames * blob).sum((1, 2)) / np.maximum(1, blob.sum((1, 2)))
        across = (
            (blob[..., 0] * np.arange(self.size)).sum((1, 2)) / np.maximum(1, blob.sum((1, 2, 3))) / self.size
        )
        spread = np.exp(-np.square(across[:, None] - np.linspace(0, 1, 20)) / 0.01)
        points = np.concatenate([spread, colour / 255], 1) if not self.blind else np.ones((len(frames), 4))
        return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)

    def align(self, demo, robot):
        return self._align(demo, robot)


def test_an_evaluation_ranks_a_seeing_aligner_above_the_clock_and_a_blind_one_below(aligner):
    robot = FilmSource("robot", seed=1, lengths=(25, 40))
    demo = FilmSource("human", seed=2, lengths=(40, 60))
    pairs = [
        EvalPair(task=str(t), group="film", robot=4 * t + k, demo=4 * t + k, wrong_demo=(4 * t + 4) % 12)
        for t in range(3)
        for k in range(2)
    ]

    def truth_of(pair):
        ours, theirs = robot.data[pair.robot][1], demo.data[pair.demo][1]
        events = np.array([e.frame for e in robot.events(pair.robot)])
        return Truth(robot_progress=ours, demo_progress=theirs, robot_events=events)

    good = evaluate(Seeing(aligner), robot, demo, pairs, truth_of)
    blind = evaluate(Seeing(aligner, blind=True), robot, demo, pairs, truth_of)
    figures = good.figures()
    assert figures["event_error"]["mean"] < 0.05 < figures["event_error_clock"]["mean"]
    assert figures["auroc_wrong_task"] == 1.0
    assert figures["backwards_told_apart"] == 1.0
    assert figures["kendall_tau"]["mean"] > 0.8
    assert figures["phase_r2"] > figures["phase_r2_clock"]
    assert blind.figures()["auroc_wrong_task"] == 0.5
    assert blind.figures()["event_error"]["mean"] > figures["event_error"]["mean"]


def test_margin_is_closeness_beyond_the_nearest_company_of_the_other_kind():
    axes = np.eye(8, dtype=np.float32)
    demo, robot = axes[[0, 1]], axes[[0, 1, 2]]
    near = np.float32([0.9] * 5 + [0.1])[:, None, None]
    company = Company(robots=near * axes[[0, 1]][None], demos=np.tile(axes[[7]], (6, 2, 1)))
    # Both demo steps are found in the robot, two robot steps of three in the demo; the five nearest robots are at 0.9.
    assert margin(demo, robot, company) == pytest.approx(0.5 * ((1 - 0.9) + (2 / 3 - 0)))
    left = company.only(np.arange(6) == 5)
    assert margin(demo, robot, left) == pytest.approx(0.5 * ((1 - 0.1) + (2 / 3 - 0)))
    assert features(demo, robot, _found(), company)[3] == pytest.approx(margin(demo, robot, company))
    with pytest.raises(BadInput, match="as many demos as robots"):
        Company(robots=company.robots, demos=company.demos[:2])


def test_company_keeps_both_ends_of_a_video():
    video = np.arange(40, dtype=np.float32)[:, None]
    assert kept_steps(video)[[0, -1], 0].tolist() == [0, 39]
    assert kept_steps(video[:3]).shape == (STEPS, 1)


def _found():
    return Correspondence(
        robot_to_demo=np.array([0, 1, 1]),
        demo_to_robot=np.array([0, 1]),
        robot_confidence=np.ones(3),
        demo_confidence=np.ones(2),
        cost=0.0,
    )

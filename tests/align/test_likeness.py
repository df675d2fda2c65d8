"""Likeness: whole videos of one task are told from those of others, tasks that were never learned among them."""

import numpy as np
import pytest

from hostbot.align.company import Company
from hostbot.align.confidence import FEATURES, auroc, features
from hostbot.align.likeness import LikenessConfig, learn_likeness, likeness, summary
from hostbot.types import BadInput, Correspondence

QUICK = LikenessConfig(steps=60, width=8)


def videos(num_tasks, each, seed, d=12):
    """Points whose middle holds the task in a few directions, and much else in the others; bodies differ by a turn."""
    rng, world = np.random.default_rng(seed), np.random.default_rng(0)
    turn = np.linalg.qr(world.normal(size=(d, d)))[0]
    found = []
    for task in range(num_tasks):
        meaning = rng.normal(size=4)
        for _ in range(each):
            pair = [
                np.concatenate([meaning + 0.2 * rng.normal(size=4), 3 * rng.normal(size=d - 4)]) for _ in "ab"
            ]
            steps = [middle + 0.5 * rng.normal(size=(9, d)) for middle in pair]
            found.append((task, steps[0].astype(np.float32), (steps[1] @ turn).astype(np.float32)))
    return found


def learned(pairs, config):
    tasks, demos, robots = zip(*pairs, strict=True)
    return learn_likeness(
        np.stack([summary(v) for v in demos]),
        np.stack([summary(v) for v in robots]),
        np.array(tasks),
        config,
    )


def test_tasks_that_were_not_learned_are_told_apart():
    maps = learned(videos(40, 4, seed=1), LikenessConfig(steps=300, width=8, dropout=0.1, learning_rate=1e-2))
    new = videos(30, 1, seed=2)
    table = np.array([[likeness(demo, robot, maps) for _, _, robot in new] for _, demo, _ in new])
    same = np.eye(30, dtype=bool)
    assert auroc(table[same].tolist(), table[~same].tolist()) > 0.9
    plain = np.array([[summary(d)[:12] @ summary(r)[:12] for _, _, r in new] for _, d, _ in new])
    assert auroc(plain[same].tolist(), plain[~same].tolist()) < 0.7


def test_likeness_is_the_cosine_of_two_affine_maps():
    rng = np.random.default_rng(0)
    demo, robot, maps = rng.normal(size=(5, 3)), rng.normal(size=(4, 3)), rng.normal(size=(2, 6, 10))
    ends = []
    for points, m in zip((demo, robot), maps, strict=True):
        numbers = [f(points[:, k]) for f in (np.mean, np.max, np.std) for k in range(3)]
        ends.append(np.array([sum(row[k] * numbers[k] for k in range(9)) + row[9] for row in m]))
    wanted = ends[0] @ ends[1] / np.linalg.norm(ends[0]) / np.linalg.norm(ends[1])
    assert likeness(demo, robot, maps) == pytest.approx(wanted, rel=1e-5)


def test_learning_again_gives_the_same_maps_and_one_task_is_refused():
    pairs = videos(5, 2, seed=1)
    assert np.array_equal(learned(pairs, QUICK), learned(pairs, QUICK))
    with pytest.raises(BadInput, match="two tasks to tell apart, got 1"):
        learned(videos(1, 3, seed=1), QUICK)


def test_company_with_maps_gives_one_feature_more_and_its_parts_keep_them():
    rng = np.random.default_rng(0)
    demo, robot = (rng.normal(size=(n, 3)).astype(np.float32) for n in (5, 4))
    found = Correspondence(
        robot_to_demo=np.array([0, 1, 3, 4]), demo_to_robot=np.array([0, 1, 1, 2, 3]),
        robot_confidence=np.ones(4), demo_confidence=np.ones(5), cost=0.5,
    )  # fmt: skip
    others = rng.normal(size=(2, 6, 4, 3)).astype(np.float32)
    maps = rng.normal(size=(2, 8, 10)).astype(np.float32)
    company = Company(demos=others[0], robots=others[1], maps=maps).only(np.arange(6) < 3)
    values = features(demo, robot, found, company)
    assert len(values) == len(FEATURES)
    assert values[4] == pytest.approx(likeness(demo, robot, maps))
    alone = Company(demos=others[0][:3], robots=others[1][:3])
    assert np.array_equal(values[:4], features(demo, robot, found, alone))

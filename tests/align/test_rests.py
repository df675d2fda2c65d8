"""Rests and false starts: what stands still is matched once, and another try before the beginning costs little."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hostbot.align.aligner import Aligner, AlignerConfig
from hostbot.align.cost import MatchConfig
from hostbot.align.dtw import alignment
from hostbot.align.maps import correspondence
from hostbot.align.small import SmallConfig, SmallFrameEncoder
from hostbot.align.steps import moving
from hostbot.align.videos import Embedded, align_whole
from hostbot.types import BadInput

ANGLES = np.linspace(0, np.pi, 41)
MATCH = MatchConfig(gamma_f=0.5)


def on_arc(angles):
    """Points that a video passes through, on a half circle."""
    found = np.stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)], 1)
    return found.astype(np.float32)


def embedded(points):
    steps = np.arange(len(points))
    return Embedded(points=points, steps=steps, times_s=steps / 16)


def aligner(**settings):
    torch.manual_seed(0)
    config = AlignerConfig(encoder=SmallConfig(size=32, width=4), match=MATCH, **settings)
    return Aligner(SmallFrameEncoder(config.encoder), config)


def test_a_rest_is_one_step_and_both_ends_stay():
    points = on_arc(
        np.concatenate([ANGLES[:20], np.full(500, ANGLES[20]), ANGLES[20:], np.full(3, ANGLES[-1])])
    )
    kept = moving(points, 0.05)
    assert kept[0] == 0
    assert kept[-1] == len(points) - 1
    assert ((kept > 19) & (kept < 521)).sum() == 1
    assert len(kept) == len(ANGLES) + 1
    assert (np.linalg.norm(np.diff(points[kept[:-1]], axis=0), axis=1) >= 0.05).all()


def test_nothing_is_a_rest_by_default():
    points = on_arc(np.repeat(ANGLES, 3))
    assert moving(points, 0.0).tolist() == list(range(len(points)))
    assert moving(points[:1], 0.5).tolist() == [0]


def test_however_long_somebody_rests_the_others_frames_are_where_they_were():
    rest = np.concatenate([ANGLES[:20], np.full(2000, ANGLES[20]), ANGLES[20:]])
    robot = embedded(on_arc(ANGLES))
    found = align_whole(aligner(rest=0.05), embedded(on_arc(rest)), robot).found
    wanted = np.concatenate([np.arange(20), [20], np.arange(21, 41) + 2000])
    off = np.abs(found.robot_to_demo - wanted)
    assert np.delete(off, 20).max() <= 1
    assert np.abs(found.demo_to_robot[:20] - np.arange(20)).max() <= 1
    assert np.abs(found.demo_to_robot[2021:] - np.arange(21, 41)).max() <= 1
    assert (np.diff(found.robot_to_demo) >= 0).all()


def test_confidence_is_of_the_videos_as_they_are():
    demo, robot = embedded(on_arc(np.repeat(ANGLES, 2))), embedded(on_arc(ANGLES))
    plain, rested = (align_whole(aligner(**s), demo, robot) for s in ({}, {"rest": 0.3, "begin": 2.0}))
    assert plain.confidence == rested.confidence
    assert not np.array_equal(plain.found.robot_to_demo, rested.found.robot_to_demo)


def test_the_try_that_is_finished_is_the_one_that_counts():
    tried = np.concatenate([ANGLES[:25], ANGLES[:25][::-2]])
    demo, robot = torch.from_numpy(on_arc(np.concatenate([tried, ANGLES]))), torch.from_numpy(on_arc(ANGLES))
    closed = correspondence(demo, robot, MATCH).robot_to_demo
    opened = correspondence(demo, robot, replace(MATCH, begin=8.0)).robot_to_demo
    wanted = np.arange(41) + len(tried)
    off = np.abs(opened - wanted)[4:]  # on the way back the hand was where it begins, too
    assert off.max() <= 1
    assert np.abs(closed - wanted)[4:].max() > 10, "the paper's is led astray, or this test shows nothing"


def test_only_the_cells_before_the_beginning_are_cheaper():
    torch.manual_seed(1)
    demo, robot = torch.randn(2, 9, 8), torch.randn(2, 7, 8)
    lengths = torch.tensor([9, 6]), torch.tensor([7, 4])
    plain = alignment(demo, robot, *lengths, MATCH)
    for high in (None, 1e6):
        same = alignment(demo, robot, *lengths, replace(MATCH, begin=high))
        assert torch.equal(plain.robot_to_demo, same.robot_to_demo)
        assert torch.equal(plain.demo_path, same.demo_path)
    assert (alignment(demo, robot, *lengths, replace(MATCH, begin=0.1)).demo_path < plain.demo_path).all()


@pytest.mark.parametrize("begin", [0.0, -1.0, float("nan")])
def test_a_cost_is_above_nothing(begin):
    with pytest.raises(BadInput, match="begin is a cost"):
        MatchConfig(begin=begin)


@pytest.mark.parametrize("wrong", [{"rest": -0.1}, {"rest": float("nan")}, {"begin": 0.0}])
def test_an_aligner_refuses_what_makes_no_sense(wrong):
    with pytest.raises(BadInput, match="rest must not be below 0"):
        aligner(**wrong)


def test_what_the_matching_itself_says_of_the_beginning_holds_in_whole_videos():
    tried = np.concatenate([ANGLES[:25], ANGLES[:25][::-2], ANGLES])
    demo, robot = embedded(on_arc(tried)), embedded(on_arc(ANGLES))
    by_match = aligner()
    by_match.config = replace(by_match.config, match=replace(MATCH, begin=8.0))
    found = [
        align_whole(one, demo, robot).found.robot_to_demo for one in (by_match, aligner(begin=8.0), aligner())
    ]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_what_is_not_used_does_not_rename_weights():
    plain = aligner()
    assert plain.identity == aligner(rest=0.0, begin=None).identity
    assert len({plain.identity, aligner(rest=0.05).identity, aligner(begin=8.0).identity}) == 3

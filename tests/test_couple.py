"""Coupling: properties of every pair of monotone maps, and pairs whose answer is known by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hostbot import couple
from hostbot.couple import CoupleConfig, variant
from hostbot.types import BadInput, Correspondence

CONFIG = CoupleConfig(window=64, horizon=16, stride=4)
SMALL = CoupleConfig(window=12, horizon=4, stride=1)
VARIANTS = ("full", "progress_window", "clock_window", "whole_video", "release")


def maps_of(robot_to_demo, demo_to_robot):
    return Correspondence(
        robot_to_demo=np.array(robot_to_demo),
        demo_to_robot=np.array(demo_to_robot),
        robot_confidence=np.ones(len(robot_to_demo)),
        demo_confidence=np.ones(len(demo_to_robot)),
        cost=0.0,
    )


@st.composite
def pairs(draw):
    num_robot, num_demo = draw(st.integers(1, 90)), draw(st.integers(1, 90))

    def monotone(length, end):
        return np.sort(draw(st.lists(st.integers(0, end), min_size=length, max_size=length)))

    return maps_of(monotone(num_robot, num_demo - 1), monotone(num_demo, num_robot - 1))


@given(maps=pairs(), name=st.sampled_from(VARIANTS), data=st.data())
def test_targets_are_ordered_and_inside_the_trajectory(maps, name, data):
    last = len(maps.robot_to_demo) - 1
    states = np.array(data.draw(st.lists(st.integers(0, last), min_size=1, max_size=5)))
    found = couple.target_frames(maps, states, variant(CONFIG, name))
    assert found.actions.shape == (len(states), 16)
    assert found.frames.shape == (len(states), 4)
    for rows in (found.actions, found.frames):
        assert rows.min() >= 0
        assert rows.max() <= last
        assert (np.diff(rows, axis=1) >= 0).all()
    assert (found.frames[:, :-1] == found.actions[:, 4::4]).all(), "what is seen is where the actions lead"


@given(num=st.integers(2, 120), name=st.sampled_from(VARIANTS), data=st.data())
def test_with_the_identity_map_every_variant_is_the_clock(num, name, data):
    t = data.draw(st.integers(0, num - 1))
    line = np.arange(num)
    found = couple.target_frames(maps_of(line, line), np.array([t]), variant(CONFIG, name))
    if name == "release" and t + 16 > num - 1:
        assert found.actions[0, 0] == t
        assert found.frames[0, -1] == num - 1
        return
    assert found.actions[0].tolist() == [min(t + i, num - 1) for i in range(16)]
    assert found.frames[0].tolist() == [min(t + i, num - 1) for i in (4, 8, 12, 16)]


def test_each_target_is_the_equation_written_out():
    rng = np.random.default_rng(0)
    to_demo, to_robot = np.sort(rng.integers(0, 50, 80)), np.sort(rng.integers(0, 80, 50))
    maps = maps_of(to_demo, to_robot)
    found = couple.target_frames(maps, np.arange(80), CONFIG).actions
    for t in range(80):
        for i in range(16):
            assert found[t, i] == to_robot[min(to_demo[t] + i, 49)]


def test_a_demonstration_twice_as_fast_takes_every_second_robot_frame():
    maps = maps_of(np.arange(81) // 2, 2 * np.arange(41))
    found = couple.target_frames(maps, np.array([10, 70]), SMALL)
    assert found.actions.tolist() == [[10, 12, 14, 16], [70, 72, 74, 76]]
    assert found.frames.tolist() == [[12, 14, 16, 18], [72, 74, 76, 78]]


def test_where_the_demonstration_pauses_the_robot_is_held():
    to_robot = [0, 1, 2, 2, 2, 2, 3, 4]  # the demonstrator waits for three frames
    maps = maps_of([0, 1, 2, 6, 7], to_robot)
    found = couple.target_frames(maps, np.array([1, 3]), SMALL)
    assert found.actions.tolist() == [[1, 2, 2, 2], [3, 4, 4, 4]]
    assert couple.target_frames(maps, np.array([1]), variant(SMALL, "progress_window")).actions.tolist() == [
        [1, 2, 3, 4]
    ]


BETWEEN = CoupleConfig(window=64, horizon=16, stride=4, between=True)


@given(maps=pairs(), data=st.data())
def test_targets_between_frames_never_step_back_and_begin_with_the_state(maps, data):
    last = len(maps.robot_to_demo) - 1
    states = np.array(data.draw(st.lists(st.integers(0, last), min_size=1, max_size=5)))
    found = couple.target_frames(maps, states, BETWEEN)
    for rows in (found.actions, found.frames):
        assert rows.min() >= 0
        assert rows.max() <= last
        assert (np.diff(rows, axis=1) >= 0).all()
    assert (found.actions >= states[:, None]).all()
    rounded = couple.target_frames(maps, states, CONFIG).actions
    runs = np.unique(maps.demo_to_robot, return_counts=True)[1]
    if runs.max() == 1 and (np.diff(maps.demo_to_robot) == 1).all():  # nothing was rounded
        assert (found.actions == np.maximum(rounded, states[:, None])).all()


def test_where_the_demonstrator_waits_long_targets_between_frames_wait_too():
    to_robot = np.concatenate([np.arange(20), np.full(40, 20), np.arange(21, 40)])
    to_demo = np.concatenate([np.arange(21), np.arange(60, 79)])
    found = couple.target_frames(maps_of(to_demo, to_robot), np.array([19, 21]), BETWEEN).actions
    assert np.abs(found[0][2:] - 20).max() < 1e-9  # there at once, and no further
    assert found[1][-1] == 36


@given(maps=pairs(), haste=st.floats(0.05, 1), between=st.booleans(), data=st.data())
def test_in_haste_nobody_is_waited_for(maps, haste, between, data):
    last = len(maps.robot_to_demo) - 1
    states = np.array(data.draw(st.lists(st.integers(0, last), min_size=1, max_size=5)))
    config = replace(CONFIG, between=between)
    found = couple.target_frames(maps, states, replace(config, haste=haste))
    coupled = couple.target_frames(maps, states, config)
    least = np.minimum(states[:, None] + haste * np.arange(config.horizon), last)
    assert np.allclose(found.actions, np.maximum(coupled.actions, least if between else np.rint(least)))
    assert (found.frames >= coupled.frames).all()
    assert (np.diff(found.actions, axis=1) >= 0).all()
    assert found.frames.max() <= last
    clock = variant(replace(config, haste=haste), "progress_window")
    assert (
        couple.target_frames(maps, states, clock).actions
        == couple.target_frames(maps, states, variant(config, "progress_window")).actions
    ).all()


def test_haste_is_a_share():
    with pytest.raises(BadInput, match="haste is a share"):
        replace(CONFIG, haste=1.5)


def test_targets_between_frames_begin_where_the_label_says():
    maps = maps_of(np.minimum(np.arange(40) + 10, 39), np.arange(40))  # maps that do not agree
    rounded = couple.target_frames(maps, np.array([10]), CONFIG).actions
    assert couple.target_frames(maps, np.array([10]), BETWEEN).actions.tolist() == rounded.tolist()


@pytest.mark.parametrize("ratio", [0.4, 0.62, 1.0, 1.3])
def test_targets_between_frames_undo_the_rounding_of_maps(ratio):
    """Of an even pace, told by maps of whole frames, steps are even again; rounded ones are stairs."""
    num_demo = 90
    num_robot = int(ratio * (num_demo - 1)) + 1
    to_robot = np.rint(np.minimum(ratio * np.arange(num_demo), num_robot - 1)).astype(int)
    to_demo = np.rint(np.minimum(np.arange(num_robot) / ratio, num_demo - 1)).astype(int)
    maps, states = maps_of(to_demo, to_robot), np.arange(3, int(ratio * 60))
    want = states[:, None] + ratio * np.arange(16)
    off = {
        between: np.abs(
            couple.target_frames(maps, states, replace(CONFIG, between=between)).actions - want
        ).mean()
        for between in (False, True)
    }
    assert off[True] <= 0.75 * off[False] or ratio >= 1
    assert off[True] <= off[False] + 0.01


def test_the_release_goes_straight_between_two_keyframes():
    maps = maps_of(np.arange(41) // 2, 2 * np.arange(21))
    found = couple.target_frames(maps, np.array([3]), variant(SMALL, "release"))
    end = 2 * (3 // 2 + 4)
    assert found.actions[0].tolist() == [round(3 + (end - 3) * i / 4) for i in range(4)]


def test_clock_positions_are_shares_of_the_time():
    maps = maps_of([0] * 11, [0] * 21)
    assert couple.demo_positions(maps, variant(SMALL, "clock_window")).tolist() == list(range(0, 21, 2))
    assert couple.demo_positions(maps, SMALL).tolist() == [0] * 11


@given(maps=pairs(), data=st.data())
def test_retimed_maps_stay_monotone_and_point_near_the_same_frame(maps, data):
    def timeline(length):
        kept = data.draw(st.sets(st.integers(0, length - 1), min_size=1))
        return np.sort(np.array(sorted(kept)))

    robot, demo = timeline(len(maps.robot_to_demo)), timeline(len(maps.demo_to_robot))
    found = couple.retimed(maps, robot, demo)
    for i, source in enumerate(robot):
        wanted = maps.robot_to_demo[source]
        assert abs(demo[found.robot_to_demo[i]] - wanted) == np.abs(demo - wanted).min()
    for i, source in enumerate(demo):
        wanted = maps.demo_to_robot[source]
        assert abs(robot[found.demo_to_robot[i]] - wanted) == np.abs(robot - wanted).min()


@given(length=st.integers(1, 400))
def test_the_grid_reaches_the_last_frame_and_holds_it(length):
    frames = couple.grid_frames(length, CONFIG)
    num = couple.num_latents(length, CONFIG)
    assert len(frames) == 4 * (num - 1) + 1
    assert len(frames) % 4 == 1
    assert frames[0] == 0
    assert frames[-1] == length - 1
    assert num == CONFIG.latents or frames[-1 - 4] < length - 1, "no latent of held frames alone"


@given(length=st.integers(1, 400), data=st.data())
def test_windows_hold_the_state_and_the_segment_where_they_can(length, data):
    q = torch.tensor([data.draw(st.integers(0, length - 1))])
    num = torch.tensor([couple.num_latents(length, CONFIG)])
    low, high = couple.window_range(q, num, CONFIG)
    far, also = couple.window_range(q, num, CONFIG, whole_segment=False)
    assert also == high
    assert 0 <= far <= low <= high <= num - CONFIG.latents
    for f0 in range(int(far), int(high) + 1):
        assert 0 <= float(couple.progress(q, torch.tensor([f0]), CONFIG)) <= 1
        inside = 16 * f0 + 64 >= min(int(q) + 16, 16 * int(num - 1))
        assert inside == (f0 >= int(low)) or int(q) + 16 > 16 * int(num - 1)


def test_every_p_from_0_to_1_occurs_both_ends_included():
    """All states of a demonstration, all windows: p takes each of the L + 1 values a frame can have."""
    num = torch.tensor([couple.num_latents(200, CONFIG)])
    seen = set()
    for q in range(200):
        far, high = couple.window_range(torch.tensor([q]), num, CONFIG, whole_segment=False)
        seen |= {q - 16 * f0 for f0 in range(int(far), int(high) + 1)}
    assert seen == set(range(65))
    g = torch.Generator().manual_seed(0)
    q = torch.randint(0, 200, (20_000,), generator=g)
    offset, loose = torch.rand(2, len(q), generator=g)
    f0 = couple.draw_window(q, num.expand(len(q)), offset, loose, CONFIG)
    p = couple.progress(q, f0, CONFIG)
    assert p.min() == 0
    assert p.max() == 1
    assert (torch.histc(p, 10, 0, 1) > 200).all()


def test_a_drawn_window_is_uniform_over_the_allowed_ones():
    q, num = torch.full((6000,), 100), torch.full((6000,), 14)
    offset, loose = torch.linspace(0, 1 - 1e-6, 6000), torch.ones(6000)
    found = couple.draw_window(q, num, offset, loose, CONFIG)
    assert found.unique(return_counts=True)[0].tolist() == [
        4,
        5,
        6,
    ]  # 100 // 16 = 6; (100 + 16 - 64) / 16 = 3.25
    assert (found.unique(return_counts=True)[1] == 2000).all()


@pytest.mark.parametrize(
    ("sizes", "said"),
    [({"window": 60, "horizon": 16, "stride": 4}, "60"), ({"window": 64, "horizon": 64, "stride": 4}, "80")],
)
def test_sizes_that_cannot_work_are_refused(sizes, said):
    with pytest.raises(BadInput, match=said):
        CoupleConfig(**sizes)


def test_states_outside_the_trajectory_are_refused():
    line = np.arange(5)
    with pytest.raises(BadInput, match=r"0\.\.4"):
        couple.target_frames(maps_of(line, line), np.array([5]), CONFIG)


@given(length=st.integers(1, 400))
def test_training_and_use_encode_a_demonstration_on_the_same_grid(length):
    from hostbot.policy.window import DemoGrid

    grid = DemoGrid(stride=CONFIG.stride, window_latents=CONFIG.latents)
    assert grid.length == CONFIG.window
    assert grid.unit == CONFIG.unit
    assert grid.num_latents(length) == couple.num_latents(length, CONFIG)
    assert np.array_equal(grid.frames(length), couple.grid_frames(length, CONFIG))

"""Static-frame removal against a plain loop, and on hand-made cases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from hostbot.data.clean import CleanConfig, moving_frames
from hostbot.geometry import matrix_to_rot6d, with_rotations
from hostbot.types import BadInput, Event, bimanual, joint_space, single_arm

CONFIG = CleanConfig()


def arm_vectors(positions, rotvecs, grippers):
    rotations = matrix_to_rot6d(Rotation.from_rotvec(rotvecs).as_matrix())
    return np.concatenate([positions, rotations, grippers[:, None]], -1)


def slow_scan(positions, rotvecs, grippers):
    """The definition, one frame at a time, with scipy's own angle."""
    kept = [0]
    rotations = Rotation.from_rotvec(rotvecs)
    for t in range(1, len(positions)):
        last = kept[-1]
        moved = np.linalg.norm(positions[t] - positions[last]) > 0.001
        moved |= (rotations[t] * rotations[last].inv()).magnitude() > 0.001
        moved |= abs(grippers[t] - grippers[last]) > 0.001
        if moved:
            kept.append(t)
    return kept


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.sampled_from([1e-4, 4e-4, 3e-3]))
@settings(max_examples=60, deadline=None)
def test_scan_equals_the_loop(seed, length, step):
    rng = np.random.default_rng(seed)
    still = rng.random((length, 1)) < 0.6
    positions, rotvecs = (
        np.cumsum(np.where(still, 0, rng.normal(0, step, (length, 3))), 0) for _ in range(2)
    )
    grippers = np.cumsum(np.where(still[:, 0], 0, rng.normal(0, step, length)))
    cleaned = moving_frames((arm_vectors(positions, rotvecs, grippers),), single_arm(), CONFIG)
    assert cleaned.kept.tolist() == slow_scan(positions, rotvecs, grippers)
    assert cleaned.num_removed == length - len(cleaned.kept)


def test_slow_drift_is_kept_once_it_adds_up():
    positions = np.zeros((100, 3))
    positions[:, 0] = np.arange(100) * 0.0004
    cleaned = moving_frames(
        (arm_vectors(positions, np.zeros((100, 3)), np.zeros(100)),), single_arm(), CONFIG
    )
    assert cleaned.kept.tolist() == list(range(0, 100, 3))


def test_a_moving_command_keeps_a_frame_whose_state_stands_still():
    state = arm_vectors(np.zeros((10, 3)), np.zeros((10, 3)), np.zeros(10))
    action = arm_vectors(np.zeros((10, 3)), np.zeros((10, 3)), np.linspace(0, 1, 10))
    assert moving_frames((state,), single_arm(), CONFIG).kept.tolist() == [0]
    assert moving_frames((state, action), single_arm(), CONFIG).num_removed == 0


def test_events_move_to_the_frame_that_stands_for_theirs():
    positions = np.zeros((6, 3))
    positions[3:, 0] = 1
    cleaned = moving_frames((arm_vectors(positions, np.zeros((6, 3)), np.zeros(6)),), single_arm(), CONFIG)
    assert cleaned.kept.tolist() == [0, 3]
    events = tuple(Event(name=n, frame=f) for n, f in (("start", 0), ("rest", 2), ("grasp", 3), ("end", 5)))
    assert [e.frame for e in cleaned.remap(events)] == [0, 0, 1, 1]


def test_joint_robots_and_euler_arms_are_cleaned_too():
    joints = joint_space(["a", "b"], 30, ())
    assert moving_frames((np.array([[0, 0], [0, 0.0005], [0, 0.002]]),), joints, CONFIG).kept.tolist() == [
        0,
        2,
    ]
    euler = with_rotations(bimanual(), "euler")
    values = np.zeros((3, euler.dim))
    values[2, 3] = 0.01
    assert moving_frames((values,), euler, CONFIG).kept.tolist() == [0, 2]


def test_unequal_streams_are_refused_with_both_lengths():
    with pytest.raises(BadInput, match=r"\[3, 4\]"):
        moving_frames((np.zeros((3, 10)), np.zeros((4, 10))), single_arm(), CONFIG)

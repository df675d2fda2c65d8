"""Where the next contact is: found in the trajectory, and projected into the views that see it."""

import numpy as np
import pytest

from hostbot.data.cameras import load_cameras, project, save_cameras
from hostbot.data.moments import decisions, find_moments, next_moment
from hostbot.types import BadInput, Camera, Event, bimanual

FORWARD = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
"""Right along x, up along y, looking down the z axis from above."""
STATE = np.zeros((3, 20), np.float32)
STATE[:, [3, 7, 13, 17]] = 1.0


def test_a_camera_above_sees_points_where_geometry_says():
    camera = Camera(view="top", position=(0.0, 0.0, 2.0), rotation=FORWARD, fov_y=90.0)
    points = np.array([[0.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 0.0, 3.0]])
    at, inside = project(camera, points, STATE, bimanual())
    assert inside.tolist() == [True, True, False]
    assert at[:2] == pytest.approx(np.array([[0.5, 0.5], [0.75, 0.375]]))


def test_a_camera_on_a_wrist_moves_with_it():
    camera = Camera(view="w", limb="left", position=(0.0, 0.0, 1.0), rotation=FORWARD, fov_y=90.0)
    state = STATE.copy()
    state[1, :3] = [0.5, 0.0, 0.0]
    at, _ = project(camera, np.zeros((3, 3)), state, bimanual())
    assert at[:2] == pytest.approx(np.array([[0.5, 0.5], [0.25, 0.5]]))
    with pytest.raises(BadInput, match="third"):
        project(
            Camera(view="w", limb="third", position=(0.0, 0.0, 0.0), rotation=FORWARD, fov_y=40.0),
            np.zeros((3, 3)),
            state,
            bimanual(),
        )


def test_a_calibration_comes_back_from_its_file(tmp_path):
    cameras = (Camera(view="top", position=(0.1, 0.0, 2.0), rotation=FORWARD, fov_y=41.5),)
    save_cameras(cameras, tmp_path / "meta/hostbot/cameras.json")
    assert load_cameras(tmp_path / "meta/hostbot/cameras.json") == cameras


def walk():
    """The left hand goes to x = 1 in 10 frames, closes, the right one goes to y = 1 and stops."""
    state = np.repeat(STATE[:1], 31, axis=0)
    state[:, 0] = np.clip(np.arange(31) / 10, 0, 1)
    state[:, 11] = np.clip((np.arange(31) - 14) / 12, 0, 1)
    action = state.copy()
    action[:, 9] = np.where(np.arange(31) < 12, 0.09, 0.0)
    return state, action


def test_moments_are_found_without_events():
    state, action = walk()
    found = find_moments(state, action, (), bimanual())
    assert found.frames.tolist() == [10, 26]  # closing at 12 is no new moment: the hand has just come to rest
    assert found.limbs[0] == "left"
    assert found.limbs[-1] == "right"


def test_events_say_when_and_motion_says_which_limb():
    state, action = walk()
    events = tuple(Event(name=n, frame=f) for n, f in (("approach", 5), ("contact", 10), ("push", 26)))
    found = find_moments(state, action, events, bimanual())
    assert found.frames.tolist() == [10, 26]
    assert found.limbs == ("left", "right")
    assert next_moment(found, 31).tolist() == [0] * 10 + [1] * 16 + [-1] * 5
    assert np.flatnonzero(decisions(found, 31)).tolist() == [0, 1, 10, 11, 12, 13]


def test_a_hand_that_goes_back_to_its_place_is_not_the_one_that_arrives():
    """The right hand goes further, early on; the left one is where the contact is made. Then it waits there."""
    state = np.repeat(STATE[:1], 31, axis=0)
    state[:, 0] = np.clip(np.arange(31) / 18, 0, 0.8)
    state[:, 11] = np.clip(np.arange(31) / 6, 0, 1)
    events = (Event(name="contact", frame=18), Event(name="press", frame=28))
    found = find_moments(state, state.copy(), events, bimanual())
    assert found.limbs[0] == "left"
    state[:20, 0], state[20:, 0] = 0.0, 0.4  # moves once, long before the second event
    state[:, 11] = 0.0
    found = find_moments(state, state.copy(), events, bimanual())
    assert found.limbs[1] == "left"

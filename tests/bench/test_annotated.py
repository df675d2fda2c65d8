"""Annotated episodes are those the bench records, with hands where they are."""

import numpy as np
import pytest

pytest.importorskip("mujoco")

from hostbot.bench.annotated import annotated_human, annotated_robot
from hostbot.sim.catalogue import split, task
from hostbot.sim.demonstrator import VIEW, DemonstratorConfig, demonstrate
from hostbot.sim.env import EnvConfig
from hostbot.sim.episode import robot_episode

ONE = task(sorted(split().train)[20])
SEED = 10_000


@pytest.fixture(scope="module")
def people():
    found = annotated_human(ONE, SEED, DemonstratorConfig(), cameras=3)
    assert len(found) == 3
    return found


def test_the_first_camera_sees_what_is_recorded_without_the_others(people):
    demo, events, success = demonstrate(ONE, SEED, DemonstratorConfig())
    assert success
    frames = demo.views[VIEW]
    assert people[0].events == tuple(event for event in events if event.frame < len(frames))
    # Where in a target something is drawn rounds pixels on edges.
    assert (people[0].views[VIEW] != frames).mean() < 0.001


def test_other_cameras_see_the_same_motion_in_other_rooms(people):
    first, *others = people
    for other in others:
        assert other.events == first.events
        np.testing.assert_array_equal(other.annotations.posture, first.annotations.posture)
        assert np.abs(other.annotations.spots - first.annotations.spots).max() > 0.05
        assert (other.views[VIEW] != first.views[VIEW]).mean() > 0.5


def test_hands_are_where_the_pictures_change(people):
    """What moves from one frame to the next lies around the hand, in every room."""
    for one in people:
        frames = one.views[VIEW].astype(int)
        moved = np.abs(np.diff(frames, axis=0)).sum(-1) > 60
        busy = np.nonzero(moved.sum((1, 2)) > 100)[0]
        assert len(busy) > 10
        rows, columns = np.mgrid[:96, :96]
        off = []
        for step in busy:
            x, y = (one.annotations.spots[step + 1, 0, 0] + 1) * 48
            off.append(np.hypot(columns[moved[step]] - x, rows[moved[step]] - y).min())
        assert np.median(off) < 8


def test_a_robot_s_episode_is_the_recorded_one():
    made, known = annotated_robot(ONE, SEED, EnvConfig()), robot_episode(ONE, SEED, EnvConfig()).trajectory
    assert made.events == known.events
    for view, frames in known.views.items():
        assert np.array_equal(made.views[view], frames)
    spots = made.annotations.spots
    assert spots.shape == (len(known), 3, 2, 2)
    for view in (0, 1):  # a camera on a wrist sees its own hand, at one place
        assert np.ptp(spots[:, view], axis=0).max() < 0.02
        np.testing.assert_array_equal(spots[:, view, 0], spots[:, view, 1])

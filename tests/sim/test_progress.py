import numpy as np
import pytest

from hostbot.sim.asynchrony import measure_clock
from hostbot.sim.progress import clock_error, correspondence, progress, shared
from hostbot.types import BadInput, Event


def events(**frames):
    return [Event(name=name, frame=frame) for name, frame in frames.items()]


ROBOT = events(approach=10, grasp=14, lift=20, release=40)
HUMAN = events(approach=20, grasp=24, lift=60, release=70)


def test_both_have_the_same_progress_at_every_event():
    robot, human = progress(ROBOT, HUMAN, 51, 101)
    for a, b in zip(ROBOT, HUMAN, strict=True):
        assert robot[a.frame] == pytest.approx(human[b.frame], abs=1e-12)
    for values in (robot, human):
        assert values[0] == 0
        assert values[-1] == pytest.approx(1)
        assert (np.diff(values) > 0).all()


def test_maps_send_events_to_events_and_never_step_back():
    maps = correspondence(ROBOT, HUMAN, 51, 101)
    for a, b in zip(ROBOT, HUMAN, strict=True):
        assert maps.robot_to_demo[a.frame] == b.frame
        assert maps.demo_to_robot[b.frame] == a.frame


def test_the_same_execution_has_no_error():
    assert clock_error(ROBOT, ROBOT, 51, 51) == 0


def test_a_slower_copy_has_no_error_and_a_pause_does():
    slow = [Event(name=e.name, frame=2 * e.frame) for e in ROBOT]
    assert clock_error(ROBOT, slow, 51, 101) == pytest.approx(0, abs=1e-12)
    assert clock_error(ROBOT, HUMAN, 51, 101) > 0.05


def test_a_retry_of_one_is_left_out():
    again = [*events(approach=5, grasp=8), Event(name="again", frame=12), *events(lift=30, release=40)]
    assert [a for a, _ in shared(ROBOT, again)] == [10, 14, 20, 40]


def test_an_execution_that_was_begun_again_begins_there():
    again = [*events(approach=10, grasp=14), Event(name="again", frame=30), *events(lift=50, release=70)]
    tried = [*again[:3], *events(approach=40, grasp=44), *again[3:]]
    maps = correspondence(tried, HUMAN, 81, 101)
    assert (maps.robot_to_demo[:31] == 0).all()
    assert maps.demo_to_robot[0] == 30
    assert maps.robot_to_demo[40] == 20
    on_robot, on_human = progress(tried, HUMAN, 81, 101)
    assert on_robot[30] == on_human[0] == 0
    assert on_robot[-1] == on_human[-1] == pytest.approx(1)


def test_one_frame_has_no_progress():
    with pytest.raises(BadInput, match="two frames"):
        progress(ROBOT, HUMAN, 1, 101)


def test_human_and_robot_are_asynchronous():
    names = ("fold-pink_sock", "insert-red_pen-grey_holder", "cover-red_book-cyan_cloth")
    found = measure_clock(names, range(500, 502))
    assert len(found) >= 5
    assert np.mean(found) > 0.03


def test_of_a_step_tried_again_the_last_try_counts():
    """Frames 5 and 8 are the try that failed."""
    tried = [
        *events(approach=5, grasp=8),
        Event(name="again", frame=12),
        *events(approach=25, grasp=28, lift=30, release=40),
    ]
    assert [b for _, b in shared(ROBOT, tried)] == [25, 28, 30, 40]


def test_an_execution_that_was_taken_over_begins_where_the_other_had_done_as_much():
    taken = events(approach=0, grasp=0, lift=0, release=20)
    maps = correspondence(taken, HUMAN, 31, 101)
    assert maps.robot_to_demo[0] == 60
    assert (maps.demo_to_robot[:61] == 0).all()
    assert maps.robot_to_demo[20] == 70
    on_robot, on_human = progress(taken, HUMAN, 31, 101)
    assert on_robot[0] == on_human[60] == 0
    back = correspondence(HUMAN, taken, 101, 31)
    assert back.demo_to_robot[0] == 60
    both = correspondence(taken, taken, 31, 31)
    assert (both.robot_to_demo == np.arange(31)).all()

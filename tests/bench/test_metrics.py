"""Intervals against scipy's, localisation errors by hand, happenings against the script's own events."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from hostbot.bench.films import Film, get, make
from hostbot.bench.happenings import QUIET, Witness
from hostbot.bench.metrics import Result, figures, localisation_error, wilson
from hostbot.sim.progress import correspondence
from hostbot.types import Event


@given(st.integers(1, 400), st.data())
def test_wilson_is_scipys(n, data):
    wins = data.draw(st.integers(0, n))
    wanted = binomtest(wins, n).proportion_ci(0.95, "wilson")
    assert wilson(wins, n) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_no_trials_say_nothing():
    assert wilson(0, 0) == (0.0, 1.0)


def event(name, frame):
    return Event(name=name, frame=frame)


def test_localisation_error_by_hand():
    """The robot touches at 10 of 0..20, the human at 30 of 0..40: frame 5 is at 15/40, frame 15 at 35/40."""
    robot, demo = [event("touch cup", 10)], [event("touch cup", 30)]
    right = [(0, 0.0), (5, 15 / 40), (10, 30 / 40), (15, 35 / 40)]
    assert localisation_error(right, robot, demo, 21, 41) == (0.0, 4)
    off = [(frame, p + 0.1) for frame, p in right]
    error, count = localisation_error(off, robot, demo, 21, 41)
    assert (error, count) == (pytest.approx(0.1), 4)
    assert localisation_error([*right, (5, float("nan"))], robot, demo, 21, 41) == (0.0, 4)


def test_the_truth_may_be_unknown():
    assert localisation_error([(0, 0.5)], [], [event("touch cup", 3)], 20, 20) == (None, 0)
    assert localisation_error([], [event("a", 3)], [event("a", 3)], 20, 20) == (None, 0)


def result(**changes) -> Result:
    usual = {
        "task": "t",
        "family": "f",
        "seed": 0,
        "shown_task": "t",
        "video_seed": 0,
        "success": False,
        "followed": False,
        "frames": 160,
        "touched": "",
        "meant": "cup",
        "cycles": 10,
        "held": 0,
        "end_seen": None,
        "progress": None,
        "confidence": None,
        "localisation_error": None,
    }
    return Result(**(usual | changes))


def test_figures_by_hand():
    listed = [
        result(success=True, touched="cup", frames=80, localisation_error=0.1, localisation_cycles=1),
        result(success=True, touched="cup", frames=48, localisation_error=0.2, localisation_cycles=3),
        result(touched="plate", held=2),
        result(),
    ]
    found = figures("all", listed, 16.0)
    assert (found.n, found.successes, found.rate, found.held) == (4, 2, 0.5, 2)
    assert found.right_first_touch == pytest.approx(2 / 3)
    assert found.touched == 0.75
    assert found.seconds == 4.0
    assert found.localisation_error == pytest.approx(0.175)


class Hands:
    """A world in which only touching matters."""

    shapes = ("cup", "plate")

    def __init__(self):
        self.held = set()

    def in_hand(self, name):
        return name in self.held


def test_a_flicker_is_no_touch():
    world, witness = Hands(), Witness()
    story = [set(), {"plate"}, set(), {"cup"}, {"cup"}, {"cup"}, {"cup"}, set(), {"cup"}, set(), set(), set()]
    for held in story:
        world.held = held
        witness.look(world)
    assert [(e.name, e.frame) for e in witness.events] == [("touch cup", 4), ("leave cup", 10)]
    assert witness.first_touched == "cup"
    assert QUIET == 3


def test_what_physics_shows_agrees_with_what_the_script_notes(tmp_path):
    """Touch lies between contact and grasp, leave about the release: in another video, the frame maps agree."""
    a, b = (make(Film(task="fold-pink_sock", seed=seed)) for seed in (6000, 6001))
    for made in (a, b):
        noted = {e.name: e.frame for e in made.events}
        seen = {e.name.split()[0]: e.frame for e in made.happened}
        assert noted["contact"] - 4 <= seen["touch"] <= noted["grasp"] + 4
        assert abs(seen["leave"] - noted["release"]) <= 6
    lengths = (a.num_frames, b.num_frames)
    by_script = correspondence(a.events, b.events, *lengths).robot_to_demo
    by_physics = correspondence(a.happened, b.happened, *lengths).robot_to_demo
    assert np.abs(by_script - by_physics).mean() < 0.06 * b.num_frames
    # A film that was kept is the film that was made.
    film = Film(task="fold-pink_sock", seed=6000, image_size=(16, 16))
    first = get(film, tmp_path)
    again = get(film, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert np.array_equal(first.views["third_person"], again.views["third_person"])
    assert (first.events, first.happened, first.instruction) == (
        again.events,
        again.happened,
        again.instruction,
    )
    assert a.happened == first.happened
    next(tmp_path.iterdir()).write_bytes(b"damaged")
    assert get(film, tmp_path).events == first.events

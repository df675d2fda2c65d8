"""The weights that ship: they load, stay small, and align a person with a robot better than the clock does."""

import numpy as np
import pytest

from hostbot.align.aligner import SHIPPED, load_aligner
from hostbot.align.evaluate import Truth, clock_event_error, event_error
from hostbot.config import read_json


@pytest.fixture(scope="module")
def shipped():
    return load_aligner()


def test_they_are_there_and_say_where_they_come_from(shipped):
    saved = read_json(SHIPPED)
    assert SHIPPED.with_suffix(".safetensors").stat().st_size < 9_000_000
    assert {"trained", "again", "calibrated"} <= saved["notes"].keys()
    assert shipped.config.calibration is not None
    assert shipped.company is not None, "what a pair is measured against"
    assert shipped.size == 96
    judged = read_json(SHIPPED.parents[3] / "benchmarks/results/align_novel-cpu.json")
    assert shipped.identity == judged["weights"], "figures, memories and labels name the weights they are of"


@pytest.mark.parametrize(("name", "seed"), [("stack", 770_000), ("pick", 770_001)])
def test_novel_tasks_are_aligned_better_than_by_the_clock(shipped, name, seed):
    """A scene, a pace and a task never trained on; and backwards it is less sure."""
    pytest.importorskip("mujoco")
    from hostbot.sim.catalogue import split, task
    from hostbot.sim.demonstrator import DemonstratorConfig, demonstrate
    from hostbot.sim.env import EnvConfig
    from hostbot.sim.episode import robot_episode
    from hostbot.sim.progress import knots, progress

    one = next(task(n) for n in split().names("novel") if task(n).family == name)
    demo, demo_events, _ = demonstrate(one, seed, DemonstratorConfig(size=96, rate_hz=16.0))
    robot = robot_episode(one, seed, EnvConfig(size=96, rate_hz=16.0)).trajectory
    views = {view: np.asarray(frames) for view, frames in demo.views.items()}
    theirs, ours = shipped.embed(views), shipped.embed(dict(robot.views))
    known = robot.events, [e for e in demo_events if e.frame < len(demo)], len(ours), len(theirs)
    ours_p, theirs_p = progress(*known)
    at = knots(*known)[0][1:-1].astype(int)
    truth = Truth(robot_progress=ours_p, demo_progress=theirs_p, robot_events=at)
    found = shipped.align(theirs, ours)
    assert event_error(found.found.robot_to_demo, truth) < clock_event_error(truth)
    turned = shipped.embed({view: frames[::-1].copy() for view, frames in views.items()})
    assert found.confidence > shipped.align(turned, ours).confidence

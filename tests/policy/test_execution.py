"""Which action a robot gets at each control step, with chunks whose numbers say who decided them and when."""

import threading

import numpy as np
import pytest

from hostbot.policy.execution import ExecutionConfig, Pilot
from hostbot.types import ActionChunk, BadInput, Observation, joint_space
from tests.policy.small_policy import ROBOT

HORIZON = 8
HERE = np.zeros(20, np.float32)


class Clock:
    """A robot at step ``now``; a chunk decided at step s says s, s + 1, s + 2 ..."""

    def __init__(self):
        self.now, self.asked = 0, []

    def observe(self):
        return Observation(views={}, state=np.full(20, self.now, np.float32))

    def decide(self, seen):
        begin = int(seen.state[0])
        self.asked.append(begin)
        steps = np.arange(begin, begin + HORIZON, dtype=np.float32)
        return ActionChunk(
            actions=np.tile(steps[:, None], (1, 20)), embodiment=ROBOT, progress=0.0, confidence=1.0
        )

    def run(self, pilot, steps):
        out = []
        for _ in range(steps):
            out.append(int(pilot.act(self.observe)[0]))
            self.now += 1
        return out


@pytest.mark.parametrize("execute", [None, 8, 5, 1])
def test_whole_chunks_or_a_part_of_them(execute):
    clock = Clock()
    with Pilot(clock.decide, ExecutionConfig(execute=execute)) as pilot:
        assert clock.run(pilot, 20) == list(range(20))  # every action is the one meant for its step
    assert clock.asked == list(range(0, 20, execute or HORIZON))
    assert pilot.num_waits == 0


def test_a_lead_that_is_met_costs_no_step():
    clock, out = Clock(), []
    with Pilot(clock.decide, ExecutionConfig(execute=6, lead=2)) as pilot:
        for _ in range(20):
            out += clock.run(pilot, 1)
            if pilot._next is not None:
                pilot._next.result()
    assert out == list(range(20))
    assert clock.asked == [0, 4, 8, 12, 16]
    assert pilot.num_waits == 0


def test_a_late_answer_is_entered_where_the_robot_is_and_held_for():
    clock, gate = Clock(), threading.Event()

    def decide(seen):
        if seen.state[0] > 0:
            gate.wait(5)
        return clock.decide(seen)

    with Pilot(decide, ExecutionConfig(execute=6, lead=2)) as pilot:
        assert clock.run(pilot, 8) == list(range(8))  # the old chunk goes on past step 6
        assert clock.run(pilot, 2) == [7, 7]  # and holds its last action
        assert pilot.num_waits == 2
        gate.set()
        pilot._next.result()
        assert clock.run(pilot, 2) == [10, 11]  # asked at 4: six steps have passed
        assert pilot.num_waits == 2


def test_an_answer_later_than_a_chunk_is_not_replayed():
    clock, gate = Clock(), threading.Event()

    def decide(seen):
        if seen.state[0] == 4:
            gate.wait(5)
        return clock.decide(seen)

    with Pilot(decide, ExecutionConfig(execute=6, lead=2)) as pilot:
        clock.run(pilot, 20)
        gate.set()
        pilot._next.result()
        first = clock.run(pilot, 1)
        assert first == [11]  # its last action, held, never its first
        pilot._next.result()
        assert clock.run(pilot, 1) == [21]


@pytest.mark.parametrize(("execute", "lead"), [(0, 0), (4, 4), (None, -1), (4, 5)])
def test_nonsense_is_refused(execute, lead):
    with pytest.raises(BadInput):
        ExecutionConfig(execute=execute, lead=lead)


def test_more_than_a_chunk_cannot_be_executed():
    with (
        Pilot(Clock().decide, ExecutionConfig(execute=9)) as pilot,
        pytest.raises(BadInput, match="has 8 steps"),
    ):
        pilot.act(Clock().observe)


def still_for(steps, far=0.1):
    """A chunk that waits for some steps and then goes along x, a centimetre or so a step."""
    actions = np.zeros((HORIZON, 20), np.float32)
    actions[:, 0] = far * np.maximum(0, np.arange(HORIZON) - steps)
    actions[:, 3:9] = np.random.default_rng(0).normal(0, 1, (HORIZON, 6))  # turning is not looked at
    return ActionChunk(actions=actions, embodiment=ROBOT, progress=0.0, confidence=1.0)


@pytest.mark.parametrize(
    ("waits", "stir", "steps"), [(0, 0.02, 2), (3, 0.02, 5), (3, 0.0, 2), (3, 0.25, 7), (8, 0.02, 8)]
)
def test_a_robot_that_waits_goes_on_until_it_has_stirred_something(waits, stir, steps):
    assert ExecutionConfig(execute=2, stir=stir).steps_of(still_for(waits), HERE) == steps


def test_jaws_that_close_have_stirred():
    chunk = still_for(8)
    chunk.actions[4:, 9] = 0.05
    assert ExecutionConfig(execute=2, stir=0.02).steps_of(chunk, HERE) == 5


def test_a_hand_that_is_sent_far_by_the_first_action_has_stirred():
    chunk = still_for(8)
    chunk.actions[:, 10] = 0.3
    assert ExecutionConfig(execute=2, stir=0.02).steps_of(chunk, HERE) == 2


def test_a_way_in_radians_is_refused():
    arm = joint_space([f"joint {n}" for n in range(6)], 16.0, ())
    chunk = ActionChunk(
        actions=np.zeros((HORIZON, arm.dim), np.float32), embodiment=arm, progress=0.0, confidence=1.0
    )
    with pytest.raises(BadInput, match="metres"):
        ExecutionConfig(execute=2, stir=0.02).steps_of(chunk, np.zeros(arm.dim, np.float32))


def test_a_pilot_looks_again_only_when_something_moved():
    asked = []

    def decide(seen):
        asked.append(seen)
        return still_for(3)

    with Pilot(decide, ExecutionConfig(execute=2, stir=0.02)) as pilot:
        for _ in range(10):
            pilot.act(Clock().observe)
    assert len(asked) == 2, "state and chunk begin at 0"


@pytest.mark.parametrize(
    "wrong", [{"stir": -1.0}, {"stir": float("nan")}, {"stir": 0.01, "lead": 1, "execute": 4}, {"stir": 0.01}]
)
def test_a_stir_that_means_nothing_is_refused(wrong):
    with pytest.raises(BadInput, match="stir"):
        ExecutionConfig(**wrong)

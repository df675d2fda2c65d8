"""Which action a robot gets at each control step, with chunks whose numbers say who decided them and when."""

import threading

import numpy as np
import pytest

from hostbot.policy.execution import ExecutionConfig, Pilot
from hostbot.types import ActionChunk, BadInput, Observation
from tests.policy.small_policy import ROBOT

HORIZON = 8


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

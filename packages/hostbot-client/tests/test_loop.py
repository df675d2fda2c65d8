"""The control loop against a mock robot and a network that can do anything, on a clock that the test turns."""

import numpy as np
import pytest

from hostbot_client import (
    BrokerConfig,
    ChunkBroker,
    ControlLoop,
    Guard,
    Limits,
    PartLimits,
    State,
    Watchdog,
    run_robot,
)
from hostbot_client.watchdog import WatchdogConfig

RATE, H = 10.0, 10
LIMITS = Limits((PartLimits("x", "joint", 5.0, 50.0, (-1e3,), (1e3,)),), RATE)


class MockRobot:
    """A joint that is wherever it was told to be."""

    def __init__(self):
        self.x, self.told, self.num_seen, self.broken = 0.0, [], 0, False

    def observe(self):
        self.num_seen += 1
        return {"state": self.state()}

    def state(self):
        return np.array([np.nan if self.broken else self.x])

    def command(self, action):
        self.x = float(action[0])
        self.told.append(self.x)

    def hold(self):
        self.told.append("hold")


class Bench:
    """Everything on one clock: answers arrive ``latency`` seconds after the question, if at all."""

    def __init__(self, latency=0.0, ahead=0, execute=None, **watchdog):
        self.now, self.latency, self.robot = 0.0, latency, MockRobot()
        self.broker = ChunkBroker(
            None, BrokerConfig(rate_hz=RATE, ahead=ahead, execute=execute), lambda: self.now, threaded=False
        )
        self.guard = Guard(LIMITS)
        dog = Watchdog(0.0, WatchdogConfig(**watchdog))
        self.loop = ControlLoop(self.robot, self.broker, self.guard, dog)
        self.mail, self.asked, self.ticks = [], [], []
        self.reply = lambda number, seen: {"actions": seen["state"] + 0.1 * np.arange(1, H + 1)[:, None]}

    def run(self, num_ticks):
        for _ in range(num_ticks):
            for post in [post for post in self.mail if post[0] <= self.now + 1e-9]:
                self.mail.remove(post)
                self.broker.deliver(post[1], post[2])
            self.ticks.append(self.loop.tick())
            question = self.broker.question()
            if question is not None:
                self.asked.append(self.now)
                if self.latency is not None:
                    answer = self.reply(question[0], question[2])
                    self.mail.append((self.now + self.latency, question, answer))
            self.now += 1 / RATE
        return self.ticks[-num_ticks:]

    @property
    def states(self):
        return [tick.state for tick in self.ticks]


def test_a_chunk_is_executed_whole_before_the_robot_looks_again():
    bench = Bench()
    bench.run(1 + 2 * (H + 1))
    moved = [x for x in bench.robot.told if x != "hold"]
    np.testing.assert_allclose(moved[:H], 0.1 * np.arange(1, H + 1))
    assert bench.robot.num_seen == 2 or bench.robot.num_seen == 3
    assert bench.robot.told[0] == "hold", "nothing was known in the first tick"


def test_part_of_a_chunk_if_so_told():
    bench = Bench(execute=3)
    bench.run(30)
    assert len(bench.asked) == pytest.approx(30 / 4, abs=1)


@pytest.mark.parametrize("latency", [0.1, 0.3])
def test_the_next_chunk_is_there_before_the_last_is_spent(latency):
    bench = Bench(latency, ahead=4)
    bench.run(10)
    bench.run(50)
    assert all(isinstance(x, float) for x in bench.robot.told[-50:])
    steps = np.diff([x for x in bench.robot.told if x != "hold"])
    # Steps that passed while the server thought are skipped, so the motion neither stalls nor goes back.
    np.testing.assert_allclose(steps, 0.1, atol=0.11)
    assert (steps > -1e-6).all()


def test_the_seam_is_checked_where_the_new_chunk_is_entered():
    """The chunk's first action lies far behind the last command; the one that is entered does not."""
    bench = Bench(0.3, ahead=4)
    bench.reply = lambda number, seen: {"actions": seen["state"] + 0.4 * np.arange(1, H + 1)[:, None]}
    bench.run(60)
    assert list(bench.guard.refused) == []
    assert np.abs(np.diff([x for x in bench.robot.told if x != "hold"])).max() <= 0.5


def test_a_chunk_whose_every_step_has_passed_is_dropped():
    bench = Bench(0.5, ahead=4, execute=4)
    bench.run(30)
    assert bench.broker.num_dropped > 0
    assert bench.states[-1] in (State.HOLDING, State.STOPPED)


def test_a_delay_of_300_ms_is_waited_out_without_a_hold():
    bench = Bench(latency=0.3)
    bench.run(60)
    assert set(bench.states) == {State.RUNNING}
    assert "hold" not in bench.robot.told[4:], "the last command is repeated meanwhile"


def test_a_dead_server_ends_in_a_hold_and_then_in_a_stop_that_lasts():
    bench = Bench()
    bench.run(5)
    bench.latency = None
    bench.run(H)
    spent = bench.now
    bench.run(40)
    holds = [i for i, s in enumerate(bench.states) if s is State.HOLDING]
    stops = [i for i, s in enumerate(bench.states) if s is State.STOPPED]
    moved = max(i for i, tick in enumerate(bench.ticks) if tick.action is not None)
    assert moved / RATE <= spent + 0.5 + 1 / RATE
    assert holds[0] > 10
    assert stops[0] / RATE == pytest.approx(spent + 2.0, abs=0.5)
    assert all(x == "hold" for x in bench.robot.told[moved + 1 :])
    bench.latency = 0.0
    bench.run(20)
    assert bench.states[-1] is State.STOPPED, "only a person ends a stop"
    assert "no fresh action" in bench.ticks[-1].note
    bench.loop.watchdog.reset(bench.now)
    bench.run(5)
    assert bench.states[-1] is State.RUNNING
    assert isinstance(bench.robot.told[-1], float)


def test_a_server_that_is_slow_for_a_while_is_held_for_and_gone_on_with():
    bench = Bench()
    bench.run(3)
    bench.latency = 0.9
    bench.run(40)
    assert State.HOLDING in bench.states
    assert State.STOPPED not in bench.states
    bench.latency = 0.0
    bench.run(30)
    assert set(bench.states[-15:]) == {State.RUNNING}


def test_a_server_that_freezes_for_five_seconds_is_stopped_for():
    bench = Bench()
    bench.run(3)
    bench.latency = 5.0
    bench.run(100)
    assert bench.states[-1] is State.STOPPED
    assert bench.broker.num_dropped == 1


def test_an_answer_older_than_a_chunk_is_dropped():
    bench = Bench(latency=H / RATE + 0.2, stop_s=100.0)
    bench.run(60)
    assert bench.broker.num_dropped >= 3
    assert all(x == "hold" for x in bench.robot.told)


def test_duplicates_and_answers_out_of_order_are_dropped():
    bench = Bench()
    first = bench.broker.observe({"state": np.zeros(1)})
    old = bench.broker.question()
    second = bench.broker.observe({"state": np.zeros(1)})
    new = bench.broker.question()
    assert second == first + 1
    chunk = {"actions": np.ones((H, 1))}
    assert not bench.broker.deliver(old, {"actions": np.full((H, 1), 9.0)})
    assert bench.broker.deliver(new, chunk)
    assert not bench.broker.deliver(new, {"actions": np.full((H, 1), 9.0)})
    assert not bench.broker.deliver(new, {"actions": np.full((H, 1), 9.0), "host": {"seq": 1}})
    assert bench.broker.num_dropped == 3
    assert bench.broker.take().actions[0, 0] == 1


def test_after_a_stop_nothing_that_was_on_its_way_moves_the_robot():
    bench = Bench(latency=0.4)
    bench.run(2)
    bench.loop.watchdog.stop("a person said so")
    bench.run(10)
    assert all(x == "hold" for x in bench.robot.told)
    bench.loop.watchdog.reset(bench.now)
    bench.run(1)
    assert bench.robot.told[-1] == "hold"


def test_a_policy_that_is_refused_again_and_again_ends_in_a_stop():
    bench = Bench()
    bench.reply = lambda number, seen: {"actions": np.full((H, 1), np.nan)}
    bench.run(40)
    assert bench.states[-1] is State.STOPPED
    assert all(x == "hold" for x in bench.robot.told)
    assert all(r.reason == "not finite" for r in bench.guard.refused)


def test_the_safe_beginning_of_a_chunk_is_executed_and_no_more():
    bench = Bench()

    def reply(number, seen):
        actions = seen["state"] + 0.1 * np.arange(1, H + 1)[:, None]
        actions[4:] += 300
        return {"actions": actions}

    bench.reply = reply
    bench.run(60)
    moved = np.array([x for x in bench.robot.told if x != "hold"])
    assert (np.abs(np.diff(moved)) <= 0.5 + 1e-6).all()
    assert moved.max() > 1


def test_a_robot_that_does_not_know_where_it_is_stops():
    bench = Bench()
    bench.run(1)
    bench.robot.broken = True
    bench.run(3)
    assert bench.states[-1] is State.STOPPED
    assert "measured state" in bench.ticks[-1].note


def test_a_hundred_failures_at_random_moments_all_end_in_time():
    """The server dies at a random moment: the last motion is within a chunk and 500 ms and a tick of it."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        bench = Bench(latency=float(rng.uniform(0, 0.5)), ahead=int(rng.integers(0, 5)))
        bench.run(int(rng.integers(5, 40)))
        bench.latency, bench.mail, died = None, [], bench.now
        bench.run(60)
        told = bench.robot.told
        commands = [i for i, x in enumerate(told) if x != "hold"]
        changes = [i for i in commands if i == 0 or told[i] != told[i - 1]]
        end = (changes[-1] + 1) / RATE if changes else 0.0
        assert end <= died + H / RATE + 1 / RATE + 1e-6
        assert (commands[-1] if commands else 0) / RATE <= died + H / RATE + 0.5 + 2 / RATE
        assert bench.states[-1] is State.STOPPED


def test_the_watchdog_alone():
    dog = Watchdog(10.0, WatchdogConfig(hold_s=0.5, stop_s=2.0))
    assert dog.check(10.4) is State.RUNNING
    assert dog.check(10.6) is State.HOLDING
    dog.fed(10.6, 1.0)
    assert dog.check(12.0) is State.RUNNING
    assert dog.check(13.7) is State.STOPPED
    dog.fed(13.7, 100.0)
    assert dog.check(13.8) is State.STOPPED
    dog.reset(13.9)
    assert dog.check(14.0) is State.RUNNING
    with pytest.raises(ValueError, match="hold_s"):
        WatchdogConfig(hold_s=3.0, stop_s=2.0)


def test_whatever_ends_the_loop_the_robot_holds():
    bench = Bench()

    def boom(tick):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_robot(bench.loop, seconds=5, shown=boom, sleep=lambda s: None)
    assert bench.robot.told[-1] == "hold"


def test_rates_must_agree():
    with pytest.raises(ValueError, match="10 Hz"):
        ControlLoop(MockRobot(), ChunkBroker(None, BrokerConfig(rate_hz=16.0), threaded=False), Guard(LIMITS))
    with pytest.raises(ValueError, match="rate above 0"):
        BrokerConfig(rate_hz=0)

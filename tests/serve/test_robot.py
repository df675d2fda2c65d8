"""The whole chain: a mock robot's control loop, the client, the wire, the server; and a server that goes away."""

import threading
import time

import numpy as np

from hostbot.serve.rehearsal import Rehearsal
from hostbot_client import (
    BrokerConfig,
    ChunkBroker,
    ControlLoop,
    Guard,
    Limits,
    PolicyClient,
    State,
    Watchdog,
    WatchdogConfig,
    arm_limits,
    run_robot,
)
from tests.serve.running import EMBODIMENT, observation, running

RATE = 50.0
HERE = np.tile([0.2, 0, 0.1, 1, 0, 0, 0, 1, 0, 0.04], 2).astype(np.float32)


class Still:
    """A robot that is where it was told to be."""

    def __init__(self):
        self.now, self.commands, self.holds = HERE.copy(), [], 0

    def observe(self):
        return {**observation(), "state": self.now.copy()}

    def state(self):
        return self.now.copy()

    def command(self, action):
        self.now = np.asarray(action).copy()
        self.commands.append(time.monotonic())

    def hold(self):
        self.holds += 1


def limits():
    both = [arm_limits(limb, [0, -1, 0], [1, 1, 1], gripper=(0, 0.1)) for limb in ("left", "right")]
    return Limits((*both[0], *both[1]), RATE)


def control(client, **watchdog):
    broker = ChunkBroker(client.infer, BrokerConfig(rate_hz=RATE, ahead=4, retry_s=0.05))
    return ControlLoop(Still(), broker, Guard(limits()), Watchdog(broker.clock(), WatchdogConfig(**watchdog)))


def test_a_robot_runs_through_a_server_that_restarts():
    ticks = []
    with running(Rehearsal(EMBODIMENT, 10)) as server:
        client = PolicyClient(server.url, answer_s=0.5, connect_s=0.5)
        limits().check_parts(client.connect()["parts"])
        loop = control(client, hold_s=0.1, stop_s=30.0)
        runner = threading.Thread(
            target=run_robot, args=(loop,), kwargs={"seconds": 6, "shown": ticks.append}
        )
        runner.start()
        time.sleep(1.0)
        port = server.port
    gone = time.monotonic()
    time.sleep(1.0)
    back = time.monotonic()
    with running(Rehearsal(EMBODIMENT, 10), port=port):
        runner.join(30)
        client.close()
    commands = np.array(loop.robot.commands)
    assert (commands < gone).sum() > 20
    assert not ((commands > gone + 0.7) & (commands < back)).any(), "without a server it holds"
    assert (commands > back).sum() > 20, "and goes on when there is one again"
    assert State.HOLDING in [tick.state for tick in ticks]
    assert client.num_lost_sessions == 1, "a new server does not know the old session"
    assert (loop.robot.now == HERE).all()


def test_a_robot_stops_for_good_when_the_server_stays_away():
    with running(Rehearsal(EMBODIMENT, 10)) as server:
        client = PolicyClient(server.url, answer_s=0.3, connect_s=0.3)
        client.connect()
        loop = control(client, hold_s=0.1, stop_s=0.4)
        stop = threading.Timer(0.5, server.call, args=(server.stop(),))
        stop.start()
        assert run_robot(loop, seconds=20) is State.STOPPED
        stop.join()
    assert loop.robot.holds > 0
    assert "no fresh action" in loop.watchdog.reason

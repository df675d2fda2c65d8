"""A policy elsewhere: what is sent, what is made of the answers, and that connections are given back."""

from dataclasses import replace

import numpy as np
import pytest

from hostbot.bench.remote import Remote
from hostbot.bench.results import RolloutConfig, read_results
from hostbot.bench.rollout import Rollout
from hostbot.bench.suites import SuiteConfig
from hostbot.types import BadInput, Observation
from hostbot.video import probe
from tests.policy.small_policy import small_policy

SUITE = SuiteConfig(tasks=("topple-blue_bottle",), trials=2, videos=1)


class Served:
    """A server's end in this process: a real policy behind the messages."""

    def __init__(self, policy, log, host=1):
        self.policy, self.log, self.about = policy, log, {"host": host}

    def connect(self):
        self.log.append("connect")
        return self.about

    def acquire(self, video, instruction):
        self.log.append(("acquire", None if video is None else probe(video).num_frames, instruction))
        self.session = self.policy.start(self.policy.acquire(video, instruction))
        return {"skill": "x"}

    def infer(self, message):
        seen = Observation(views=message["images"], state=message["state"])
        out = self.policy.step(self.session, seen)
        return {"actions": out.actions, "host": {"progress": out.progress, "confidence": None, "held": ""}}

    def close(self):
        self.log.append("close")


def test_a_remote_policy_is_one_connection_a_trial(tmp_path):
    log, policy = [], small_policy()
    player = Remote("ws://there", lambda: Served(policy, log))
    config = RolloutConfig(suite=SUITE, seconds=3.0, wave=2, workers=1)
    list(Rollout(player, config, (16, 16)).run(tmp_path))
    results = read_results(tmp_path).values()
    assert [r.cycles for r in results] == [3, 3]
    assert all(0 <= r.progress <= 1 and r.confidence is None for r in results)
    assert log.count("connect") == log.count("close") == 2
    (_, frames, told), *_ = [entry for entry in log if entry[0] == "acquire"]
    assert frames > 20
    assert "bottle" in told


def test_a_server_that_takes_no_videos_is_asked_by_language_alone(tmp_path):
    class Plain(Served):
        def infer(self, message):
            log.append(message["prompt"])
            return {"actions": np.tile(message["state"], (16, 1))}

    log = []
    player = Remote("ws://there", lambda: Plain(None, log, host=None))
    config = RolloutConfig(suite=SUITE, seconds=2.0, wave=2, workers=1)
    with pytest.raises(BadInput, match="takes no videos"):
        list(Rollout(player, config, (16, 16)).run(tmp_path / "a"))
    told = replace(config, suite=replace(SUITE, shown="none"))
    list(Rollout(player, told, (16, 16)).run(tmp_path / "b"))
    assert len(read_results(tmp_path / "b")) == 2
    assert any("bottle" in entry for entry in log)


def test_actions_of_another_robot_are_refused():
    class Odd(Served):
        def infer(self, message):
            return {"actions": np.zeros((16, 14))}

    player = Remote("ws://there", lambda: Odd(None, []))
    seen = Observation(views={}, state=np.zeros(20, np.float32))
    from hostbot.bench.remote import Call

    with pytest.raises(BadInput, match=r"\(16, 14\)"):
        player.act([Call(client=Odd(None, []), prompt="")], [seen])

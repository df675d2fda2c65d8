"""The real policy (random weights) through the server: what a robot gets is what the policy decided in-process."""

import concurrent.futures

import numpy as np
import pytest

from hostbot_client import PolicyClient, Refused
from tests.memory.fakes import clip
from tests.policy.small_policy import observation, small_policy
from tests.serve.running import running


def wire(seen, prompt="Stack the bowls."):
    return {"state": seen.state, "images": dict(seen.views), "prompt": prompt}


@pytest.fixture(scope="module")
def policy():
    return small_policy()


def in_process(policy, skill, seeds):
    session = policy.start(skill)
    return [policy.step(session, observation(seed)) for seed in seeds]


def test_decisions_through_the_wire_are_the_policys(policy, tmp_path):
    video = clip(tmp_path / "v.mp4")
    expected = in_process(policy, policy.acquire(video, "Stack the bowls."), range(4))
    with running(policy) as server, PolicyClient(server.url) as robot:
        robot.acquire(video, "Stack the bowls.")
        for seed, decision in enumerate(expected):
            answer = robot.infer(wire(observation(seed)))
            np.testing.assert_array_equal(answer["actions"], decision.actions)
            told = answer["host"]
            assert told["progress"] == decision.progress
            assert (told["frame"], tuple(told["window"])) == (decision.frame, decision.window)
            assert told["finished"] == decision.finished
            assert {"encode_ms", "total_ms"} <= set(answer["policy_timing"])


def test_language_alone_has_no_progress(policy):
    expected = in_process(policy, policy.acquire(None, "Wipe."), [1])[0]
    with running(policy) as server, PolicyClient(server.url) as robot:
        answer = robot.infer(wire(observation(1), "Wipe."))
        np.testing.assert_array_equal(answer["actions"], expected.actions)
        assert answer["host"]["progress"] is None


def test_robots_in_one_batch_get_what_each_would_get_alone(policy):
    prompts = ["Wipe.", "Stack the bowls.", "Pour."]
    alone = {p: in_process(policy, policy.acquire(None, p), range(6)) for p in prompts}

    def drive(prompt):
        with PolicyClient(server.url) as robot:
            return [robot.infer(wire(observation(seed), prompt)) for seed in range(6)]

    with running(policy, gather_ms=30) as server, concurrent.futures.ThreadPoolExecutor(3) as pool:
        answers = dict(zip(prompts, pool.map(drive, prompts), strict=True))
    assert max(a["host"]["batch"] for got in answers.values() for a in got) > 1
    for prompt in prompts:
        for got, decision in zip(answers[prompt], alone[prompt], strict=True):
            np.testing.assert_allclose(got["actions"], decision.actions, atol=2e-4)


def test_warming_up_leaves_no_trace(policy):
    expected = in_process(policy, policy.acquire(None, "Wipe."), [1])[0]
    with running(policy, max_batch=2) as server:
        assert server.call(server.warm_up()) > 0
        with PolicyClient(server.url) as robot:
            np.testing.assert_array_equal(
                robot.infer(wire(observation(1), "Wipe."))["actions"], expected.actions
            )


def test_what_the_policy_refuses_is_told(policy):
    with running(policy) as server, PolicyClient(server.url) as robot:
        with pytest.raises(Refused, match="at most 24 words"):
            robot.infer(wire(observation(1), "word " * 30))
        assert robot.infer(wire(observation(1), "Wipe."))["actions"].shape == (16, 20)

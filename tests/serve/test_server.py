"""The server as robots meet it: what is answered and what is refused."""

import concurrent.futures
import subprocess
import sys
import time

import numpy as np
import pytest

from hostbot_client.client import Refused, ServerLost
from hostbot_client.guard import Guard
from hostbot_client.limits import Limits, arm_limits
from tests.serve.running import EMBODIMENT, HORIZON, EchoPolicy, client, observation, running

SKILL = sum(b"stack") % 251


def test_metadata_comes_first_and_says_what_the_robot_must_send():
    with running() as server, client(server) as robot:
        said = robot.metadata
        assert (said["action_dim"], said["horizon"], said["control_hz"]) == (20, HORIZON, 16.0)
        assert said["cameras"] == list(EMBODIMENT.views)
        assert [part["kind"] for part in said["parts"]][:3] == ["position", "rot6d", "gripper"]


def test_an_observation_arrives_whole_and_its_actions_come_back_bit_for_bit():
    policy = EchoPolicy()
    with running(policy) as server, client(server) as robot:
        sent = observation()
        sent["state"] = np.random.default_rng(0).normal(size=20)
        answer = robot.infer(sent)
        np.testing.assert_array_equal(answer["actions"][0], sent["state"].astype(np.float32))
        np.testing.assert_array_equal(answer["actions"][1, :3], [6 * 8 * 3 * n for n in (1, 11, 21)])
        assert answer["actions"][2, 0] == SKILL
        assert answer["host"]["progress"] == 0.5
        assert answer["host"]["confidence"] is None
        assert "prev_total_ms" not in answer["server_timing"]
        assert "prev_total_ms" in robot.infer(sent)["server_timing"]
        assert len(policy.threads) == 1, "everything is thought in one thread"


@pytest.mark.parametrize(
    "change",
    [
        lambda o: {**o, "images": {k: v.transpose(2, 0, 1) for k, v in o["images"].items()}},
        lambda o: {"observation/state": o["state"], "prompt": "stack"}
        | {f"observation/{k}": v for k, v in o["images"].items()},
        lambda o: {"observation.state": o["state"], "task": "stack"}
        | {f"observation.images.{k}": v for k, v in o["images"].items()},
        lambda o: {**o, "images": dict(zip(
            ("cam_left_wrist", "cam_right_wrist", "cam_high"), o["images"].values(), strict=True))},
        lambda o: {**o, "images": {**o["images"], "another_camera": np.zeros((4, 4, 3), np.uint8)}},
    ],
    ids=["channels first", "flat", "lerobot", "aloha", "a camera too many"],
)  # fmt: skip
def test_every_layout_in_use_is_read(change):
    with running() as server, client(server) as robot:
        plain, changed = robot.infer(observation(3)), robot.infer(change(observation(3)))
        np.testing.assert_array_equal(plain["actions"][:2], changed["actions"][:2])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"state": np.zeros(19, np.float32)}, "20 finite numbers"),
        ({"state": np.full(20, np.nan)}, "20 finite numbers"),
        ({"state": [0.0] * 20}, "needs 'state'"),
        ({"images": {}}, "lacks the view"),
        ({"images": 3}, "dictionary of pictures"),
        ({"images": {"third_person": np.zeros((4, 4, 3))}}, "bytes"),
        ({"images": {"third_person": np.zeros((3, 4, 3), np.uint8)}}, "no one axis"),
        ({"images": {"third_person": np.zeros((0, 4, 3), np.uint8)}}, "bytes"),
        ({"prompt": ""}, "say what to do"),
        ({"prompt": "x" * 3000}, "at most 2000"),
        ({"host": {"op": "explode"}}, "no operation"),
        ({"host": 3}, "must be a dictionary"),
        ({"host": {"op": np.zeros(3)}}, "no operation"),
        ({"host": {"deadline_ms": -1}}, "milliseconds"),
        ({"host": {"op": "start"}}, "say which"),
        ({"host": {"op": "start", "skill": "nothing"}}, "no skill 'nothing'"),
        ({"host": {"op": "query", "instruction": "x"}}, "no memory"),
        ({"host": {"op": "upload", "data": "text"}}, "the bytes"),
        ({"host": {"op": "acquire"}}, "needs a video"),
        ({"host": {"op": "resume", "session": "guess"}}, "gone"),
    ],
)
def test_a_mistake_is_one_sentence_and_the_connection_goes_on(change, told):
    with running() as server, client(server) as robot:
        with pytest.raises(Refused, match=told):
            robot.infer({**observation(), **change})
        assert robot.infer(observation(5))["actions"][0, 0] == 5
        assert robot.num_connections == 1


def test_a_new_prompt_is_a_new_skill_and_reset_begins_again():
    with running() as server, client(server) as robot:
        counts = [
            robot.infer(observation(prompt=p))["actions"][2, :2].tolist() for p in ("stack", "stack", "wipe")
        ]
        assert counts == [[SKILL, 1], [SKILL, 2], [sum(b"wipe") % 251, 1]]
        assert robot.reset()["instruction"] == "wipe"
        assert robot.infer(observation(prompt="wipe"))["actions"][2, 1] == 1
        assert robot.infer(observation(prompt="wipe", reset=True))["actions"][2, 1] == 1


def test_robots_do_not_hear_each_other_and_think_together():
    policy = EchoPolicy(seconds=0.01)

    def drive(number):
        with client(server) as robot:
            for i in range(20):
                answer = robot.infer(observation(1000 * number + i, prompt=f"task {number}"))
                assert answer["actions"][0, 0] == 1000 * number + i
                assert answer["actions"][2].tolist()[:2] == [sum(f"task {number}".encode()) % 251, i + 1]
        return True

    with running(policy, max_batch=8) as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(drive, range(8)))
    assert sum(policy.batches) == 160
    assert max(policy.batches) > 1
    assert max(policy.batches) <= 8


def test_the_next_step_is_prepared_while_the_robot_moves(caplog):
    policy = EchoPolicy()
    with running(policy) as server, client(server) as robot:
        for cycle in range(3):
            robot.infer(observation(cycle))
            until = time.monotonic() + 5
            while len(policy.prepared) <= cycle and time.monotonic() < until:
                time.sleep(0.01)
        assert policy.prepared == [[1], [2], [3]], "after the answer, once for each"
        assert len(policy.threads) == 1, "everything is thought in one thread"
        policy.unprepared = ZeroDivisionError("no preparing")
        assert robot.infer(observation(1))["actions"][2, 1] == 4
        assert robot.infer(observation(1))["actions"][2, 1] == 5
    assert caplog.text.count("preparing the next step failed") == 1


def test_nothing_is_prepared_while_another_robot_is_about_to_ask():
    policy = EchoPolicy()
    with running(policy, gather_ms=0.0) as server, client(server) as one, client(server) as other:
        one.infer(observation(1)), other.infer(observation(2))
        policy.prepared.clear()
        for _ in range(3):
            one.infer(observation(1))
            other.infer(observation(2))
        assert policy.prepared == []


def test_one_robots_mistake_is_not_anothers():
    policy = EchoPolicy(seconds=0.02)
    with running(policy, gather_ms=50) as server, client(server) as bad, client(server) as good:
        good.infer(observation())
        bad.infer(observation())
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            wrong = pool.submit(bad.infer, observation(666))
            right = pool.submit(good.infer, observation(5))
            assert right.result()["actions"][0, 0] == 5
            with pytest.raises(Refused, match="nobody is at 666"):
                wrong.result()
        assert bad.infer(observation(6))["actions"][2, 1] == 2, "a refused observation did not count"


def test_a_policy_that_breaks_ends_that_connection_without_telling_how(caplog):
    with running() as server, client(server) as robot:
        with pytest.raises(Refused, match="the policy failed") as told:
            robot.infer(observation(777))
        assert "ZeroDivision" not in str(told.value)
        with pytest.raises(ServerLost):
            robot.infer(observation(1))
        with client(server) as other:
            assert other.infer(observation(1))["actions"][0, 0] == 1
    assert "ZeroDivisionError" in caplog.text


def test_what_nobody_thought_of_is_logged_and_not_told(caplog, monkeypatch):
    with running() as server, client(server) as robot:
        monkeypatch.setattr("hostbot.serve.messages.observation", lambda *a: 1 / 0)
        with pytest.raises(Refused, match="look into the server's log") as told:
            robot.infer(observation())
        monkeypatch.undo()
        assert "division" not in str(told.value)
        with client(server) as other:
            assert other.infer(observation(2))["actions"][0, 0] == 2
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "spoil", [lambda a: a * np.nan, lambda a: a[:, :5], lambda a: a.astype(object), lambda a: a[:3] + np.inf]
)
def test_actions_that_are_none_never_leave(spoil):
    policy = EchoPolicy()
    policy.spoil = spoil
    with (
        running(policy) as server,
        client(server) as robot,
        pytest.raises(Refused, match="the policy failed"),
    ):
        robot.infer(observation(1))


def test_limits_at_the_server_guard_robots_that_have_none():
    parts = (
        *arm_limits("left", [-1] * 3, [1] * 3, gripper=(0, 1)),
        *arm_limits("right", [-1] * 3, [1] * 3, gripper=(0, 1)),
    )
    policy = EchoPolicy()

    def far(actions):
        actions[:] = here["state"]
        actions[4:, 0] += 3
        return actions

    policy.spoil = far
    here = observation()
    here["state"] = np.tile([0.2, 0, 0.1, 1, 0, 0, 0, 1, 0, 0.5], 2).astype(np.float32)
    with running(policy, guard=Guard(Limits(parts, 16.0))) as server, client(server) as robot:
        answer = robot.infer(here)
        np.testing.assert_allclose(answer["actions"], np.tile(here["state"], (HORIZON, 1)), atol=1e-6)
        assert "out of its box" in answer["host"]["refused"]


def test_a_deadline_is_kept_or_told():
    with running(EchoPolicy(seconds=0.3)) as server, client(server) as one, client(server) as two:
        one.infer(observation())
        two.infer(observation())
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            slow = pool.submit(one.infer, observation(1))
            time.sleep(0.1)
            with pytest.raises(Refused, match="deadline passed"):
                two.infer(observation(2, host={"deadline_ms": 50}))
            assert slow.result()["actions"][0, 0] == 1
        assert two.infer(observation(2, host={"deadline_ms": 5000, "seq": 7}))["host"]["seq"] == 7


def test_what_is_loaded_is_kept_out_of_garbage_collection():
    """In a process of its own: frozen objects are never freed."""
    code = (
        "import gc; import hostbot.serve.server; from hostbot.serve.warm import spare_collector; "
        "before = len(gc.get_objects()); spare_collector(); print(before, len(gc.get_objects()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, left = map(int, done.stdout.split())
    assert before > 10_000
    assert left < 100

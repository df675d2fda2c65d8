"""The server as robots meet it: what is answered, what is refused, and who is harmed by whom (nobody)."""

import concurrent.futures
import contextlib
import json
import logging
import socket
import ssl
import subprocess
import threading
import time

import msgpack
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from hostbot.memory import open_memory
from hostbot.serve.contract import ServeConfig, is_loopback
from hostbot.types import BadInput
from hostbot_client import pack, unpack
from hostbot_client.client import PolicyClient, Refused, ServerLost
from hostbot_client.guard import Guard
from hostbot_client.limits import Limits, arm_limits
from tests.memory.fakes import FakeEmbedder, clip
from tests.serve.running import EMBODIMENT, HORIZON, EchoPolicy, observation, running, state

SKILL = sum(b"stack") % 251


def client(server, **options):
    return PolicyClient(server.url, **options)


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


# Skills and memory over the wire -------------------------------------------------------------------------------


def test_a_video_is_acquired_over_the_wire_and_followed(tmp_path):
    policy = EchoPolicy()
    video = tmp_path / "v.mp4"
    video.write_bytes(bytes(range(256)) * 40_000)
    with running(policy) as server, client(server) as robot:
        made = robot.acquire(video, "pour the tea")
        assert policy.acquired == [(video.read_bytes(), "pour the tea")]
        answer = robot.infer(observation(prompt="something else"))
        assert answer["host"]["skill"] == made["id"]
        assert answer["actions"][2, 0] == sum(b"pour the tea") % 251 + video.stat().st_size
        with client(server) as other:
            other.ask("start", skill=made["skill"])
            assert other.infer(observation())["actions"][2, 0] == answer["actions"][2, 0]
            assert other.acquire(video, "pour the tea")["id"] == made["id"]
        assert len(policy.acquired) == 1, "the same video and words are watched once"
        video.write_bytes(b"broken")
        with pytest.raises(Refused, match="broken"):
            robot.acquire(video, "pour the tea")


def test_an_upload_over_the_limit_is_refused(tmp_path):
    with running(max_video_bytes=1000) as server, client(server) as robot:
        robot.ask("upload", data=b"x" * 900, begin=True)
        with pytest.raises(Refused, match="1000 bytes"):
            robot.ask("upload", data=b"x" * 200)
        assert robot.ask("upload", data=b"x" * 200)["bytes"] == 200


def test_the_memory_chooses_what_to_do(tmp_path):
    texts = {
        "stack the bowls": [1, 0, 0],
        "pile the bowls": [9, 1, 0],
        "wipe": [0, 0, 1],
        "either": [1, 1, 0],
        "place the bowls": [1, 0.001, 0],
    }
    memory = open_memory(tmp_path / "m", FakeEmbedder(texts, {n: [1, 0, 0] for n in range(256)}, width=3))
    policy = EchoPolicy()
    with running(policy, memory) as server, client(server) as robot:
        video = clip(tmp_path / "v.mp4")
        made = robot.acquire(video, "stack the bowls", remember=True)
        assert made["remembered"] == "stack-the-bowls@1"
        with client(server) as other:
            answer = other.infer(observation(prompt="pile the bowls"))
            assert answer["host"]["skill"] == "stack-the-bowls@1"
            assert answer["host"]["score"] > 0.9
            assert policy.acquired == [(video.read_bytes(), "stack the bowls")]
            with pytest.raises(Refused, match="novel"):
                other.infer(observation(prompt="wipe"))
            assert other.ask("query", instruction="wipe")["answer"] == "novel"
            assert [s["skill"] for s in other.ask("skills")["skills"]] == [made["id"], "stack-the-bowls@1"]
            other.acquire(video, "place the bowls", remember=True)
        with client(server) as third, pytest.raises(Refused, match="say which"):
            third.infer(observation(prompt="pile the bowls"))
    memory.store.close()


def test_a_novel_task_may_go_by_language_alone(tmp_path):
    memory = open_memory(tmp_path / "m", FakeEmbedder())
    with running(None, memory, novel="language") as server, client(server) as robot:
        assert robot.infer(observation())["actions"][2, 0] == SKILL
    memory.store.close()


# Connections ----------------------------------------------------------------------------------------------------


def test_a_broken_connection_takes_its_session_up_again():
    with running() as server, client(server) as robot:
        robot.infer(observation())
        robot._connection.socket.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ServerLost):
            robot.infer(observation())
        assert robot.infer(observation())["actions"][2, 1] == 2, "the count goes on"
        robot._connection.socket.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ServerLost):
            robot.infer(observation())
        until = time.monotonic() + 10
        while not server._parked and time.monotonic() < until:
            time.sleep(0.01)
        server._parked.clear()
        assert robot.infer(observation())["actions"][2, 1] == 1, (
            "the server has forgotten: the prompt begins anew"
        )
        assert robot.num_lost_sessions == 1


def test_a_session_is_taken_up_while_its_old_line_still_seems_alive():
    """A robot whose answer did not come in time asks again by a new line while the old question is thought about."""
    with running(EchoPolicy(seconds=0.5)) as server, client(server, answer_s=5) as robot:
        robot.infer(observation())
        with pytest.raises(ServerLost):
            robot.infer(observation(), answer_s=0.1)
        assert robot.infer(observation())["actions"][2, 1] == 3, "the second was thought, the third answered"
        assert robot.num_lost_sessions == 0


def test_a_named_skill_is_begun_again_and_never_exchanged_for_another(tmp_path):
    video = tmp_path / "v.mp4"
    video.write_bytes(b"a video")

    def cut():
        robot._connection.socket.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ServerLost):
            robot.infer(observation())
        until = time.monotonic() + 10
        while not server._parked and time.monotonic() < until:
            time.sleep(0.01)
        server._parked.clear()

    with running() as server, client(server) as robot:
        named = robot.acquire(video, "pour")["skill"]
        robot.infer(observation())
        cut()
        assert robot.infer(observation())["host"]["skill"] == named
        cut()
        server.shelf._held.clear()
        for _ in range(2):
            with pytest.raises(Refused, match="no skill"):
                robot.infer(observation())


def test_health_is_answered_while_the_policy_thinks():
    with running(EchoPolicy(seconds=1.0)) as server, client(server) as robot:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            slow = pool.submit(robot.infer, observation())
            time.sleep(0.2)
            for _ in range(5):
                assert server.get("/healthz") == (200, "OK\n")
            assert not slow.done()
            slow.result()
        assert server.get("/readyz")[0] == 200
        server.ready = False
        assert server.get("/readyz")[0] == 503
        assert server.get("/healthz")[0] == 200
        with pytest.raises(ServerLost, match="503"):
            client(server).connect()


def test_one_robot_too_many_is_told_to_come_back():
    with running(max_robots=2) as server, client(server), client(server):
        with pytest.raises(ServerLost, match="503"):
            client(server).connect()
        assert server.get("/healthz")[0] == 200
    # wait() tries again until there is room
    with running(max_robots=1) as server:
        first = client(server)
        first.connect()
        threading.Timer(0.3, first.close).start()
        assert client(server).wait(10)["protocol"] == "openpi"


def test_a_client_that_does_not_read_harms_nobody_and_is_cut_off():
    policy = EchoPolicy()
    policy.horizon = 20_000
    policy.spoil = lambda actions: np.tile(actions[:1], (20_000, 1))
    with running(policy, send_s=0.5) as server, client(server) as good:
        stuck = deaf(server.port)
        with contextlib.suppress(OSError):
            for _ in range(40):
                stuck.sendall(masked(pack(observation(1))))
        for n in range(30):
            assert good.infer(observation(n))["actions"][7, 0] == n
        assert server.get("/healthz")[0] == 200
        until = time.monotonic() + 10
        while len(server._links) > 1 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(server._links) == 1, "who does not take its answers is cut off"
        stuck.close()


def deaf(port):
    """A client that has shaken hands and never reads again."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(2)
    made.connect(("127.0.0.1", port))
    made.sendall(
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert made.recv(12) == b"HTTP/1.1 101"
    return made


def masked(data):
    """A binary frame as a client sends it, with a mask of zeros."""
    return b"\x82\xff" + len(data).to_bytes(8, "big") + bytes(4) + data


def test_half_a_handshake_and_a_dead_line_harm_nobody():
    with running(ping_s=0.3) as server, client(server) as good:
        half = socket.create_connection(("127.0.0.1", server.port))
        half.sendall(b"GET / HTTP/1.1\r\n")
        dead = deaf(server.port)
        assert good.infer(observation(1))["actions"][0, 0] == 1
        assert len(server._links) == 2
        until = time.monotonic() + 10
        while len(server._links) > 1 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(server._links) == 1, "who does not answer pings is cut off"
        assert good.infer(observation(2))["actions"][0, 0] == 2
        half.close()
        dead.close()


def test_nothing_but_mistakes_ends_the_connection():
    with running(max_bad=5) as server, connect(server.url, compression=None) as raw:
        raw.recv()
        for _ in range(5):
            raw.send(b"\xc1")
            assert isinstance(raw.recv(), str)
        with pytest.raises(ConnectionClosed) as end:
            raw.recv(timeout=5)
        assert end.value.rcvd.code == 1008


def test_messages_over_the_limit_end_the_connection_before_they_are_read():
    with running(max_message_bytes=10_000) as server, connect(server.url, compression=None) as raw:
        raw.recv()
        raw.send(b"x" * 20_000)
        with pytest.raises(ConnectionClosed) as end:
            raw.recv(timeout=5)
        assert end.value.rcvd.code == 1009


def test_text_is_no_message():
    with running() as server, connect(server.url) as raw:
        raw.recv()
        raw.send(json.dumps({"state": 1}))
        assert "binary" in raw.recv()


# Who may connect -------------------------------------------------------------------------------------------------

TOKEN = "a-long-enough-token"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "robot.local", ""])
def test_without_a_token_a_server_stays_on_loopback(host):
    with pytest.raises(BadInput, match="token"):
        ServeConfig(host=host)
    assert ServeConfig(host=host, token=TOKEN).host == host


def test_loopback_is_what_it_is():
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.evil", ""]))


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


def test_without_a_token_nothing_but_loopback_connects():
    """The socket itself refuses another address of this machine, and so does the check behind it."""
    with running() as server:
        with pytest.raises(OSError), socket.create_connection((own_address(), server.port), timeout=2):
            pass
        assert server.get("/healthz")[0] == 200
        elsewhere = type("C", (), {"remote_address": ("192.0.2.7", 5)})()
        assert not server._allowed(elsewhere, None)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Api-Key",
        "Api-Key wrong-token-wrong-token",
        f"Basic {TOKEN}",
        f"Api-Key {TOKEN}x",
        TOKEN,
        f"Api-Key {TOKEN[:-1]}",
    ],
)
def test_a_wrong_token_is_refused_before_the_handshake(header, caplog):
    with running(token=TOKEN) as server:
        headers = {} if header is None else {"Authorization": header}
        with pytest.raises(InvalidStatus) as refusal:
            connect(server.url, additional_headers=headers)
        assert refusal.value.response.status_code == 401
        assert server.get("/healthz")[0] == 200
    assert TOKEN not in caplog.text


def test_the_right_token_is_let_in_and_never_shown():
    with running(token=TOKEN, host="0.0.0.0") as server:
        with PolicyClient(f"ws://{own_address()}:{server.port}", token=TOKEN) as robot:
            assert robot.infer(observation(4))["actions"][0, 0] == 4
        with connect(server.url, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as raw:
            assert unpack(raw.recv())["protocol"] == "openpi"
        assert TOKEN not in repr(server.config)


def test_a_web_page_cannot_connect():
    with running() as server, pytest.raises(InvalidStatus) as refusal:
        connect(server.url, origin="http://evil.example")
    assert refusal.value.response.status_code == 403


def test_tls(tmp_path):
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=me -addext subjectAltName=IP:127.0.0.1"
    )
    files = {"tls_key": tmp_path / "key.pem", "tls_cert": tmp_path / "cert.pem"}
    subprocess.run(
        [*command.split(), "-keyout", files["tls_key"], "-out", files["tls_cert"]],
        check=True,
        capture_output=True,
    )
    trusting = ssl.create_default_context(cafile=str(files["tls_cert"]))
    with running(**files) as server:
        address = f"wss://127.0.0.1:{server.port}"
        with PolicyClient(address, tls=trusting) as robot:
            assert robot.infer(observation(9))["actions"][0, 0] == 9
        with pytest.raises(ServerLost):
            PolicyClient(address).connect()
        with pytest.raises(ServerLost):
            client(server).connect()
    with pytest.raises(BadInput, match="both"):
        ServeConfig(tls_cert=tmp_path / "cert.pem")


def test_stopping_closes_everything_quickly():
    begin = time.monotonic()
    with running(EchoPolicy(seconds=0.2)) as server:
        robots = [client(server) for _ in range(3)]
        [robot.connect() for robot in robots]
    assert time.monotonic() - begin < 10
    with pytest.raises(ServerLost):
        robots[0].infer(observation())
    assert not server.engine.alive


# Whatever comes in ------------------------------------------------------------------------------------------------


def test_no_garbage_breaks_it(caplog):
    """A thousand frames: real observations with bytes changed, cut or repeated, and msgpack of nothing."""
    caplog.set_level(logging.ERROR)
    rng = np.random.default_rng(0)
    policy = EchoPolicy()
    good = pack(observation())
    with running(policy, max_bad=10**9) as server, connect(server.url, compression=None) as raw:
        raw.recv()
        for _ in range(1000):
            raw.send(mutated(good, rng))
            answer = raw.recv(timeout=10)
            assert isinstance(answer, str) or set(unpack(answer)) >= {"host"}
            assert not isinstance(answer, str) or "Traceback" not in answer
        assert server.get("/healthz")[0] == 200
    assert not caplog.records


def mutated(good, rng):
    kind = rng.integers(5)
    if kind == 0:
        return rng.bytes(int(rng.integers(1, 400)))
    data = bytearray(good)
    if kind == 1:
        return bytes(data[: rng.integers(len(data))])
    if kind == 2:
        return msgpack.packb(
            {
                "host": {
                    "op": rng.choice(["start", "acquire", "upload", "query", "resume", "x"]),
                    "skill": 3,
                    "data": b"",
                }
            }
        )
    for _ in range(int(rng.integers(1, 8))):
        # Most of a message is pixels: change the structure's bytes as often as theirs.
        spot = (
            rng.integers(len(data))
            if kind == 3
            else rng.choice(np.flatnonzero(np.frombuffer(good, np.uint8) > 30))
        )
        data[spot] = rng.integers(256)
    return bytes(data)


def test_states_of_all_kinds_are_taken_or_told():
    with running(max_bad=10**9) as server, client(server) as robot:
        for dtype in ("<f8", "<f4", "<f2", "<i4", "|u1", ">f4"):
            assert robot.infer({**observation(), "state": state(3).astype(dtype)})["actions"][0, 0] == 3
        with pytest.raises(Refused):
            robot.infer({**observation(), "state": state(3).astype(bool)})

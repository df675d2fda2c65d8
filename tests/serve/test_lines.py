"""Lines that break, stall, lie or never end: who is harmed by whom (nobody)."""

import concurrent.futures
import contextlib
import json
import socket
import threading
import time

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from hostbot_client import pack
from hostbot_client.client import Refused, ServerLost
from tests.serve.running import EchoPolicy, client, observation, running


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

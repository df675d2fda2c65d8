"""Whatever comes in is answered, and nothing of it believed."""

import logging

import msgpack
import numpy as np
import pytest
from websockets.sync.client import connect

from hostbot_client import pack, unpack
from hostbot_client.client import Refused
from tests.serve.running import EchoPolicy, client, observation, running, state


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

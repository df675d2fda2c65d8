"""The real openpi-client, unmodified and in its own environment, drives the bench through our server.

The policy follows the scripted expert's commands chunk by chunk and shows in its answer what it has seen, so that equal
answers mean that every pixel and every number arrived.
"""

import struct
import subprocess
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hostbot.serve import messages
from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.types import ActionChunk, bimanual
from hostbot_client import pack, unpack
from tests.serve.running import EchoPolicy, observation, running

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(240)]
HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv-openpi/bin/python"
CONFIG = EnvConfig(size=48)
EMBODIMENT, HORIZON = bimanual(CONFIG.rate_hz, CONFIG.views), 16


@pytest.fixture(scope="module", autouse=True)
def environment() -> None:
    subprocess.run([HERE / "setup_openpi.sh"], check=True)


class Client:
    """openpi-client at the other end of a pipe."""

    def __init__(self, port, horizon=0, key=""):
        self.process = subprocess.Popen(
            [PYTHON, HERE / "openpi_worker.py", "127.0.0.1", str(port), str(horizon), key],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={},
        )  # fmt: skip
        self.metadata = self._read()

    def _read(self):
        head = self.process.stdout.read(8)
        assert len(head) == 8, "openpi-client ended"
        return unpack(self.process.stdout.read(struct.unpack("<Q", head)[0]))

    def infer(self, message):
        data = pack(message)
        self.process.stdin.write(struct.pack("<Q", len(data)) + data)
        self.process.stdin.flush()
        return self._read()


@contextmanager
def openpi(port, horizon=0, key=""):
    client = Client(port, horizon, key)
    try:
        yield client
    finally:
        client.process.stdin.close()
        assert client.process.wait(20) == 0


class Follower:
    """The expert's commands in chunks, with a fingerprint of what was seen."""

    embodiment, horizon = EMBODIMENT, HORIZON

    def __init__(self, commands):
        self.commands = commands

    def acquire(self, video, instruction=""):
        return self.commands[instruction]

    def start(self, skill, seed=0):
        return {"commands": skill, "place": 0}

    def step_batch(self, sessions, observations):
        return [self._chunk(s, o) for s, o in zip(sessions, observations, strict=True)]

    def _chunk(self, session, seen):
        left = session["commands"][session["place"] : session["place"] + HORIZON]
        rest = np.repeat(session["commands"][-1:], HORIZON - len(left), 0)
        session["place"] += HORIZON
        pixels = b"".join(seen.views[view].tobytes() for view in EMBODIMENT.views)
        mark = zlib.crc32(pixels + seen.state.tobytes()) / 2**32
        return ActionChunk(
            actions=np.concatenate([left, rest]).astype(np.float32),
            embodiment=EMBODIMENT,
            progress=mark,
            confidence=1.0,
        )


def expert_commands(name, seed):
    env = SimEnv(task(name), EnvConfig(size=48, views=()))
    env.reset(seed=seed)
    actor, commands, done = env.expert(), [], False
    while not done and len(commands) < CONFIG.seconds * CONFIG.rate_hz:
        commands.append(actor.act())
        done = env.advance(commands[-1])
    env.close()
    return np.stack(commands)


def drive(name, seed, prompt, infer):
    """One episode by whole chunks; everything that happened."""
    env, trace = SimEnv(task(name), CONFIG), []
    env.reset(seed=seed)
    done = False
    while not done and env.frame < CONFIG.seconds * CONFIG.rate_hz:
        answer = infer({"images": env.pictures(), "state": env.state(), "prompt": prompt})
        trace.append((answer["host"]["progress"], np.array(answer["actions"])))
        for action in answer["actions"]:
            done = env.advance(action)
            if done:
                break
    state, frame = env.state(), env.frame
    env.close()
    return done, frame, state, trace


def test_the_bench_through_openpi_client_equals_the_bench_in_process():
    names = list(split().names("novel"))[::17]
    episodes = [(name, seed) for name in names for seed in (1, 2)]
    commands = {f"{name} {seed}": expert_commands(name, seed) for name, seed in episodes}
    policy, successes = Follower(commands), 0
    with running(policy) as server, openpi(server.port) as client:
        assert client.metadata["action_dim"] == 20
        for name, seed in episodes:
            prompt = f"{name} {seed}"
            session = policy.start(policy.acquire(None, prompt))

            def direct(message, session=session):
                seen = messages.observation(message, EMBODIMENT, {})
                return messages.answer(policy.step_batch([session], [seen])[0], {}, {})

            here, there = drive(name, seed, prompt, direct), drive(name, seed, prompt, client.infer)
            assert here[:2] == there[:2]
            np.testing.assert_array_equal(here[2], there[2])
            assert [t[0] for t in here[3]] == [t[0] for t in there[3]]
            for a, b in zip(here[3], there[3], strict=True):
                np.testing.assert_array_equal(a[1], b[1])
            successes += here[0]
    assert successes >= len(episodes) // 2, "the comparison is of robots that get somewhere"


def test_their_chunk_broker_cuts_our_answers():
    with running(EchoPolicy()) as server, openpi(server.port, horizon=8) as client:
        for step in range(16):
            answer = client.infer(observation(5 + step))
            assert answer["actions"].shape == (20,)
            if step % 8 == 0:
                assert answer["actions"][0] == 5 + step
            assert answer["host"]["progress"] == 0.5


def test_their_key_is_our_token_and_our_refusals_are_their_errors():
    token = "a-token-of-some-length"
    with running(EchoPolicy(), token=token) as server, openpi(server.port, key=token) as client:
        assert "lacks the view" in client.infer({**observation(), "images": {}})["error"]
        assert client.infer(observation(3))["actions"][0, 0] == 3

"""The real openpi-client, unmodified and in its own environment, drives the bench through our server.

The policy follows the scripted expert's commands chunk by chunk and shows in its answer what it has seen, so that equal
answers mean that every pixel and every number arrived.
"""

import os
import re
import signal
import struct
import subprocess
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hostbot.bench.films import Film, make
from hostbot.cli.policies import one_thread
from hostbot.policy.bundle import write_bundle
from hostbot.policy.policy import Policy, PolicyConfig
from hostbot.serve import messages
from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.types import ActionChunk, bimanual
from hostbot.video import VideoWriter
from hostbot_client import pack, unpack
from tests.policy.small_policy import small_model, small_spec, small_vae, statistics
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


def drive(name, seed, prompt, infer, config=CONFIG):
    """One episode by whole chunks; everything that happened."""
    env, trace = SimEnv(task(name), config), []
    env.reset(seed=seed)
    done = False
    while not done and env.frame < config.seconds * config.rate_hz:
        said = {"images": env.pictures(), "state": env.state(), "prompt": prompt, "reset": not trace}
        answer = infer(said)
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


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """``$HOSTBOT_POLICY``, or one of random weights."""
    if named := os.environ.get("HOSTBOT_POLICY"):
        return Path(named)
    folder, vae = tmp_path_factory.mktemp("policy") / "small", small_vae()
    write_bundle(folder, model=small_model(), spec=small_spec(vae), statistics=statistics(), vae=vae)
    return folder


@contextmanager
def served(*words):
    """``hostbot serve`` as a person types it; its port."""
    command = [sys.executable, "-m", "hostbot", "serve", "--port", "0", "--device", "cpu", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        said = [process.stdout.readline() for _ in range(2)]
        yield int(re.search(r"ws://[^:]+:(\d+)", said[1])[1])
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_a_policy_that_watched_a_video_does_through_openpi_client_what_it_does_in_process(tmp_path, bundle):
    """Same bundle, video and seeds: the same actions to the bit, the same end, the same verdict."""
    name, video = "topple-blue_bottle", tmp_path / "human.mp4"
    film = make(Film(task=name, seed=1, image_size=(96, 96)))
    with VideoWriter(video, (96, 96), 16.0) as writer:
        for frame in film.views["third_person"]:
            writer.write(frame)
    one_thread("cpu")  # as the server does
    policy = Policy.load(bundle, config=PolicyConfig(batch_sizes=(1,)))
    skill = policy.acquire(video, film.instruction)
    config = EnvConfig(seconds=14.0 if "HOSTBOT_POLICY" in os.environ else 3.0)
    verdicts = []
    with (
        served("--policy", bundle, "--video", video, "--instruction", film.instruction) as port,
        openpi(port) as client,
    ):
        for seed in (6000, 6001, 6002):
            session = policy.start(skill)

            def direct(message, session=session):
                seen = messages.observation(message, policy.embodiment, {})
                return messages.answer(policy.step(session, seen), {}, {})

            here = drive(name, seed, "", direct, config)
            there = drive(name, seed, "", client.infer, config)
            assert here[:2] == there[:2]
            np.testing.assert_array_equal(here[2], there[2])
            for (progress, actions), (progress_there, actions_there) in zip(here[3], there[3], strict=True):
                assert progress == progress_there
                np.testing.assert_array_equal(actions, actions_there)
            verdicts.append(here[0])
    print(f"{sum(verdicts)} of {len(verdicts)} done, here and there alike")


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

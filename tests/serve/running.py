"""A server in a thread of its own, and a policy whose every answer shows whom and what it answers."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np

from hostbot.serve.contract import ServeConfig
from hostbot.serve.server import PolicyServer
from hostbot.types import ActionChunk, BadInput, bimanual
from hostbot_client import PolicyClient

EMBODIMENT = bimanual(rate_hz=16)
HORIZON = 8


class Tale:
    """A session: which skill, and what it has been shown."""

    def __init__(self, skill):
        self.skill, self.num_cycles = skill, 0


class EchoPolicy:
    """Row 0 is the state, row 1 sums of the pictures, row 2 the skill and the session's own count."""

    embodiment, horizon = EMBODIMENT, HORIZON

    def __init__(self, seconds=0.0):
        self.seconds, self.batches, self.threads, self.acquired = seconds, [], set(), []
        self.spoil, self.prepared, self.unprepared = None, [], None

    def acquire(self, video, instruction=""):
        self.threads.add(threading.get_ident())
        if video is None and not instruction:
            raise BadInput("a skill needs a video, an instruction, or both")
        content = None if video is None else video.read_bytes()
        if content is not None and content.startswith(b"broken"):
            raise BadInput("this video is broken")
        self.acquired.append((content, instruction))
        return sum(instruction.encode()) % 251 + (0 if content is None else len(content))

    def start(self, skill, seed=0):
        return Tale(skill)

    def step_batch(self, sessions, observations):
        self.threads.add(threading.get_ident())
        assert len({id(s) for s in sessions}) == len(sessions)
        if any(seen.state[0] == 666 for seen in observations):
            raise BadInput("nobody is at 666")
        if any(seen.state[0] == 777 for seen in observations):
            raise ZeroDivisionError("the policy broke")
        self.batches.append(len(sessions))
        time.sleep(self.seconds)
        return [self._chunk(s, o) for s, o in zip(sessions, observations, strict=True)]

    def prepare(self, sessions):
        self.threads.add(threading.get_ident())
        self.prepared.append([s.num_cycles for s in sessions])
        if self.unprepared is not None:
            raise self.unprepared

    def _chunk(self, session, seen):
        session.num_cycles += 1
        actions = np.zeros((HORIZON, EMBODIMENT.dim), np.float32)
        actions[0] = seen.state
        actions[1, :3] = [float(seen.views[v].sum()) for v in EMBODIMENT.views]
        actions[2, :2] = session.skill, session.num_cycles
        if self.spoil is not None:
            actions = self.spoil(actions)
        return ActionChunk(
            actions=actions,
            embodiment=EMBODIMENT,
            progress=0.5,
            confidence=float("nan"),
            timing_ms={"infer": 1.0},
        )


def state(value: float) -> np.ndarray:
    return np.full(EMBODIMENT.dim, value, np.float32)


def observation(value: float = 0.0, prompt: str = "stack", **more):
    pictures = {view: np.full((6, 8, 3), 10 * i + 1, np.uint8) for i, view in enumerate(EMBODIMENT.views)}
    return {"state": state(value), "images": pictures, "prompt": prompt, **more}


@contextmanager
def running(policy=None, memory=None, guard=None, **config):
    """A server on a free port; ``.url`` and ``.get(path)`` reach it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def call(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)

    server = PolicyServer(policy or EchoPolicy(), ServeConfig(**{"port": 0, **config}), memory, guard)
    call(server.start())
    server.url = f"ws://127.0.0.1:{server.port}"
    server.get = lambda path: get(server.port, path)
    server.call = call
    try:
        yield server
    finally:
        call(server.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


def client(server, **options) -> PolicyClient:
    return PolicyClient(server.url, **options)


def get(port: int, path: str, timeout: float = 5.0) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()

"""A policy on the other end of a websocket as a player: any openpi server for language, hostbot's for videos too."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hostbot.bench.suites import Trial
from hostbot.bench.worker import Expert
from hostbot.policy.session import Decision
from hostbot.types import ActionChunk, BadInput, Demonstration, Embodiment, Observation, bimanual
from hostbot.video import VideoWriter


class Client(Protocol):
    """One robot's connection; ``hostbot_client.PolicyClient`` is one."""

    def connect(self) -> Mapping[str, Any]:
        """What the server says of itself."""

    def infer(self, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        """A dictionary with ``actions``."""

    def acquire(self, video: Path | None, instruction: str) -> Mapping[str, Any]:
        """Have the server watch a video and begin to follow it."""

    def close(self) -> None:
        """Say goodbye."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One trial's connection, and what is told with every observation."""

    client: Client
    prompt: str


class Remote:
    """One connection a trial, as if each were a robot of its own; a wave's observations are sent at once."""

    looks = True
    asks_expert = False

    def __init__(self, url: str, connect: Callable[[], Client], embodiment: Embodiment | None = None) -> None:
        self._url, self._connect = url, connect
        self._embodiment = embodiment or bimanual(16.0)
        self._threads = ThreadPoolExecutor(32, "hostbot-remote")

    @property
    def identity(self) -> str:
        """Its address: what is served there is the server's to say."""
        return self._url

    def begin(
        self, trial: Trial, video: Demonstration | None, instruction: str, expert: Expert | None
    ) -> Call:
        """Connect; a video is sent as a file, as a robot's computer would."""
        client = self._connect()
        about = client.connect()
        if about.get("host"):
            with tempfile.TemporaryDirectory() as scratch:
                client.acquire(None if video is None else _file(video, Path(scratch)), instruction)
        elif video is not None:
            client.close()
            raise BadInput(f"the server at {self._url} takes no videos: evaluate it with --demo none")
        return Call(client=client, prompt="" if about.get("host") else instruction)

    def act(self, sessions: Sequence[Call], observations: Sequence[Observation]) -> list[ActionChunk]:
        """Ask for all at once, so that the server can answer them in one batch."""
        return list(self._threads.map(self._ask, sessions, observations))

    def end(self, session: Call) -> None:
        """Hang up."""
        session.client.close()

    def _ask(self, call: Call, seen: Observation) -> ActionChunk:
        told = {"state": seen.state, "images": dict(seen.views), "prompt": call.prompt}
        answer = call.client.infer(told)
        actions = np.asarray(answer["actions"], np.float32)
        if actions.ndim != 2 or actions.shape[1] != self._embodiment.dim:
            raise BadInput(
                f"{self._url} sent actions of shape {actions.shape}; this robot takes (steps, {self._embodiment.dim})"
            )
        told_back = answer.get("host") or {}
        nan = float("nan")
        progress, confidence = (told_back.get(name) for name in ("progress", "confidence"))
        return Decision(
            actions=actions,
            embodiment=self._embodiment,
            progress=nan if progress is None else float(progress),
            confidence=nan if confidence is None else float(confidence),
            frame=int(told_back.get("frame", -1)),
            window=(0, 0),
            finished=bool(told_back.get("finished", False)),
            held=str(told_back.get("held", "")),
        )


def _file(video: Demonstration, folder: Path) -> Path:
    """A demonstration's one view as an mp4, near enough to lossless."""
    if len(video.views) > 1:
        raise BadInput("a server is shown one video of one camera; evaluate a robot's own in this process")
    frames = next(iter(video.views.values()))
    path = folder / "video.mp4"
    with VideoWriter(path, (frames.shape[1], frames.shape[2]), video.fps, crf=4) as writer:
        for frame in frames:
            writer.write(frame)
    return path


def connector(url: str, token: str | None) -> Callable[[], Client]:
    """Makes connections to a server, by the client that a robot's computer has."""
    import hostbot_client

    client: Callable[..., Client] | None = getattr(hostbot_client, "PolicyClient", None)
    if client is None:
        raise BadInput(
            "this hostbot-client cannot talk to a server yet: install the one that came with hostbot"
        )
    return lambda: client(url, token=token)

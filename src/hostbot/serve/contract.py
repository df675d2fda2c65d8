"""What the server needs of a policy, and what it is told about how to serve.

``policy.policy.Policy`` is such a policy; so is anything else with these few methods.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from hostbot.types import ActionChunk, BadInput, Embodiment, Observation

MIN_TOKEN = 16


class Policy(Protocol):
    """Sessions hold all state; every call comes from one thread.

    One that has ``prepare(sessions)``, too, is asked to do what the next step of these sessions can be spared, while
    all robots move and nobody waits; it changes no answer.

    A call that raises ``BadInput`` has changed no session: the server then asks for each robot alone, so that one
    robot's mistake is not another's.
    """

    embodiment: Embodiment
    horizon: int

    def acquire(self, video: Path | None, instruction: str = "") -> Any:
        """A skill from a video file, an instruction, or both."""

    def start(self, skill: Any, seed: int = 0) -> Any:
        """A session at the skill's beginning."""

    def step_batch(
        self, sessions: Sequence[Any], observations: Sequence[Observation]
    ) -> Sequence[ActionChunk]:
        """One chunk a session, in order."""


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """How a server listens and how much it takes on."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 is any free port."""
    token: str = field(default="", repr=False)
    """Asked of every client where it is set; required to listen beyond this machine."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    max_robots: int = 16
    """Connections at once; one more is answered with 503."""
    max_message_bytes: int = 16 << 20
    """Of one message; three views of 1080p must be made smaller first, or this larger."""
    max_video_bytes: int = 256 << 20
    """Of one uploaded video."""
    max_batch: int = 8
    """Robots in one pass of the policy."""
    gather_ms: float = 2.0
    """How long a pass waits for other robots that are about to ask."""
    send_s: float = 10.0
    """A client that does not take its answer for so long is cut off."""
    ping_s: float = 20.0
    """A client that does not answer a ping for so long is cut off."""
    park_s: float = 60.0
    """A session whose connection broke can be resumed for so long."""
    max_skills: int = 64
    """Acquired skills in working memory; the least recently used goes first."""
    max_bad: int = 100
    """Bad messages in a row after which a client is cut off."""
    novel: Literal["refuse", "language"] = "refuse"
    """A task that the memory does not know: ask for a video, or go by the instruction alone."""
    cameras: Mapping[str, str] = field(
        default_factory=lambda: {
            "cam_high": "third_person",
            "cam_left_wrist": "left_wrist",
            "cam_right_wrist": "right_wrist",
            "base_0_rgb": "third_person",
            "left_wrist_0_rgb": "left_wrist",
            "right_wrist_0_rgb": "right_wrist",
        }
    )
    """A client's names of cameras to the policy's views; the views' own names always work."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise BadInput(f"a port is in 0..65535, got {self.port}")
        if self.token and len(self.token) < MIN_TOKEN:
            raise BadInput(f"a token has at least {MIN_TOKEN} characters, got {len(self.token)}")
        if not self.token and not is_loopback(self.host):
            raise BadInput(
                f"listening on {self.host} lets others on the network command the robot: give a token "
                "(--token-file), or listen on 127.0.0.1"
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise BadInput("TLS needs both a certificate and its key")
        if min(self.max_robots, self.max_batch, self.max_skills, self.max_bad) < 1:
            raise BadInput("a server takes at least one robot, one in a batch, one skill, one bad message")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return False

"""``hostbot serve``: a policy on the network, for robots."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from hostbot.cli.embedding import Embedding
from hostbot.cli.policies import Dtype, load_policy
from hostbot.types import BadInput, Embodiment, bimanual

if TYPE_CHECKING:
    from hostbot.memory import DemonstrationMemory
    from hostbot.serve.contract import Policy, ServeConfig
    from hostbot_client.guard import Guard

MAX_BATCH = 8
PathOrNone = Annotated[Path | None, arg(metavar="PATH")]


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Serve a policy to robots over websockets; an unmodified openpi-client can use it.

    Listens on this machine only unless told otherwise, and elsewhere asks for a token. Ctrl-C ends it.
    """

    policy: PathOrNone = None
    """A policy's folder, or `shipped`: the weights that come with hostbot, which have only ever moved the bench."""
    rehearse: bool = False
    """Keep every robot where it is: try cameras, network, limits and the stop before anything moves."""
    host: str = "127.0.0.1"
    port: int = 8000
    token_file: PathOrNone = None
    """A file with the token that clients must give (16 characters or more); $HOSTBOT_TOKEN works too."""
    tls_cert: PathOrNone = None
    """Certificate (PEM) for wss://."""
    tls_key: PathOrNone = None
    """Its key (PEM)."""
    memory: Annotated[str | None, arg(metavar="MEMORY")] = None
    """Demonstrations to choose from by prompt: a folder, or memory+s3://bucket/prefix."""
    embedding: Embedding = field(default_factory=Embedding)
    novel: Literal["refuse", "language"] = "refuse"
    """A prompt the memory does not know: refuse and ask for a video, or go by language alone."""
    video: PathOrNone = None
    """A demonstration that every robot follows which names no other."""
    instruction: str = ""
    """What the video shows."""
    limits: PathOrNone = None
    """A limits file: for robots that have no guard of their own."""
    device: str = "auto"
    """auto, cpu, cuda."""
    dtype: Dtype = "float32"
    max_robots: int = 16
    max_message_mb: int = 16
    rate: float = 16.0
    """Control rate of a rehearsal."""
    horizon: int = 32
    """Steps a chunk of a rehearsal."""

    def run(self) -> None:
        """Serve until interrupted."""
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        config = self._config()
        policy = self._policy()
        guard = self._guard(policy.embodiment)
        asyncio.run(self._serve(policy, config, self._memory(), guard))

    def _config(self) -> ServeConfig:
        from hostbot.serve.contract import ServeConfig

        return ServeConfig(
            host=self.host,
            port=self.port,
            token=read_token(self.token_file),
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            max_robots=self.max_robots,
            max_message_bytes=self.max_message_mb << 20,
            max_batch=MAX_BATCH,
            novel=self.novel,
        )

    def _policy(self) -> Policy:
        from hostbot.serve.rehearsal import Rehearsal

        if self.rehearse == (self.policy is not None):
            raise BadInput("say what to serve: either --policy FOLDER, or --rehearse to move nothing")
        if self.policy is not None:
            return load_policy(self.policy, self.device, self.dtype, MAX_BATCH)
        return Rehearsal(bimanual(self.rate), self.horizon)

    def _memory(self) -> DemonstrationMemory | None:
        if self.memory is None:
            return None
        from hostbot.memory import open_memory

        return open_memory(self.memory, self.embedding.make())

    def _guard(self, embodiment: Embodiment) -> Guard | None:
        if self.limits is None:
            return None
        from hostbot_client.guard import Guard
        from hostbot_client.limits import BadLimits, load_limits

        try:
            limits = load_limits(self.limits)
            limits.check_parts([{"name": p.name, "kind": p.kind} for p in embodiment.parts])
        except BadLimits as reason:
            raise BadInput(str(reason)) from None
        return Guard(limits)

    async def _serve(
        self, policy: Policy, config: ServeConfig, memory: DemonstrationMemory | None, guard: Guard | None
    ) -> None:
        from hostbot.serve.server import PolicyServer
        from hostbot.serve.warm import spare_collector

        server = PolicyServer(policy, config, memory, guard)
        print(f"warmed up in {await server.warm_up():.1f} s", flush=True)
        if self.video is not None or self.instruction:
            server.shelf.default = await server.shelf.acquire(self.video, self.instruction)
        spare_collector()
        await server.start()
        kind = "wss" if config.tls_cert else "ws"
        print(f"serving on {kind}://{config.host}:{server.port} (Ctrl-C ends it)", flush=True)
        ended = asyncio.Event()
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, ended.set)
        await ended.wait()
        await server.stop()
        print("stopped")


def read_token(file: Path | None) -> str:
    """The token in a file or in the environment, never on the command line, where other users see it."""
    if file is None:
        return os.environ.get("HOSTBOT_TOKEN", "")
    return file.read_text(encoding="utf-8").strip()


VERBS = (Serve,)

"""The websocket server: who may connect, how much they may send, and what becomes of them."""

from __future__ import annotations

import asyncio
import collections
import hmac
import http
import logging
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from hostbot.memory import DemonstrationMemory
from hostbot.serve import messages
from hostbot.serve.contract import Policy, ServeConfig, is_loopback
from hostbot.serve.engine import Engine
from hostbot.serve.robot import Robot
from hostbot.serve.shelf import Shelf
from hostbot.serve.warm import warm
from hostbot.types import BadInput
from hostbot_client.codec import BadMessage, pack, unpack
from hostbot_client.guard import Guard

log = logging.getLogger("hostbot.serve")
_wire = logging.getLogger("hostbot.serve.wire")
_wire.setLevel(logging.CRITICAL)  # a port scan is no reason for a traceback
_BUSY, _FAILED, _ABUSE = 1013, 1011, 1008


@dataclass(eq=False)
class _Link:
    """A connection and the session that is using it."""

    connection: ServerConnection
    robot: Robot
    num_bad: int = 0

    @property
    def peer(self) -> str:
        """Whom to name in the log."""
        return _peer(self.connection)


class PolicyServer:
    """A policy, a memory and the robots that are connected to them."""

    def __init__(
        self,
        policy: Policy,
        config: ServeConfig | None = None,
        memory: DemonstrationMemory | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.config, self.policy, self.guard = config or ServeConfig(), policy, guard
        self.engine = Engine(policy, self.config.max_batch, self.config.gather_ms)
        self.shelf = Shelf(self.engine, memory, self.config)
        self.ready = False
        self.num_refused = 0
        self._server: Server | None = None
        self._links: set[_Link] = set()
        self._parked: collections.OrderedDict[str, tuple[float, Robot]] = collections.OrderedDict()

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return int(next(iter(self._server.sockets)).getsockname()[1])

    async def start(self) -> None:
        """Listen; what connects before :attr:`ready` is told to come back."""
        c = self.config
        self._server = await serve(
            self._serve,
            c.host,
            c.port,
            ssl=_tls(c),
            process_request=self._admit,
            # A web page that the user has open must not command the robot: browsers always send an origin.
            origins=[None],
            compression=None,
            max_size=c.max_message_bytes,
            max_queue=2,
            open_timeout=10,
            ping_interval=c.ping_s,
            ping_timeout=c.ping_s,
            close_timeout=2,
            server_header=None,
            logger=_wire,
        )
        self.ready = True

    async def warm_up(self) -> float:
        """Think once at every batch size, so that no robot waits for compilers and caches; seconds."""
        begin = time.monotonic()
        await self.engine.run(lambda: warm(self.policy, self.config.max_batch))
        return time.monotonic() - begin

    async def stop(self) -> None:
        """Close every connection and end the inference thread, within a few seconds."""
        self.ready = False
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        await asyncio.to_thread(self.engine.close)
        for _, robot in self._parked.values():
            robot.drop_upload()

    # Before the handshake --------------------------------------------------------------------------------------

    async def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/healthz":
            return connection.respond(http.HTTPStatus.OK, "OK\n")
        if request.path == "/readyz":
            good = self.ready and self.engine.alive
            status = http.HTTPStatus.OK if good else http.HTTPStatus.SERVICE_UNAVAILABLE
            return connection.respond(status, "ready\n" if good else "not ready\n")
        if not self._allowed(connection, request):
            log.warning("refused %s: wrong or no token", _peer(connection))
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "a token is needed\n")
        if len(self._links) >= self.config.max_robots or not self.ready:
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "busy; try again later\n")
        return None

    def _allowed(self, connection: ServerConnection, request: Request) -> bool:
        if not self.config.token:
            # The socket listens on loopback only; this holds even behind something that forwards to it.
            return is_loopback(str(connection.remote_address[0]))
        given = request.headers.get("Authorization", "")
        kind, _, token = given.partition(" ")
        right = hmac.compare_digest(token.strip().encode(), self.config.token.encode())
        return right and kind.lower() in ("api-key", "bearer")

    # A connection ----------------------------------------------------------------------------------------------

    async def _serve(self, connection: ServerConnection) -> None:
        if len(self._links) >= self.config.max_robots:
            await connection.close(_BUSY, "busy")
            return
        link = _Link(connection, Robot(self.shelf, self.engine, self.config, self.guard))
        self._links.add(link)
        self.engine.num_robots += 1
        try:
            await self._talk(link)
        except (ConnectionClosed, TimeoutError):
            connection.transport.abort()
        finally:
            self.engine.num_robots -= 1
            self._links.discard(link)
            self._park(link.robot)

    async def _talk(self, link: _Link) -> None:
        has_memory = self.shelf.memory is not None
        said = messages.metadata(self.policy.embodiment, self.policy.horizon, link.robot.id, has_memory)
        await self._send(link, pack(said))
        async for data in link.connection:
            try:
                await self._send(link, pack(await self._answer(link, data)))
                link.num_bad = 0
            except (BadInput, BadMessage) as mistake:
                await self._refuse(link, mistake)
            except (ConnectionClosed, TimeoutError):
                raise
            except Exception as failure:  # the policy's or ours: told in the log and nowhere else
                log.error("the policy failed for %s: %s", link.peer, failure, exc_info=failure)
                await self._send(link, "the policy failed; hold, and look into the server's log")
                await link.connection.close(_FAILED, "the policy failed")

    async def _answer(self, link: _Link, data: str | bytes) -> Mapping[str, Any]:
        if isinstance(data, str):
            raise BadMessage("messages are binary msgpack, not text")
        message = unpack(data, self.config.max_message_bytes)
        host = message.get("host") if isinstance(message, Mapping) else None
        op = host.get("op") if isinstance(host, Mapping) else None
        if isinstance(host, Mapping) and isinstance(op, str) and op == "resume":
            link.robot = self._resume(host.get("session"))
            return {"host": {"op": "resume", "session": link.robot.id}}
        return await link.robot.handle(message)

    async def _refuse(self, link: _Link, mistake: Exception) -> None:
        """One sentence, and the connection goes on; a client that sends nothing but mistakes is cut off."""
        link.num_bad, self.num_refused = link.num_bad + 1, self.num_refused + 1
        log.info("refused a message of %s: %s", link.peer, mistake)
        await self._send(link, str(mistake))
        if link.num_bad >= self.config.max_bad:
            log.warning("cut off %s after %d bad messages in a row", link.peer, link.num_bad)
            await link.connection.close(_ABUSE, "too many bad messages")

    async def _send(self, link: _Link, data: str | bytes) -> None:
        """Send, or give the client up: one that does not read must not keep anything waiting."""
        async with asyncio.timeout(self.config.send_s):
            await link.connection.send(data)

    # Sessions whose connection broke -----------------------------------------------------------------------------

    def _park(self, robot: Robot) -> None:
        robot.drop_upload()
        now = time.monotonic()
        self._parked[robot.id] = (now + self.config.park_s, robot)
        gone = [name for name, (until, _) in self._parked.items() if until < now]
        for name in gone + list(self._parked)[: max(0, len(self._parked) - 4 * self.config.max_robots)]:
            self._parked.pop(name, None)

    def _resume(self, name: object) -> Robot:
        """A session by the name only its client knows, even if its old line is not yet known to be dead."""
        for link in self._links:
            if hmac.compare_digest(link.robot.id.encode(), str(name).encode()):
                robot, link.robot = link.robot, Robot(self.shelf, self.engine, self.config, self.guard)
                link.connection.transport.abort()
                return robot
        until, parked = self._parked.pop(str(name), (0.0, None))
        if parked is None or until < time.monotonic():
            raise BadInput("that session is gone")
        return parked


def _peer(connection: ServerConnection) -> str:
    address = connection.remote_address
    return f"{address[0]}:{address[1]}" if address else "somebody"


def _tls(config: ServeConfig) -> ssl.SSLContext | None:
    if config.tls_cert is None or config.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except (OSError, ssl.SSLError) as reason:
        raise BadInput(
            f"{config.tls_cert} and {config.tls_key} are no certificate and key: {reason}"
        ) from None
    return context

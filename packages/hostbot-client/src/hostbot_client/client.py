"""Talk to a policy server: the openpi protocol, plus what hostbot's server adds to it.

Every call sends one message and waits for its answer. When a server does not answer in time the connection is dropped;
the next call opens a new one and takes up the session where it was, which the server keeps for a while.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException
from websockets.sync.client import ClientConnection, connect

from hostbot_client.codec import BadMessage, pack, unpack

_PIECE = 4 * 2**20


class ServerLost(ConnectionError):
    """The server cannot be reached, or did not answer in time; try again or hold."""


class Refused(RuntimeError):
    """The server answered with a sentence instead of actions; the connection goes on."""


class PolicyClient:
    """One robot's connection. Safe to use from one thread at a time; a lock makes others wait."""

    def __init__(
        self,
        url: str = "ws://127.0.0.1:8000",
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        connect_s: float = 10.0,
        answer_s: float = 10.0,
        max_bytes: int = 64 * 2**20,
    ) -> None:
        """``token`` is what the server was started with; ``tls`` a context for wss:// (its own by default)."""
        self.url, self.connect_s, self.answer_s, self.max_bytes = url, connect_s, answer_s, max_bytes
        self._headers = {"Authorization": f"Api-Key {token}"} if token else {}
        self._tls = tls
        self._lock = threading.Lock()
        self._connection: ClientConnection | None = None
        self.metadata: Mapping[str, Any] = {}
        self.num_connections = self.num_lost_sessions = 0
        self._session = self._skill = ""

    def __enter__(self) -> PolicyClient:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def connect(self) -> Mapping[str, Any]:
        """Open the connection if there is none; what the server says of itself."""
        with self._lock:
            self._open()
            return self.metadata

    def wait(self, seconds: float = 60.0, first_pause_s: float = 0.1) -> Mapping[str, Any]:
        """Connect, trying again with growing pauses while the server cannot be reached."""
        end, pause = time.monotonic() + seconds, first_pause_s
        while True:
            try:
                return self.connect()
            except ServerLost:
                if time.monotonic() + pause > end:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 5.0)

    def infer(self, observation: Mapping[str, Any], answer_s: float | None = None) -> dict[str, Any]:
        """An observation in, a dictionary with ``actions`` (H, D) out."""
        return self._ask(dict(observation), answer_s)

    def reset(self) -> dict[str, Any]:
        """Begin the skill again from its start."""
        return self.ask("reset")

    def acquire(
        self,
        video: str | Path | None = None,
        instruction: str = "",
        *,
        name: str | None = None,
        remember: bool = False,
        answer_s: float = 300.0,
        **options: Any,
    ) -> dict[str, Any]:
        """Have the server watch a video of this computer; ``skill`` in the answer names what it learned.

        ``remember`` keeps it in the server's memory. The skill is also started in this session.
        """
        told = {"instruction": instruction, "name": name, "remember": remember, **options}
        if video is not None:
            self._upload(Path(video))
            told["suffix"] = Path(video).suffix
        return self.ask("acquire", answer_s=answer_s, **told)

    def _upload(self, video: Path) -> None:
        with video.open("rb") as file:
            begin = True
            while piece := file.read(_PIECE):
                self.ask("upload", data=piece, begin=begin)
                begin = False

    def ask(self, op: str, *, answer_s: float | None = None, **told: Any) -> dict[str, Any]:
        """One of the server's other operations: acquire, start, reset, query, skills, upload."""
        given = {key: value for key, value in told.items() if value is not None}
        answer = self._ask({"host": {"op": op, **given}}, answer_s)
        found = answer.get("host", {})
        if op in ("acquire", "start") and isinstance(found, Mapping):
            self._skill = str(found.get("skill", ""))
        return dict(found) if isinstance(found, Mapping) else {}

    def _ask(self, message: Mapping[str, Any], answer_s: float | None) -> dict[str, Any]:
        data = pack(message)
        with self._lock:
            connection = self._open()
            try:
                found = self._exchange(connection, data, self.answer_s if answer_s is None else answer_s)
            except Refused:
                raise
            except (WebSocketException, OSError, TimeoutError, BadMessage) as reason:
                # An answer that comes after all must never be taken for the answer to the next question.
                self._drop()
                raise ServerLost(f"{self.url}: {str(reason) or type(reason).__name__}") from None
        return found

    def _exchange(self, connection: ClientConnection, data: bytes, answer_s: float) -> dict[str, Any]:
        connection.send(data)
        return _decoded(connection.recv(timeout=answer_s), self.max_bytes)

    def _open(self) -> ClientConnection:
        if self._connection is not None:
            return self._connection
        try:
            connection = connect(
                self.url,
                additional_headers=self._headers,
                ssl=self._tls,
                compression=None,
                open_timeout=self.connect_s,
                close_timeout=1.0,
                max_size=self.max_bytes,
            ).__enter__()  # the one way to open it that every version of websockets agrees on
        except (InvalidHandshake, OSError, TimeoutError, EOFError) as reason:
            raise ServerLost(f"{self.url}: {str(reason) or type(reason).__name__}") from None
        except (InvalidURI, ValueError) as reason:
            raise ValueError(f"{self.url} is no address of a server: {reason}") from None
        try:
            self.metadata = _decoded(connection.recv(timeout=self.connect_s), self.max_bytes)
            self._rejoin(connection)
        except Refused:
            connection.close()
            raise
        except (WebSocketException, OSError, TimeoutError, BadMessage, KeyError) as reason:
            connection.close()
            raise ServerLost(f"{self.url} did not introduce itself: {reason}") from None
        self._connection, self.num_connections = connection, self.num_connections + 1
        return connection

    def _rejoin(self, connection: ClientConnection) -> None:
        """Take the old session up; where the server has lost it, begin the skill that was named again, and no other."""
        ours, theirs = self._session, str(self.metadata.get("session", ""))
        if ours and theirs:
            try:
                asked = pack({"host": {"op": "resume", "session": ours}})
                self._exchange(connection, asked, self.connect_s)
                return
            except Refused:
                self.num_lost_sessions += 1
        if self._skill:
            asked = pack({"host": {"op": "start", "skill": self._skill}})
            self._exchange(connection, asked, self.connect_s)
        self._session = theirs

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.socket.close()  # at once: a closing handshake would wait for the server that does not answer

    def close(self) -> None:
        """Say goodbye."""
        with self._lock:
            connection, self._connection, self._session, self._skill = self._connection, None, "", ""
        if connection is not None:
            connection.close()


def _decoded(answer: str | bytes, max_bytes: int) -> dict[str, Any]:
    if isinstance(answer, str):
        raise Refused(answer)
    found = unpack(answer, max_bytes)
    if not isinstance(found, dict):
        raise BadMessage(f"the server sent a {type(found).__name__}, not a dictionary")
    return found

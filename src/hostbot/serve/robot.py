"""One robot's connection: which skill it follows, and everything it may ask for.

A message is an observation, or ``{"host": {"op": ...}}``. An unmodified openpi client sends observations only: its
prompt then chooses the skill, and a new prompt begins a new one.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hostbot.memory import as_json
from hostbot.memory.files import suffix_of
from hostbot.serve import messages
from hostbot.serve.contract import ServeConfig
from hostbot.serve.engine import Engine, PolicyFailed
from hostbot.serve.shelf import Held, Shelf
from hostbot.types import BadInput, Observation
from hostbot_client.guard import Guard

_OPS = ("step", "acquire", "upload", "start", "reset", "query", "skills")


class Robot:
    """The state of one session; it outlives a broken connection for a while."""

    def __init__(self, shelf: Shelf, engine: Engine, config: ServeConfig, guard: Guard | None) -> None:
        self.id = secrets.token_hex(16)
        self.shelf, self.engine, self.config, self.guard = shelf, engine, config, guard
        self._held: Held | None = None
        self._chosen = False
        """Whether the client named its skill; otherwise its prompt does."""
        self._session: Any = None
        self._asked = ""
        """The prompt that chose the skill."""
        self._total_ms: float | None = None
        self._video: Any = None
        self._turn = asyncio.Lock()

    async def handle(self, message: Any) -> dict[str, Any]:
        """The answer to one message; ``BadInput`` is the client's to read."""
        if not isinstance(message, Mapping):
            raise BadInput(f"a message is a dictionary, got a {type(message).__name__}")
        host = message.get("host", {})
        if not isinstance(host, Mapping):
            raise BadInput("'host' must be a dictionary")
        op = host.get("op", "reset" if message.get("reset") is True and "state" not in message else "step")
        if not isinstance(op, str) or op not in _OPS:
            raise BadInput(f"there is no operation {str(op)[:40]!r}; there are {', '.join(_OPS)}")
        # A client that lost its line may come back by another while its last question is still being thought about.
        async with self._turn:
            if op == "step":
                return await self._step(message, host)
            told = await getattr(self, f"_{op}")(message, host)
            return {"host": {"op": op, **told}}

    # An observation ------------------------------------------------------------------------------------------

    async def _step(self, message: Mapping[Any, Any], host: Mapping[Any, Any]) -> dict[str, Any]:
        begin = time.monotonic()
        deadline = begin + _deadline_s(host)
        seen = messages.observation(message, self.engine.policy.embodiment, self.config.cameras)
        if message.get("reset") is True:
            self._session = None
        await self._ensure(seen)
        held = self._held
        assert held is not None
        try:
            thought = await self.engine.step(self._session, seen, deadline)
        except PolicyFailed:
            self._session = None  # whatever it was left in is not to be gone on with
            raise
        chunk = thought.chunk
        told: dict[str, Any] = {"skill": held.label or held.id, "score": held.score, "batch": thought.batch}
        if isinstance(host.get("seq"), int):
            told["seq"] = host["seq"]
        actions, refused = self._checked(chunk.actions, seen)
        if refused:
            told["refused"] = refused
        answer = messages.answer(chunk, told, {"infer_ms": thought.infer_ms, "queue_ms": thought.queue_ms})
        answer["actions"] = actions
        if self._total_ms is not None:
            answer["server_timing"]["prev_total_ms"] = self._total_ms
        self._total_ms = 1e3 * (time.monotonic() - begin)
        return answer

    def _checked(self, actions: Any, seen: Observation) -> tuple[np.ndarray, str]:
        """The last look before the wire: nothing non-finite leaves, and nothing out of limits where there are some."""
        shape = (self.engine.policy.horizon, self.engine.policy.embodiment.dim)
        if not isinstance(actions, np.ndarray) or actions.shape != shape or actions.dtype.kind != "f":
            raise PolicyFailed(f"the policy's actions are {np.shape(actions)}, not {shape}")
        if not np.isfinite(actions).all():
            raise PolicyFailed("the policy's actions are not finite; they were withheld")
        if self.guard is None:
            return np.ascontiguousarray(actions, np.float32), ""
        verdict = self.guard(actions, seen.state)
        assert verdict.actions is not None  # the state was checked when it came
        return verdict.actions, str(verdict.refusal or "")

    async def _ensure(self, seen: Observation) -> None:
        """A session to go on with: the skill that was named, the server's own, or what the prompt asks for."""
        held = self._held
        if not self._chosen:
            if self.shelf.default is not None:
                held = self.shelf.default
            elif held is None or (seen.instruction and seen.instruction != self._asked):
                if not seen.instruction:
                    raise BadInput("say what to do: send 'prompt', or acquire or start a skill first")
                scene = seen.views.get("third_person", next(iter(seen.views.values()), None))
                held = await self.shelf.find(seen.instruction, scene)
                self._asked = seen.instruction
        assert held is not None
        if held is not self._held or self._session is None:
            await self._begin(held)

    async def _begin(self, held: Held) -> None:
        session = await self.engine.run(lambda: self.engine.policy.start(held.skill))
        self._held, self._session = held, session

    # Everything else -----------------------------------------------------------------------------------------

    async def _start(self, message: Mapping[Any, Any], host: Mapping[Any, Any]) -> dict[str, Any]:
        name = _text(host, "skill", 200)
        if not name:
            raise BadInput("say which: 'skill' is an id that acquire gave, or a name in memory")
        await self._begin(await self.shelf.named(name))
        self._chosen = True
        return self._following()

    async def _reset(self, message: Mapping[Any, Any], host: Mapping[Any, Any]) -> dict[str, Any]:
        self._session = None
        return self._following() if self._held is not None else {}

    def _following(self) -> dict[str, Any]:
        assert self._held is not None
        held = self._held
        return {"skill": held.label or held.id, "id": held.id, "instruction": held.instruction}

    async def _upload(self, message: Mapping[Any, Any], host: Mapping[Any, Any]) -> dict[str, Any]:
        data = host.get("data")
        if not isinstance(data, bytes):
            raise BadInput("an upload needs 'data', the bytes of a piece of the video")
        if host.get("begin") is True or self._video is None:
            self.drop_upload()
            self._video = tempfile.NamedTemporaryFile(prefix="hostbot-upload-")  # noqa: SIM115 (closed by us)
        count = self._video.tell() + len(data)
        if count > self.config.max_video_bytes:
            self.drop_upload()
            raise BadInput(
                f"a video may have {self.config.max_video_bytes} bytes; make it shorter or smaller"
            )
        await asyncio.to_thread(self._video.write, data)
        return {"bytes": count}

    async def _acquire(self, message: Mapping[Any, Any], host: Mapping[Any, Any]) -> dict[str, Any]:
        begin, instruction = time.monotonic(), _text(host, "instruction", 2000)
        if isinstance(host.get("video"), bytes):
            await self._upload({}, {"data": host["video"], "begin": True})
        if self._video is None and host.get("remember") is True:
            raise BadInput("only a video can be remembered: upload one")
        try:
            with tempfile.TemporaryDirectory(prefix="hostbot-acquire-") as folder:
                video = None if self._video is None else self._as_file(Path(folder), host)
                held = await self.shelf.acquire(video, instruction)
                told = await self._remember(video, instruction, host)
        finally:
            self.drop_upload()
        await self._begin(held)
        self._chosen = True
        return {**self._following(), **told, "seconds": time.monotonic() - begin}

    def _as_file(self, folder: Path, host: Mapping[Any, Any]) -> Path:
        """The upload under a name of its kind; the name is ours, its ending the client's if it is a plain one."""
        suffix = suffix_of(Path("v" + (_text(host, "suffix", 6) or ".mp4")))
        self._video.flush()
        path = folder / f"video{suffix}"
        path.hardlink_to(self._video.name)
        return path

    async def _remember(
        self, video: Path | None, instruction: str, host: Mapping[Any, Any]
    ) -> dict[str, Any]:
        if host.get("remember") is not True or video is None:
            return {}
        added = await self.shelf.remember(video, instruction, _text(host, "name", 80) or None)
        return {"remembered": added.entry.label, "alike": [c.entry.label for c in added.alike]}

    async def _query(self, message: Mapping[Any, Any], host: Mapping[Any, Any]) -> dict[str, Any]:
        instruction = _text(host, "instruction", 2000) or messages.prompt(message)
        picture = host.get("scene")
        scene = messages.image(picture, "scene") if isinstance(picture, np.ndarray) else None
        return dict(as_json(await self.shelf.query(instruction, scene)))

    async def _skills(self, message: Mapping[Any, Any], host: Mapping[Any, Any]) -> dict[str, Any]:
        return {"skills": await asyncio.to_thread(self.shelf.listing)}

    def drop_upload(self) -> None:
        """Give the disk back."""
        if self._video is not None:
            self._video.close()
            self._video = None


def _text(host: Mapping[Any, Any], name: str, longest: int) -> str:
    found = host.get(name, "")
    if not isinstance(found, str) or len(found) > longest:
        raise BadInput(f"{name!r} must be text of at most {longest} characters")
    return found.strip()


def _deadline_s(host: Mapping[Any, Any]) -> float:
    """How long after its arrival an observation is still worth deciding on."""
    found = host.get("deadline_ms")
    if found is None:
        return float("inf")
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < 1e9:
        raise BadInput("'deadline_ms' must be a number of milliseconds above 0")
    return float(found) / 1e3

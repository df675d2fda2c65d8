"""The skills a server has at hand: acquired over the wire, named at its start, or fetched from memory."""

from __future__ import annotations

import asyncio
import collections
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostbot.memory import Added, Answer, DemonstrationMemory, Entry, Match, Novel, explain
from hostbot.serve.contract import ServeConfig
from hostbot.serve.engine import Engine
from hostbot.types import BadInput, Image


@dataclass(frozen=True, kw_only=True)
class Held:
    """A skill ready to be started, under the name clients know it by."""

    id: str
    instruction: str
    skill: Any
    label: str = ""
    """Its name in memory, where it is from there."""
    score: float | None = None


class Shelf:
    """Skills by name, the least recently used going first."""

    def __init__(self, engine: Engine, memory: DemonstrationMemory | None, config: ServeConfig) -> None:
        self.engine, self.memory, self.config = engine, memory, config
        self.default: Held | None = None
        """What a robot does that names no skill."""
        self._held: collections.OrderedDict[str, Held] = collections.OrderedDict()

    async def acquire(self, video: Path | None, instruction: str) -> Held:
        """Watch a video, read an instruction, or both."""
        content = b"" if video is None else await asyncio.to_thread(_digest, video)
        name = hashlib.sha256(content + b"\0" + instruction.encode()).hexdigest()[:32]
        if name in self._held:
            return self._keep(self._held[name])
        skill = await self.engine.run(lambda: self.engine.policy.acquire(video, instruction))
        return self._keep(Held(id=name, instruction=instruction, skill=skill))

    def _keep(self, held: Held) -> Held:
        self._held[held.id] = held
        self._held.move_to_end(held.id)
        while len(self._held) > self.config.max_skills:
            self._held.popitem(last=False)
        return held

    async def remember(self, video: Path, instruction: str, name: str | None) -> Added:
        """Keep a demonstration in memory, for good."""
        memory = self._memory()
        return await asyncio.to_thread(memory.add, video, instruction, name=name)

    async def named(self, name: str) -> Held:
        """A skill by its id, or by its name in memory."""
        if name in self._held:
            return self._keep(self._held[name])
        if self.memory is None:
            raise BadInput(f"there is no skill {name[:80]!r} here: acquire it")
        return await self._fetched(await asyncio.to_thread(self.memory.show, name))

    async def find(self, instruction: str, scene: Image | None) -> Held:
        """The skill for an instruction: from memory where there is one, else by language alone."""
        if self.memory is None:
            return await self.acquire(None, instruction)
        answer = await self.query(instruction, scene)
        if isinstance(answer, Match):
            held = await self._fetched(answer.best.entry)
            return Held(**{**vars(held), "score": answer.best.score})
        if isinstance(answer, Novel) and self.config.novel == "language":
            return await self.acquire(None, instruction)
        raise BadInput(explain(answer))

    async def query(self, instruction: str, scene: Image | None) -> Answer:
        """What the memory says of a task."""
        memory = self._memory()
        seen = scene if memory.sees_scenes else None
        return await asyncio.to_thread(memory.query, instruction, seen)

    async def _fetched(self, entry: Entry) -> Held:
        memory = self._memory()
        video = await asyncio.to_thread(memory.video, entry)
        held = await self.acquire(video, entry.instruction)
        return Held(**{**vars(held), "label": entry.label})

    def _memory(self) -> DemonstrationMemory:
        if self.memory is None:
            raise BadInput("this server has no memory: start it with --memory")
        return self.memory

    def listing(self) -> list[dict[str, str]]:
        """What can be started: skills at hand and those in memory."""
        found = [{"skill": h.id, "instruction": h.instruction} for h in self._held.values()]
        if self.memory is not None:
            found += [{"skill": e.label, "instruction": e.instruction} for e in self.memory.entries()]
        return found


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()

"""DemonstrationMemory: keep every demonstration, and find it again by instruction and scene.

Paper Methods "Persistence across recurring tasks": eq:memory_embed, eq:retrieval_score.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32

from hostbot.memory.embed import Embedder, TextOnly, unit_scene, unit_text
from hostbot.memory.entry import (
    Ambiguous,
    Answer,
    Candidate,
    Embedded,
    Entry,
    Match,
    Novel,
    Retrieval,
    check_name,
    name_of,
)
from hostbot.memory.files import suffix_of
from hostbot.memory.index import Index
from hostbot.memory.store import Revision, Store
from hostbot.types import BadInput, Image
from hostbot.video import VideoLimits, open_video

LIMITS = VideoLimits(max_frames=20_000, max_duration_s=3600.0, max_file_bytes=1 << 30)
"""A demonstration of one task, not a film."""
_SHOWN = 5
Vector: TypeAlias = Float32[np.ndarray, " d"]


@dataclass(frozen=True, kw_only=True)
class Added:
    """What was stored, and what is so alike that a query may not tell them apart."""

    entry: Entry
    alike: tuple[Candidate, ...]


class DemonstrationMemory:
    """The paper's B: demonstrations with their instructions, found by eq:retrieval_score."""

    def __init__(self, store: Store, embedder: Embedder | None, retrieval: Retrieval | None = None) -> None:
        """``embedder`` None is for looking and removing only."""
        self.store, self._embedder, self.retrieval = store, embedder, retrieval or Retrieval()
        self._index: Index | None = None
        self._seen, self._lock = Revision(last=0, rewritten=0), threading.Lock()
        header = store.header()
        if embedder is not None and header is not None and header.embedder != embedder.identity:
            raise BadInput(
                f"{store.where} was made with {header.embedder}, but the embedder is {embedder.identity}; "
                "open it with its own, or export it and import it into a new one"
            )

    @property
    def embedder(self) -> Embedder:
        """What new entries and queries are embedded with."""
        if self._embedder is None:
            raise BadInput(f"{self.store.where} was opened without an embedder: it can be looked at only")
        return self._embedder

    @property
    def sees_scenes(self) -> bool:
        """Whether a query may come with a scene."""
        return not isinstance(self.embedder, TextOnly)

    def __enter__(self) -> DemonstrationMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.store.close()

    def add(
        self,
        video: Path,
        instruction: str,
        *,
        name: str | None = None,
        note: str = "",
        scene: Image | None = None,
    ) -> Added:
        """Keep a demonstration; one of the same name becomes its next version. On disk when this returns.

        The scene is the video's first frame, o^d_1, unless given.
        """
        name = name_of(instruction) if name is None else check_name(name)
        if not video.is_file():
            raise BadInput(f"{video} is no file; a folder of pictures becomes one by `hostbot video cut`")
        with open_video(video, limits=LIMITS) as reader:
            info, first = reader.info, reader.frames([0])[0]
        entry = Entry(
            id=uuid.uuid4().hex,
            name=name,
            version=0,
            instruction=instruction.strip(),
            sha256="",
            suffix=suffix_of(video),
            num_bytes=0,
            num_frames=info.num_frames,
            duration_s=info.duration_s,
            created=datetime.now(UTC).isoformat(timespec="microseconds"),
            note=note,
        )
        row = Embedded(
            entry=entry,
            text=unit_text(self.embedder, instruction),
            scene=unit_scene(self.embedder, first if scene is None else scene),
        )
        added = self.store.add(row, video, self.embedder.identity)
        return Added(entry=added, alike=self._alike(row))

    def _alike(self, row: Embedded) -> tuple[Candidate, ...]:
        near = self._best(row.text, row.scene, self.retrieval.omega)
        return tuple(
            c for c in near if c.entry.name != row.entry.name and c.score >= 1 - self.retrieval.margin
        )

    def query(
        self, instruction: str = "", scene: Image | None = None, retrieval: Retrieval | None = None
    ) -> Answer:
        """The stored demonstration of a task, or that it is novel, or that several are too alike to tell.

        Without a scene the score is the instructions' cosine alone (ω = 1), without an instruction the scenes' (ω = 0).
        """
        rule = retrieval or self.retrieval
        text = unit_text(self.embedder, instruction) if instruction.strip() else None
        seen = None if scene is None else unit_scene(self.embedder, scene)
        if seen is not None and seen.size == 0:
            raise BadInput(f"{self.store.where} compares instructions only; leave the scene out")
        if text is None and seen is None:
            raise BadInput("a query needs an instruction, a scene, or both")
        omega = 1.0 if seen is None else 0.0 if text is None else rule.omega
        return decide(self._best(text, seen, omega), omega, rule)

    def _best(self, text: Vector | None, scene: Vector | None, omega: float) -> list[Candidate]:
        with self._lock:
            self._refresh()
            return [] if self._index is None else self._index.best(text, scene, omega, _SHOWN)

    def _refresh(self) -> None:
        """Take over what any process has added since; build the index anew where something was removed."""
        now, header = self.store.revision(), self.store.header()
        if header is None:
            return
        if self._index is None or now.rewritten != self._seen.rewritten:
            self._index = Index(header.text_width, header.scene_width)
            self._seen = Revision(last=0, rewritten=now.rewritten)
        if now.last != self._seen.last:
            self._index.append(self.store.load(self._seen.last, now.last))
        self._seen = now

    def entries(self, all_versions: bool = False) -> list[Entry]:
        """Everything in force, or every version, in the order it was added."""
        found = self.store.entries()
        if all_versions:
            return found
        latest = {entry.name: entry for entry in sorted(found, key=lambda e: e.age)}
        return [entry for entry in found if latest[entry.name] is entry]

    def show(self, label: str) -> Entry:
        """One entry by name (its highest version) or by ``name@version``."""
        return self._labelled(label)[-1]

    def remove(self, label: str) -> list[Entry]:
        """Forget a skill with all its versions, or one ``name@version``; what was removed."""
        found = self._labelled(label)
        self.store.remove([entry.id for entry in found])
        return found

    def _labelled(self, label: str) -> list[Entry]:
        name, _, version = label.partition("@")
        found = sorted((e for e in self.store.entries() if e.name == name), key=lambda e: e.age)
        chosen = [e for e in found if not version or str(e.version) == version]
        if not chosen:
            versions = ", ".join(e.label for e in found)
            raise BadInput(f"{self.store.where} has no {label!r}" + (f"; it has {versions}" if found else ""))
        return chosen

    def video(self, entry: Entry) -> Path:
        """A file with the entry's video."""
        return self.store.video(entry)


def decide(near: list[Candidate], omega: float, rule: Retrieval) -> Answer:
    """Match, ambiguous or novel, from the highest scores in descending order."""
    if not near or near[0].score < rule.delta:
        return Novel(nearest=tuple(near), omega=omega, delta=rule.delta)
    rivals = tuple(c for c in near if c.score >= rule.delta and near[0].score - c.score < rule.margin)
    if len(rivals) > 1:
        return Ambiguous(candidates=rivals, omega=omega, delta=rule.delta, margin=rule.margin)
    return Match(best=near[0], others=tuple(near[1:]), omega=omega, delta=rule.delta)

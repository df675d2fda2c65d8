"""What a memory needs of whatever keeps it: SQLite beside the robot, or a table that a fleet shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hostbot.memory.entry import Embedded, Entry

FORMAT = 1
"""Of what is stored; a store with a higher one is refused, never guessed at."""


@dataclass(frozen=True, kw_only=True)
class Revision:
    """How far a store has come: with the same ``rewritten``, only rows after ``last`` are new."""

    last: int
    rewritten: int


@dataclass(frozen=True, kw_only=True)
class Header:
    """What all entries of a memory have in common."""

    embedder: str
    text_width: int
    scene_width: int


class Store(Protocol):
    """Keeps entries and videos; a call that returned is on disk, one that was killed left nothing."""

    @property
    def where(self) -> str:
        """What to call it in messages."""

    def header(self) -> Header | None:
        """None while nothing was ever added."""

    def add(self, row: Embedded, video: Path, embedder: str) -> Entry:
        """Keep an entry and its video; ``version`` 0 means the next one of its name."""

    def entries(self) -> list[Entry]:
        """All of them, in the order they came."""

    def remove(self, ids: Sequence[str]) -> None:
        """Forget entries, and their videos where no other entry needs them."""

    def video(self, entry: Entry) -> Path:
        """A file that holds exactly the entry's video."""

    def revision(self) -> Revision:
        """Changes whenever the entries did, by whichever process."""

    def load(self, after: int, until: int) -> list[Embedded]:
        """Entries with their vectors, from the row after ``after`` to the row ``until``."""

    def check(self) -> list[str]:
        """Everything that is wrong, a sentence each; reads every video."""

    def sweep(self) -> int:
        """Remove what killed processes left and nobody needs; how many files."""

    def close(self) -> None:
        """Give files back."""

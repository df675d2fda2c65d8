"""Videos as files named by their content: written aside, flushed, then moved to their place."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hostbot.types import BadInput

_PIECE = 1 << 20
_ABANDONED_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Copied:
    """A video that lies aside, ready to be moved."""

    path: Path
    sha256: str
    num_bytes: int


def sha256_of(path: Path) -> str:
    """The hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def suffix_of(path: Path) -> str:
    """A file's ending, if it is a plain one."""
    return path.suffix.lower() if re.fullmatch(r"\.[a-zA-Z0-9]{1,5}", path.suffix) else ""


class Videos:
    """The folder of videos in a memory."""

    def __init__(self, root: Path) -> None:
        self.root, self._aside = root, root / "aside"

    def place(self, sha256: str, suffix: str) -> Path:
        """Where a video of this content lies."""
        if not re.fullmatch(r"[0-9a-f]{64}", sha256) or not re.fullmatch(r"(\.[a-z0-9]{1,5})?", suffix):
            raise BadInput(f"{sha256!r}{suffix!r} names no video")
        return self.root / sha256[:2] / f"{sha256}{suffix}"

    @contextmanager
    def copied(self, source: Path) -> Iterator[Copied]:
        """A flushed copy beside the others; it vanishes unless :meth:`settle` took it."""
        self._aside.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._aside)
        aside, digest, count = Path(name), hashlib.sha256(), 0
        try:
            with source.open("rb") as reader, os.fdopen(handle, "wb") as writer:
                while piece := reader.read(_PIECE):
                    digest.update(piece)
                    count += writer.write(piece)
                writer.flush()
                os.fsync(writer.fileno())
            aside.chmod(0o644)
            yield Copied(path=aside, sha256=digest.hexdigest(), num_bytes=count)
        finally:
            aside.unlink(missing_ok=True)

    def settle(self, copied: Copied, suffix: str) -> None:
        """Move a copy to its place and make sure that the move is on disk."""
        target = self.place(copied.sha256, suffix)
        target.parent.mkdir(exist_ok=True)
        os.replace(copied.path, target)
        sync_folder(target.parent)
        sync_folder(self.root)

    def all(self) -> Iterator[Path]:
        """Every video there is, needed or not."""
        return self.root.glob("??/*")

    def sweep(self, needed: set[Path]) -> int:
        """Remove what killed processes left behind; the caller holds the store's lock. How many files went."""
        now = time.time()
        gone = [p for p in self._aside.glob("*") if now - p.stat().st_mtime > _ABANDONED_S]
        gone += [p for p in self.all() if p not in needed]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)


def sync_folder(path: Path) -> None:
    """Make a folder's names survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

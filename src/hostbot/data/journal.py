"""Commit many files as one: what was acknowledged survives a kill at any moment, all of it or none.

A LeRobot dataset spreads one episode over a data file, an mp4 a camera and several metadata files, and no
rename replaces them together. So a commit is prepared in ``meta/hostbot/staging``, flushed to disk, and
made true by one rename, ``staging`` to ``overlay``; only then are the files moved to their places.
hostbot's reader looks into the overlay first, so that a dataset whose writer was killed half-way through
the moves reads whole without being touched; the next writer finishes the moves (``settle``).
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import IO

from hostbot.data.files import MANIFEST, OVERLAY, SIDECAR, manifest_bytes, read_manifest
from hostbot.types import DataError
from hostbot.video import crc32

STAGING = f"{SIDECAR}/staging"


class Staging:
    """Files on their way into a dataset: write them under ``path``, then ``commit``.

    ``durable`` flushes everything to disk: the order of writes then survives a power cut, too, not only a kill.
    """

    def __init__(self, root: Path, manifest: dict[str, tuple[int, int]], durable: bool = True) -> None:
        self.root, self.folder = root, root / STAGING
        self.durable = durable
        self.manifest = manifest
        """Files of the last commit."""
        self._added: dict[str, tuple[int, int]] = {}
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, relative: str) -> Path:
        """Where to write a file before it is committed."""
        path = self.folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add(self, relative: str) -> None:
        """Flush a finished file and record its checksum."""
        path = self.folder / relative
        path.chmod(0o644)
        _sync(path, self.durable)
        self._added[relative] = (path.stat().st_size, crc32(path))

    def write(self, relative: str, content: bytes) -> None:
        """Write and add a small file."""
        self.path(relative).write_bytes(content)
        self.add(relative)

    def size(self, relative: str) -> int:
        """Bytes of a file, added here or committed before."""
        return (self._added.get(relative) or self.manifest[relative])[0]

    def commit(self, without: frozenset[str] = frozenset()) -> None:
        """Make everything added here part of the dataset, and the files in ``without`` no longer."""
        kept = {f: v for f, v in self.manifest.items() if f not in without}
        manifest = kept | self._added
        self.path(MANIFEST).write_bytes(manifest_bytes(manifest))
        self.path(MANIFEST).chmod(0o644)
        _sync(self.folder / MANIFEST, self.durable)
        for folder, _, _ in os.walk(self.folder, topdown=False):
            _sync(Path(folder), self.durable)
        os.rename(self.folder, self.root / OVERLAY)
        _sync(self.root / SIDECAR, self.durable)
        settle(self.root, self.durable)
        self.manifest, self._added = manifest, {}

    @property
    def added(self) -> frozenset[str]:
        """What is prepared so far."""
        return frozenset(self._added)

    def discard(self, but: frozenset[str] = frozenset()) -> None:
        """Forget what was prepared, but for these."""
        self._added = {relative: value for relative, value in self._added.items() if relative in but}
        if not self._added:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        for folder, _, names in os.walk(self.folder):
            for path in (Path(folder, name) for name in names):
                if path.relative_to(self.folder).as_posix() not in self._added:
                    path.unlink()


def settle(root: Path, durable: bool = True) -> None:
    """Move committed files from the overlay to their places; safe to repeat, safe to interrupt."""
    overlay = root / OVERLAY
    if not (overlay / MANIFEST).exists():
        # The manifest moves last, so that without one every file has already moved.
        shutil.rmtree(overlay, ignore_errors=True)
        return
    current = _manifest(overlay / MANIFEST)
    staged = [Path(folder, name) for folder, _, names in os.walk(overlay) for name in names]
    folders: set[Path] = set()
    for path in sorted(staged, key=lambda p: (p.name == "info.json", p)):
        relative = path.relative_to(overlay).as_posix()
        if relative == MANIFEST:
            continue
        target = root / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)
        folders.add(target.parent)
    if (root / MANIFEST).exists():
        for relative in _manifest(root / MANIFEST).keys() - current.keys():
            (root / relative).unlink(missing_ok=True)
    for folder in folders:
        _sync(folder, durable)
    os.replace(overlay / MANIFEST, root / MANIFEST)
    _sync(root / SIDECAR, durable)
    shutil.rmtree(overlay, ignore_errors=True)


def lock(root: Path) -> IO[bytes]:
    """Hold a dataset for writing while the returned file is open; the system frees it if we die."""
    (root / SIDECAR).mkdir(parents=True, exist_ok=True)
    held = (root / SIDECAR / "lock").open("ab")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise DataError(f"{root} is being written by another process; wait for it or end it") from None
    return held


def _manifest(path: Path) -> dict[str, tuple[int, int]]:
    return read_manifest(path.read_bytes(), path)


def _sync(path: Path, durable: bool) -> None:
    if not durable:
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

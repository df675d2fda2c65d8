"""The files of a dataset folder: where each one lies, and whether it is still what was written.

hostbot keeps a sidecar in ``meta/hostbot/`` that LeRobot does not look at:

- ``manifest.json``: {"format": 1, "crc32": c, "files": {relative path: [bytes, crc32]}}. It lists every
  file of the dataset, metadata included; ``c`` is the crc32 of ``files`` as compact JSON with sorted keys.
- ``embodiment.json``: what the action vector means, where the writer was told.
- ``events.parquet``: episode_index, frame, name; one row an event.
- ``wordings.json``: other ways to say the tasks (``wordings.py``); not listed, anybody may write it.
- ``overlay/``: only after a crash, or for the instant of a commit. Files in it supersede those of the same
  relative path in the folder (``commit`` in ``journal.py`` says why).

A file the manifest lists is verified once a process, when it is first needed; a dataset without a manifest,
or a file it does not list, is read without. ``meta/episodes`` files written by hostbot say so in their
schema, so that a lost sidecar is noticed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from hostbot.types import DataError
from hostbot.video import crc32

SIDECAR = "meta/hostbot"
MANIFEST = f"{SIDECAR}/manifest.json"
EMBODIMENT = f"{SIDECAR}/embodiment.json"
EVENTS = f"{SIDECAR}/events.parquet"
OVERLAY = f"{SIDECAR}/overlay"
MAX_META_BYTES = 1 << 28
_DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    MemoryError,
    RecursionError,
    OverflowError,
    NotImplementedError,
    pa.ArrowException,
)
_verified: set[tuple[str, int, int, int]] = set()
"""Files of this process whose checksum has been compared: path, bytes, modification time, crc32."""


def one_line(error: BaseException) -> str:
    """What went wrong, on one line short enough to read."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file provokes into one sentence that names it."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path} is missing; restore it from a copy") from None
    except _DAMAGE as error:
        raise DataError(f"{path} cannot be read ({one_line(error)}); restore it from a copy") from None


def parse_json(raw: bytes, path: Path) -> dict[str, Any]:
    """A JSON object, or a sentence."""
    with reading(path):
        value = json.loads(raw.decode("utf-8"))
    if not isinstance(value, dict):
        raise DataError(
            f"{path} must hold a JSON object, not a {type(value).__name__}; restore it from a copy"
        )
    return value


def manifest_bytes(files: dict[str, tuple[int, int]]) -> bytes:
    """``manifest.json``: the files with their checksums, and the checksum of that list."""
    body = json.dumps({k: list(v) for k, v in files.items()}, sort_keys=True, separators=(",", ":"))
    return f'{{"format":1,"crc32":{zlib.crc32(body.encode())},"files":{body}}}\n'.encode()


def read_manifest(raw: bytes, path: Path) -> dict[str, tuple[int, int]]:
    """The files the manifest lists, as (bytes, crc32)."""
    manifest = parse_json(raw, path)
    with reading(path):
        files = {str(name): (int(size), int(crc)) for name, (size, crc) in manifest["files"].items()}
        intact = manifest["format"] == 1 and raw == manifest_bytes(files)
    if not intact:
        raise DataError(
            f"{path} does not match its own checksum; restore it from a copy, or open with verify=False"
        )
    return files


class Files:
    """Resolves and verifies the files of one dataset folder."""

    def __init__(self, root: Path, verify: bool = True) -> None:
        self.root = root
        self.verify = verify
        self.manifest: dict[str, tuple[int, int]] = {}
        """What the sidecar lists; empty without one."""
        raw = self._manifest_now()
        self.has_manifest, self._manifest_raw = raw is not None, raw
        if raw is not None and verify:
            self.manifest = read_manifest(raw, root / MANIFEST)

    def path(self, relative: str) -> Path:
        """Where the current version of a file lies: the overlay if it is there, else its place."""
        staged = self.root / OVERLAY / relative
        return staged if staged.exists() else self.root / relative

    def has_moved(self) -> bool:
        """Whether a writer is committing, or has since this folder was opened."""
        return (self.root / OVERLAY).exists() or self._manifest_now() != self._manifest_raw

    def _manifest_now(self) -> bytes | None:
        """The manifest in force; it may move out of the overlay between looking and reading."""
        for path in (self.root / OVERLAY / MANIFEST, self.root / MANIFEST):
            try:
                if path.stat().st_size <= MAX_META_BYTES:
                    return path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise DataError(
                    f"{path} cannot be read ({one_line(error)}); restore it from a copy"
                ) from None
            raise DataError(f"{path} is over {MAX_META_BYTES >> 20} MB, too large for metadata; restore it")
        return None

    def exists(self, relative: str) -> bool:
        """Whether the file is there at all."""
        return (self.root / OVERLAY / relative).exists() or (self.root / relative).exists()

    def checked(self, relative: str) -> Path:
        """The path of a file that is present, not empty, and what the manifest says."""
        path = self.path(relative)
        with reading(path):
            stat = path.stat()
        if stat.st_size == 0:
            raise DataError(f"{path} is empty; restore it from a copy")
        if relative not in self.manifest:
            return path
        size, crc = self.manifest[relative]
        key = (str(path), stat.st_size, stat.st_mtime_ns, crc)
        if key in _verified:
            return path
        with reading(path):
            intact = stat.st_size == size and crc32(path) == crc
        if not intact:
            raise DataError(
                f"{path} differs from the checksum recorded when it was written; "
                "restore it from a copy, or open with verify=False if you changed it yourself"
            )
        _verified.add(key)
        return path

    def present(self) -> None:
        """Every file the manifest lists is there, of its recorded size; checksums are left to first use."""
        for relative, (size, _) in self.manifest.items():
            path = self.path(relative)
            with reading(path):
                found = path.stat().st_size
            if found != size:
                raise DataError(
                    f"{path} has {found} bytes but was written with {size}; restore it from a copy"
                )

    def read(self, relative: str) -> bytes:
        """The bytes of a metadata file, checked."""
        return self._small(self.checked(relative))

    def listing(self, folder: str, suffix: str) -> list[str]:
        """Relative paths below a folder, sorted: what the manifest lists, or without one what is there."""
        if self.manifest:
            return sorted(f for f in self.manifest if f.startswith(folder + "/") and f.endswith(suffix))
        return self.on_disk(folder, suffix)

    def on_disk(self, folder: str, suffix: str) -> list[str]:
        """Relative paths of the files that lie two levels below a folder, sorted."""
        found = (self.root / folder).glob(f"*/*{suffix}")
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def _small(self, path: Path) -> bytes:
        with reading(path):
            if path.stat().st_size > MAX_META_BYTES:
                raise DataError(
                    f"{path} is over {MAX_META_BYTES >> 20} MB, too large for metadata; restore it"
                )
            return path.read_bytes()

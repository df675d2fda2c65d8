"""Which store a memory's address means.

- ``DIR`` or ``memory:///abs/dir``: SQLite in a folder of this machine.
- ``memory+s3://bucket/prefix``, ``memory+gs://…``, ``memory+az://…``: a LanceDB table on object storage, for a fleet.
- ``memory+lance:///abs/dir``: the same table in a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hostbot.memory.embed import Embedder
from hostbot.memory.entry import Retrieval
from hostbot.memory.memory import DemonstrationMemory
from hostbot.memory.sqlite import SqliteStore
from hostbot.memory.store import Store
from hostbot.types import BadInput

_REMOTE = ("s3", "gs", "az")


def open_memory(
    url: str | Path,
    embedder: Embedder | None,
    retrieval: Retrieval | None = None,
    storage: Mapping[str, str] | None = None,
    create: bool = True,
) -> DemonstrationMemory:
    """The memory at an address; a new one where nothing is yet. Without an embedder it can be looked at only."""
    return DemonstrationMemory(open_store(url, storage, create), embedder, retrieval)


def open_store(url: str | Path, storage: Mapping[str, str] | None = None, create: bool = True) -> Store:
    """The store at an address; ``storage`` are object-store options (endpoint, region, keys)."""
    text = str(url)
    if "://" not in text:
        return _local(Path(text).expanduser(), create)
    parts = urlsplit(text)
    if parts.scheme == "memory":
        return _local(_folder(text, parts.netloc, parts.path), create)
    if not parts.scheme.startswith("memory+"):
        raise BadInput(f"{text} is no memory: give a folder, memory:///folder, or memory+s3://bucket/prefix")
    kind = parts.scheme.removeprefix("memory+")
    from hostbot.memory.lance import LanceStore

    if kind == "lance":
        return LanceStore(str(_folder(text, parts.netloc, parts.path)))
    if kind not in _REMOTE or not parts.netloc:
        raise BadInput(f"{text} is no memory: known are memory+s3, memory+gs, memory+az and memory+lance")
    return LanceStore(f"{kind}://{parts.netloc}{parts.path}", dict(storage or {}))


def _local(folder: Path, create: bool) -> SqliteStore:
    if not create and not (folder / "memory.db").is_file():
        raise BadInput(f"there is no memory in {folder}; `hostbot memory add` makes one")
    return SqliteStore(folder)


def _folder(url: str, host: str, path: str) -> Path:
    if host or not path.strip("/"):
        raise BadInput(f"{url} needs three slashes before a folder, e.g. memory:///home/me/skills")
    return Path(unquote(path))

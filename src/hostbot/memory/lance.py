"""A store that a fleet shares: one LanceDB table in a folder or on object storage (extra ``lance``).

An entry and its video are one row, so that one commit holds both or neither. Readers on any machine see a commit at
their next query. Many writers work, one at a time is faster: commits of two are retried, and one name added twice at
the same instant may get the same version twice (the later one counts). Scores are the same matrix product as with
SQLite: an approximate index would make a threshold meaningless.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hostbot.memory.entry import Embedded, Entry
from hostbot.memory.files import Videos
from hostbot.memory.store import FORMAT, Header, Revision
from hostbot.types import BadInput

_TABLE = "demonstrations"
_MAX_VIDEO = 1 << 30
_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
_FIELDS = {field.name: _TYPES[str(field.type)] for field in fields(Entry)}
_VECTORS = {"text": pa.list_(pa.float32()), "scene": pa.list_(pa.float32())}


class LanceStore:
    """The table at an address LanceDB understands: a folder, ``s3://``, ``gs://`` or ``az://``."""

    def __init__(self, uri: str, storage: Mapping[str, str] | None = None, cache: Path | None = None) -> None:
        try:
            import lancedb
        except ModuleNotFoundError:
            raise BadInput("a shared memory needs `pip install 'hostbot[lance]'`") from None
        self._uri = uri
        self._db: Any = lancedb.connect(uri, storage_options=dict(storage or {}) or None)
        default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "hostbot"
        self._cache = Videos((cache or default) / "videos")
        self._opened: Any = None

    @property
    def where(self) -> str:
        """The address."""
        return self._uri

    def _table(self) -> Any | None:
        """The table as it is now; None before the first entry."""
        if self._opened is None:
            try:
                self._opened = self._db.open_table(_TABLE)
            except (ValueError, FileNotFoundError) as reason:
                if "not found" in str(reason).lower():
                    return None
                raise BadInput(f"{self._uri} cannot be used: {reason}") from None
        self._opened.checkout_latest()
        return self._opened

    def header(self) -> Header | None:
        """Written with the table: whoever makes it first decides, for all."""
        table = self._table()
        if table is None:
            return None
        found = json.loads(table.schema.metadata[b"hostbot"])
        if found.pop("format") > FORMAT:
            raise BadInput(f"{self._uri} was written by a newer hostbot: update this one")
        return Header(**found)

    def add(self, row: Embedded, video: Path, embedder: str) -> Entry:
        """One row, one commit."""
        if video.stat().st_size > _MAX_VIDEO:
            raise BadInput(f"{video} has {video.stat().st_size} bytes, the limit is {_MAX_VIDEO}")
        content = video.read_bytes()
        header = Header(embedder=embedder, text_width=row.text.size, scene_width=row.scene.size)
        table = self._table() or self._create(header)
        found = self.header()
        if found != header:
            raise BadInput(f"{self._uri} was made with {found}, this is {header}")
        entry = replace(row.entry, sha256=hashlib.sha256(content).hexdigest(), num_bytes=len(content))
        entry = replace(entry, version=entry.version or self._next_version(entry.name))
        values = {name: [getattr(entry, name)] for name in _FIELDS}
        values |= {"text": [row.text.tolist()], "scene": [row.scene.tolist()], "video": [content]}
        table.add(pa.table(values, schema=table.schema))
        return entry

    def _create(self, header: Header) -> Any:
        described = {b"hostbot": json.dumps({"format": FORMAT, **vars(header)}).encode()}
        schema = pa.schema({**_FIELDS, **_VECTORS, "video": pa.large_binary()}, metadata=described)
        self._opened = self._db.create_table(_TABLE, schema=schema, exist_ok=True)
        self._opened.checkout_latest()
        return self._opened

    def _next_version(self, name: str) -> int:
        return max((e.version for e in self.entries() if e.name == name), default=0) + 1

    def _rows(self, columns: Sequence[str], where: str | None = None) -> list[dict[str, Any]]:
        table = self._table()
        if table is None:
            return []
        asked = table.search().select(list(columns))
        found: pa.Table = (asked.where(where) if where else asked).limit(table.count_rows()).to_arrow()
        return list(found.to_pylist())

    def entries(self) -> list[Entry]:
        """In the order they were made."""
        return sorted((Entry(**row) for row in self._rows(tuple(_FIELDS))), key=_order)

    def remove(self, ids: Sequence[str]) -> None:
        """One commit; the videos' bytes go when :meth:`sweep` drops versions older than a week."""
        table = self._table()
        if table is not None and ids:
            table.delete(f"id in ({', '.join(_quoted(one) for one in ids)})")

    def sweep(self) -> int:
        """Join small commits and drop what a week has passed over."""
        table = self._table()
        if table is not None:
            table.optimize(cleanup_older_than=timedelta(days=7))
        return 0

    def video(self, entry: Entry) -> Path:
        """The video in this machine's cache, fetched once."""
        path = self._cache.place(entry.sha256, entry.suffix)
        if not path.exists():
            found = self._rows(["video"], f"id = {_quoted(entry.id)}")
            if not found or hashlib.sha256(found[0]["video"]).hexdigest() != entry.sha256:
                raise BadInput(f"the video of {entry.label} is not in {self._uri} as it was stored")
            self._keep(found[0]["video"], entry.suffix)
        return path

    def _keep(self, content: bytes, suffix: str) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            with self._cache.copied(Path(file.name)) as copied:
                self._cache.settle(copied, suffix)

    def revision(self) -> Revision:
        """Every commit is a new version, and everything is read again."""
        table = self._table()
        return (
            Revision(last=0, rewritten=0) if table is None else Revision(last=1, rewritten=int(table.version))
        )

    def load(self, after: int, until: int) -> list[Embedded]:
        """All entries with their vectors."""
        rows = self._rows((*_FIELDS, *_VECTORS))
        found = [
            Embedded(
                text=np.array(row.pop("text"), np.float32),
                scene=np.array(row.pop("scene"), np.float32),
                entry=Entry(**row),
            )
            for row in rows
        ]
        return sorted(found, key=lambda row: _order(row.entry))

    def check(self) -> list[str]:
        """Every video's hash, one at a time."""
        wrong = []
        for entry in self.entries():
            found = self._rows(["video"], f"id = {_quoted(entry.id)}")
            if not found or hashlib.sha256(found[0]["video"]).hexdigest() != entry.sha256:
                wrong.append(f"the video of {entry.label} is not what was stored")
        return wrong

    def close(self) -> None:
        """Nothing is held between calls."""
        self._opened = None


def _order(entry: Entry) -> tuple[str, str]:
    return entry.created, entry.id


def _quoted(identity: str) -> str:
    """An id inside a filter; ids are hexadecimal, and nothing else gets into one."""
    if not re.fullmatch(r"[0-9a-f]{1,64}", identity):
        raise BadInput(f"{identity!r} is no entry's id")
    return f"'{identity}'"

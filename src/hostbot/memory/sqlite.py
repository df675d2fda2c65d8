"""The default store: one SQLite file beside a folder of videos, for any number of processes on one machine.

Write-ahead log, full sync: an entry whose ``add`` returned survives a kill and a power cut. A video is moved to its
place inside the transaction that adds its row, and removed inside one that finds no row for it, so that no row ever
lacks its video; a kill can at most leave a video that no row names, which ``check`` reports and ``sweep`` removes.
The log needs a local disk: on a network mount SQLite's locks are not to be trusted.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from hostbot.memory.entry import Embedded, Entry
from hostbot.memory.files import Videos, sha256_of
from hostbot.memory.store import FORMAT, Header, Revision
from hostbot.types import BadInput

_FIELDS = tuple(field.name for field in fields(Entry))
_TABLES = f"""
create table if not exists header (key text primary key, value text not null);
create table if not exists entries (
  row integer primary key autoincrement,
  id text not null unique, name text not null, version integer not null,
  instruction text not null, sha256 text not null, suffix text not null, num_bytes integer not null,
  num_frames integer not null, duration_s real not null, created text not null, note text not null,
  text blob not null, scene blob not null,
  unique (name, version));
create index if not exists by_video on entries (sha256, suffix);
insert or ignore into header values ('format', '{FORMAT}'), ('rewritten', '0');
"""
_BUSY_S = 60.0


class SqliteStore:
    """A memory in a folder: ``memory.db`` and ``videos/``."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{folder} is a file; a memory is a folder")
        self._folder, self._lock = folder, threading.RLock()
        (folder / "videos").mkdir(parents=True, exist_ok=True)
        self._videos = Videos(folder / "videos")
        # Two processes that turn the log on at once disturb each other whatever the timeout: one after the other.
        with self._told(), (folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._db = sqlite3.connect(
                folder / "memory.db", timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._prepare()

    def _prepare(self) -> None:
        self._db.execute("pragma journal_mode=wal")
        self._db.execute("pragma synchronous=full")
        self._db.executescript(f"begin immediate; {_TABLES} commit;")
        found = int(self._value("format"))
        if found > FORMAT:
            raise BadInput(f"{self._folder} has format {found}, this hostbot reads up to {FORMAT}: update it")

    @property
    def where(self) -> str:
        """The folder."""
        return str(self._folder)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's complaints in one sentence that names the memory."""
        try:
            yield
        except sqlite3.OperationalError as reason:
            raise BadInput(f"{self._folder} cannot be used: {reason}") from None
        except sqlite3.DatabaseError as reason:
            raise BadInput(
                f"{self._folder}/memory.db is damaged ({reason}); restore it from a copy"
            ) from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction that no other process shares; nothing of it remains if it does not end."""
        with self._lock, self._told():
            self._db.execute("begin immediate")
            try:
                yield
            except BaseException:
                self._db.execute("rollback")
                raise
            self._db.execute("commit")

    def _value(self, key: str) -> str:
        with self._lock, self._told():
            found = self._db.execute("select value from header where key = ?", (key,)).fetchone()
        return "" if found is None else str(found[0])

    def header(self) -> Header | None:
        """What the first entry fixed."""
        found = self._value("common")
        return Header(**json.loads(found)) if found else None

    def add(self, row: Embedded, video: Path, embedder: str) -> Entry:
        """Keep an entry and its video; returns when both are on disk."""
        header = Header(embedder=embedder, text_width=row.text.size, scene_width=row.scene.size)
        with self._videos.copied(video) as copied, self._writing():
            entry = replace(row.entry, sha256=copied.sha256, num_bytes=copied.num_bytes)
            self._agree(header)
            entry = replace(entry, version=entry.version or self._next_version(entry.name))
            if not self._videos.place(entry.sha256, entry.suffix).exists():
                self._videos.settle(copied, entry.suffix)
            self._insert(entry, row)
        return entry

    def _agree(self, header: Header) -> None:
        """The first entry's encoder is the memory's; another one's vectors would be compared with nothing."""
        found = self.header()
        if found is None:
            self._db.execute("insert into header values ('common', ?)", (json.dumps(vars(header)),))
        elif found != header:
            raise BadInput(f"{self._folder} was made with {found}, this is {header}")

    def _next_version(self, name: str) -> int:
        found = self._db.execute("select max(version) from entries where name = ?", (name,)).fetchone()
        return int(found[0] or 0) + 1

    def _insert(self, entry: Entry, row: Embedded) -> None:
        values = [getattr(entry, name) for name in _FIELDS]
        values += [np.asarray(v, "<f4").tobytes() for v in (row.text, row.scene)]
        places = ", ".join("?" * len(values))
        try:
            self._db.execute(
                f"insert into entries ({', '.join(_FIELDS)}, text, scene) values ({places})", values
            )
        except sqlite3.IntegrityError:
            raise BadInput(f"{self._folder} has {entry.label} or the id {entry.id} already") from None

    def entries(self) -> list[Entry]:
        """In the order they came."""
        with self._lock, self._told():
            found = self._db.execute(f"select {', '.join(_FIELDS)} from entries order by row").fetchall()
        return [Entry(**dict(zip(_FIELDS, values, strict=True))) for values in found]

    def remove(self, ids: Sequence[str]) -> None:
        """Rows first, videos after: a kill between the two leaves a video too many, never one too few."""
        with self._writing():
            self._db.executemany("delete from entries where id = ?", [(one,) for one in ids])
            self._db.execute("update header set value = cast(value as integer) + 1 where key = 'rewritten'")
        self.sweep()

    def sweep(self) -> int:
        """Remove videos that no entry names, and copies abandoned an hour ago; how many went."""
        with self._writing():
            needed = {self._videos.place(e.sha256, e.suffix) for e in self.entries()}
            return self._videos.sweep(needed)

    def video(self, entry: Entry) -> Path:
        """The stored file."""
        path = self._videos.place(entry.sha256, entry.suffix)
        if not path.exists():
            raise BadInput(f"the video of {entry.label}, {path}, is missing; restore it from a copy")
        return path

    def revision(self) -> Revision:
        """Two counters, read together."""
        asked = (
            "select (select coalesce(max(row), 0) from entries), "
            "(select cast(value as integer) from header where key = 'rewritten')"
        )
        with self._lock, self._told():
            last, rewritten = self._db.execute(asked).fetchone()
        return Revision(last=int(last), rewritten=int(rewritten))

    def load(self, after: int, until: int) -> list[Embedded]:
        """Entries with their vectors."""
        fields = ", ".join(_FIELDS)
        asked = f"select text, scene, {fields} from entries where row > ? and row <= ? order by row"
        with self._lock, self._told():
            found = self._db.execute(asked, (after, until)).fetchall()
        return [
            Embedded(
                entry=Entry(**dict(zip(_FIELDS, values, strict=True))),
                text=np.frombuffer(text, "<f4"),
                scene=np.frombuffer(scene, "<f4"),
            )
            for text, scene, *values in found
        ]

    def check(self) -> list[str]:
        """The database's own check, every vector, every video's hash, and what belongs to no entry."""
        with self._lock, self._told():
            wrong = [str(line) for (line,) in self._db.execute("pragma integrity_check") if line != "ok"]
        rows = self.load(0, self.revision().last)
        for row in rows:
            vectors = np.concatenate([row.text, row.scene])
            if not np.isfinite(vectors).all():
                wrong.append(f"{row.entry.label} has a vector that is not finite")
            path = self._videos.place(row.entry.sha256, row.entry.suffix)
            if not path.exists():
                wrong.append(f"the video of {row.entry.label} is missing: {path}")
            elif sha256_of(path) != row.entry.sha256:
                wrong.append(f"the video of {row.entry.label} is not what was stored: {path}")
        needed = {self._videos.place(row.entry.sha256, row.entry.suffix) for row in rows}
        return wrong + [f"no entry names {path}" for path in self._videos.all() if path not in needed]

    def close(self) -> None:
        """Close the database; the log is folded in by the last process that does."""
        with self._lock:
            self._db.close()

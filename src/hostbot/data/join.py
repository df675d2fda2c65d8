"""Gather one-episode files into large ones: which file each episode goes to, and the metadata that says so.

A stream is ``data``, ``meta`` (``meta/episodes``) or a camera's key. Its tail, the last joined file, is
filled up first: the episodes already in it keep their places, so that only the metadata of the new ones
change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from hostbot.data.files import Files
from hostbot.data.journal import Staging
from hostbot.data.layout import moved_rows, slots_of, stream_path
from hostbot.data.merge import Slot, assign, join_tables, join_videos, parquet_writer

MAX_VIDEO_SECONDS = 1024
_NO_LIMIT = 1 << 62
Placed = list[tuple[Slot, int]]


class Joiner:
    """Prepares the joined files of one commit; ``limits`` are the most bytes of a data and a video file."""

    def __init__(
        self,
        staging: Staging,
        files: Files,
        tails: Mapping[str, Slot],
        fps: int,
        limits: tuple[int, int],
    ) -> None:
        self.staging, self.files, self.tails = staging, files, tails
        self.fps, self.limits = fps, limits

    def join(self, streams: Sequence[str], count: int) -> tuple[dict[str, Slot], frozenset[str]]:
        """Join the last ``count`` episodes; the new tail of every stream, and the files no longer needed."""
        listed = self.files.listing("meta/episodes", ".parquet")[-count:]
        rows = pa.concat_tables([pq.read_table(self.files.checked(f), partitioning=None) for f in listed])
        lengths = rows["length"].to_pylist()
        replaced, tails, moved = set(listed), {}, {}
        for stream in streams:
            parts = [stream_path(stream, slot) for slot in slots_of(rows, stream)]
            sizes = [(self.files.manifest[p][0], n) for p, n in zip(parts, lengths, strict=True)]
            moved[stream] = assign(self.tails.get(stream), sizes, *self._cap(stream))
            tails[stream] = self._stream(stream, parts, moved[stream], lengths)
            replaced |= set(parts)
        tails["meta"] = self._meta(moved_rows(rows, moved, self.fps))
        return tails, frozenset(replaced)

    def _cap(self, stream: str) -> tuple[int, int]:
        if stream == "data":
            return self.limits[0], _NO_LIMIT
        return self.limits[1], MAX_VIDEO_SECONDS * self.fps

    def _stream(self, stream: str, parts: Sequence[str], moved: Placed, lengths: Sequence[int]) -> Slot:
        """Write the joined files of one stream; the last of them is its new tail."""
        groups: dict[str, list[int]] = {}
        for n, (slot, _) in enumerate(moved):
            groups.setdefault(stream_path(stream, slot), []).append(n)
        for target, members in groups.items():
            sources = [self.files.checked(parts[n]) for n in members]
            if moved[members[0]][1]:
                sources.insert(0, self.files.checked(target))
            if stream == "data":
                join_tables(sources, self.staging.path(target))
            else:
                join_videos(sources, self.staging.path(target), self.fps)
            self.staging.add(target)
        last, start = moved[-1]
        slot = Slot(chunk=last.chunk, file=last.file)
        return slot.plus(self.staging.size(stream_path(stream, slot)), start + lengths[-1])

    def _meta(self, rows: pa.Table) -> Slot:
        """Append the moved rows to the last joined ``meta/episodes`` file, or begin the next."""
        [(slot, start)] = assign(self.tails.get("meta"), [(rows.nbytes, 1)], self.limits[0], _NO_LIMIT)
        target = stream_path("meta", slot)
        for name, value in (("chunk_index", slot.chunk), ("file_index", slot.file)):
            place = rows.schema.get_field_index(f"meta/episodes/{name}")
            column = pa.array([value] * len(rows), pa.int64())
            rows = rows.set_column(place, f"meta/episodes/{name}", column)
        if start:
            before = pq.read_table(self.files.checked(target), partitioning=None)
            rows = pa.concat_tables([before, rows]).replace_schema_metadata(rows.schema.metadata)
        with parquet_writer(self.staging.path(target), rows.schema) as writer:
            writer.write_table(rows)
        self.staging.add(target)
        return Slot(chunk=slot.chunk, file=slot.file).plus(self.staging.size(target), 1)

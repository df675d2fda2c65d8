"""Join one-episode files into the large ones LeRobot expects, without touching a number or a pixel.

Rows are copied row group by row group; video packets are copied as they are (no decoding), their times
shifted so that the joined file runs at one constant rate from 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import pyarrow.parquet as pq

from hostbot.data.schema import CHUNKS_SIZE
from hostbot.types import DataError

TICKS = 512
"""Ticks a frame in joined files; any whole number will do."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A file of a growing stream of files, and how full it is."""

    chunk: int
    file: int
    num_bytes: int = 0
    num_frames: int = 0

    def next(self) -> Slot:
        """The file after this one, by LeRobot's rule of a thousand files a chunk."""
        full = self.file + 1 >= CHUNKS_SIZE
        return Slot(chunk=self.chunk + full, file=0 if full else self.file + 1)

    def plus(self, num_bytes: int, num_frames: int) -> Slot:
        """The same file with more in it."""
        return Slot(
            chunk=self.chunk,
            file=self.file,
            num_bytes=self.num_bytes + num_bytes,
            num_frames=self.num_frames + num_frames,
        )


def assign(
    tail: Slot | None, sizes: Sequence[tuple[int, int]], max_bytes: int, max_frames: int
) -> list[tuple[Slot, int]]:
    """For each (bytes, frames) the file it goes to and its first frame there; ``tail`` is filled up first."""
    slot = tail or Slot(chunk=0, file=0)
    placed = []
    for num_bytes, num_frames in sizes:
        full = slot.num_bytes + num_bytes > max_bytes or slot.num_frames + num_frames > max_frames
        if slot.num_frames and full:
            slot = slot.next()
        placed.append((slot, slot.num_frames))
        slot = slot.plus(num_bytes, num_frames)
    return placed


def join_tables(parts: Sequence[Path], target: Path) -> None:
    """Parquet files one after the other, their row groups kept."""
    writer: pq.ParquetWriter | None = None
    try:
        for part in parts:
            with pq.ParquetFile(part, page_checksum_verification=True) as file:
                writer = writer or parquet_writer(target, file.schema_arrow)
                for group in range(file.metadata.num_row_groups):
                    table = file.read_row_group(group)
                    writer.write_table(table, row_group_size=max(1, len(table)))
    finally:
        if writer is not None:
            writer.close()


def parquet_writer(path: Path, schema: object) -> pq.ParquetWriter:
    """A writer with page checksums, so that a flipped bit is noticed by any reader that looks."""
    return pq.ParquetWriter(path, schema, compression="snappy", use_dictionary=True, write_page_checksum=True)


def join_videos(parts: Sequence[Path], target: Path, fps: int) -> None:
    """mp4 files one after the other by copying packets; all must come from the same encoder settings."""
    clock, settings, position, crc = Fraction(1, fps * TICKS), b"", 0, 0
    with av.open(str(target), "w", format="mp4") as output:
        out = None
        for part in parts:
            with av.open(str(part)) as source:
                stream = source.streams.video[0]
                extradata = bytes(stream.codec_context.extradata or b"")
                if out is None:
                    out, settings = output.add_stream_from_template(stream, opaque=True), extradata
                    out.time_base = clock
                if extradata != settings:
                    raise DataError(
                        f"{part} has other encoder settings than the files before it; encode it anew"
                    )
                for packet in source.demux(stream):
                    if packet.size == 0:
                        continue
                    crc = zlib.crc32(packet, crc)
                    packet.pts = packet.dts = position * TICKS
                    packet.duration, packet.time_base, packet.stream = TICKS, clock, out
                    output.mux(packet)
                    position += 1
    if _packets(target) != (position, crc):
        raise DataError(f"{target} does not hold the {position} packets copied to it; is the disk sound?")


def _packets(path: Path) -> tuple[int, int]:
    """How many packets a file has, and the checksum of them all."""
    count = crc = 0
    with av.open(str(path)) as source:
        for packet in source.demux(source.streams.video[0]):
            if packet.size:
                count, crc = count + 1, zlib.crc32(packet, crc)
    return count, crc

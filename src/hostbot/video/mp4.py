"""The promises of an mp4 or mov: what its boxes and sample tables say of the film.

Legend: a box is a named, sized part; ``stsz`` holds sample sizes, ``stts`` their durations, ``ctts`` the
delay from decoding to display, ``elst`` the edit list, by which phones trim without re-encoding.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from hostbot.video.limits import PathLike, VideoLimits, check_frame_size, cut, within

Box = tuple[bytes, int, int]
"""Name, and where its content begins and ends."""

FIRST_BOXES = {b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof", b"sidx"}
_TOP = FIRST_BOXES | {b"mfra", b"uuid", b"udta", b"meta"}
_TABLES = {b"mvhd", b"mdhd", b"hdlr", b"elst", b"stsd", b"trun", b"stsz", b"stts", b"ctts"}
_PARENTS = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf", b"mvex", b"edts"}


@dataclass
class _Track:
    """What one track's tables add up to."""

    handler: bytes = b""
    timescale: int = 1
    num_samples: int | None = None
    num_empty: int = 0
    """Samples without data: the frame before them stays on."""
    num_timed: int = 0
    num_ticks: int = 0
    first_delay: int = 0
    edits: list[tuple[int, int]] = field(default_factory=list)
    """Segment duration (movie clock) and media time (track clock; -1 for a pause) of each edit."""

    def is_trimmed(self, movie_timescale: int) -> bool:
        """Whether the edit list leaves out frames."""
        shown = [edit for edit in self.edits if edit[1] >= 0]
        if not self.edits or not self.num_samples:
            return False
        if len(shown) != 1 or shown[0][1] > self.first_delay:
            return True
        frame_s = self.num_ticks / self.num_samples / self.timescale
        return (
            shown[0][0] / movie_timescale
            < self.num_ticks / self.timescale - frame_s / 2 - 2 / movie_timescale
        )


def check_mp4(path: PathLike, data: mmap.mmap, limits: VideoLimits) -> int | None:
    """Refuse what is cut or impossible; the frames the film must give, None where edits leave some out."""
    boxes = list(_boxes(path, data, 0, len(data), top=True))
    kinds = {kind for kind, _, _ in boxes}
    if b"moov" not in kinds:
        raise cut(path, "its index (moov) is missing, as when a recording stops without being closed")
    if b"mdat" not in kinds:
        raise cut(path, "its media data (mdat) is missing")
    movie_timescale, tracks = _read_tracks(path, data, limits, boxes)
    films = [track for track in tracks if track.handler == b"vide"]
    if len(films) != 1 or kinds & {b"moof", b"mvex"} or films[0].is_trimmed(movie_timescale):
        return None
    return None if films[0].num_samples is None else films[0].num_samples - films[0].num_empty


def _boxes(path: PathLike, data: mmap.mmap, start: int, end: int, top: bool = False) -> Iterator[Box]:
    """Every box, parents before children."""
    while end - start >= 8:
        size, kind = int.from_bytes(data[start : start + 4]), data[start + 4 : start + 8]
        content = start + 8
        if size == 1:
            size, content = int.from_bytes(data[start + 8 : start + 16]), start + 16
        elif size == 0:
            size = end - start
        if size < content - start or start + size > end:
            if top and kind not in _TOP:
                return  # junk after the film: players ignore it, and so do we
            name = kind.decode("latin-1")
            raise cut(path, f"its part {name!r} claims {size:,} bytes of the {end - start:,} that are left")
        yield kind, content, start + size
        if kind in _PARENTS:
            yield from _boxes(path, data, content, start + size)
        start += size


def _read_tracks(
    path: PathLike, data: mmap.mmap, limits: VideoLimits, boxes: list[Box]
) -> tuple[int, list[_Track]]:
    tracks = [_Track()]
    movie_timescale = 1
    for kind, start, end in boxes:
        track = tracks[-1]
        body = data[start:end] if kind in _TABLES else b""
        if kind == b"trak":
            tracks.append(_Track())
        elif kind in (b"mvhd", b"mdhd") and len(body) >= 24:
            scale = int.from_bytes(body[20:24] if body[0] == 1 else body[12:16]) or 1
            if kind == b"mvhd":
                movie_timescale = scale
            else:
                track.timescale = scale
        elif kind == b"hdlr" and body[4:8] != b"dhlr":  # QuickTime names data handlers too
            track.handler = body[8:12]
        elif kind == b"elst":
            track.edits = _edits(path, body)
        elif kind == b"stsd" and track.handler == b"vide" and len(body) >= 44:
            width, height = struct.unpack(">HH", body[40:44])
            check_frame_size(path, limits, width, height)
        elif kind == b"trun":
            within(path, limits, "max_frames", int.from_bytes(body[4:8]), "frames in a fragment")
        elif kind == b"stsz":
            track.num_samples = _num_samples(path, body, limits, track, len(data))
        elif kind in (b"stts", b"ctts"):
            _read_times(path, kind, body, limits, track)
    for track in tracks:
        if track.handler == b"vide" and track.num_samples and track.num_timed != track.num_samples:
            raise cut(path, f"it holds {track.num_samples} frames and display times for {track.num_timed}")
    return movie_timescale, tracks


def _edits(path: PathLike, body: bytes) -> list[tuple[int, int]]:
    count = int.from_bytes(body[4:8])
    layout = struct.Struct(">QqI" if body[:1] == b"\1" else ">IiI")
    if 8 + count * layout.size > len(body):
        raise cut(path, f"its edit list promises {count:,} entries and has room for fewer")
    return [layout.unpack_from(body, 8 + i * layout.size)[:2] for i in range(count)]


def _num_samples(path: PathLike, body: bytes, limits: VideoLimits, track: _Track, file_size: int) -> int:
    """Samples of a track, whose sizes must fit into the file."""
    size, count = int.from_bytes(body[4:8]), int.from_bytes(body[8:12])
    if track.handler == b"vide":
        within(path, limits, "max_frames", count, "frames")
    if not size and 12 + 4 * count > len(body):
        raise cut(path, f"its table of sizes promises {count:,} entries and has room for fewer")
    sizes = np.frombuffer(body, ">u4", 0 if size else count, 12)
    track.num_empty = int((sizes == 0).sum())
    total = size * count + int(sizes.sum(dtype=np.int64))
    if total > file_size:
        raise cut(path, f"its samples add up to {total:,} bytes, more than the file has")
    return count


def _read_times(path: PathLike, kind: bytes, body: bytes, limits: VideoLimits, track: _Track) -> None:
    count = int.from_bytes(body[4:8])
    if 8 + 8 * count > len(body):
        raise cut(path, f"its table {kind.decode()!r} promises {count:,} entries and has room for fewer")
    counts, values = np.frombuffer(body, ">u4", 2 * count, 8).reshape(-1, 2).astype(np.int64).T
    if track.handler == b"vide":
        within(path, limits, "max_frames", int(counts.sum()), "frames")
    if kind == b"stts":
        track.num_timed, track.num_ticks = int(counts.sum()), int((counts * values).sum())
    elif count:
        track.first_delay = int(values[0].astype(np.int32))

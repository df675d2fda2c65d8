"""Look at a container's own bookkeeping before FFmpeg does.

FFmpeg forgives: it reads a cut file up to the cut, skips a broken stretch and allocates what a header
claims. Sizes and counts that contradict the file are found here, in one cheap pass over the headers.
"""

from __future__ import annotations

import mmap
import struct

from hostbot.video.limits import PathLike, VideoLimits, check_frame_size, cut, within
from hostbot.video.mp4 import FIRST_BOXES, check_mp4

_MKV_PARENTS = {0x18538067, 0x1F43B675}  # Segment, Cluster
_MKV_LEVEL_1 = {0x114D9B74, 0x1549A966, 0x1654AE6B, 0x1C53BB6B, 0x1254C367, 0x1043A770, 0x1941A469}
_MKV_CLUSTER = {0xE7, 0xA3, 0xA0, 0xA7, 0xAB, 0x5854, 0xAF}
_MKV_ANYWHERE = {0xEC, 0xBF, 0x1A45DFA3}


def check_structure(path: PathLike, limits: VideoLimits) -> int | None:
    """Refuse a file that is cut short or claims what it cannot hold; say how many frames an mp4 promises."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        head = data[:12]
        if head[4:8] in FIRST_BOXES:
            return check_mp4(path, data, limits)
        if head[:4] == b"\x1a\x45\xdf\xa3":
            _check_matroska(path, data)
        elif head[:6] in (b"GIF87a", b"GIF89a"):
            _check_gif(path, data, limits)
        elif head[:8] == b"\x89PNG\r\n\x1a\n":
            _check_png(path, data, limits)
        elif head[:4] == b"RIFF":
            _check_riff(path, data)
        elif head[:1] == b"\x47" and len(data) > 188 and data[188] == 0x47:
            _check_transport_stream(path, data)
    return None


def _check_matroska(path: PathLike, data: mmap.mmap) -> None:
    """Walk the elements of the segment and its clusters; recordings of unknown length are walked too."""
    position, segment_end = 0, len(data)
    allowed = _MKV_LEVEL_1 | _MKV_CLUSTER | _MKV_ANYWHERE | _MKV_PARENTS
    while position < segment_end:
        element, after = _vint(data, position, keep_marker=True)
        size, content = (None, None) if after is None else _vint(data, after, keep_marker=False)
        if element is None or content is None or element not in allowed:
            raise cut(path, f"byte {position:,} begins no known part")
        if size is not None and content + size > segment_end:
            raise cut(path, f"the part at byte {position:,} runs {content + size - segment_end:,} bytes over")
        if element == 0x18538067 and size is not None:
            segment_end = content + size
        position = content if element in _MKV_PARENTS else content + (size or 0)


def _vint(data: mmap.mmap, position: int, *, keep_marker: bool) -> tuple[int | None, int | None]:
    """One variable-length integer and where it ends: (None, end) for "unknown", (None, None) for none."""
    if position >= len(data) or data[position] == 0:
        return None, None
    length = 9 - data[position].bit_length()
    if position + length > len(data):
        return None, None
    value = int.from_bytes(data[position : position + length])
    if not keep_marker:
        value &= (1 << 7 * length) - 1
        if value == (1 << 7 * length) - 1:
            return None, position + length
    return value, position + length


def _check_gif(path: PathLike, data: mmap.mmap, limits: VideoLimits) -> None:
    width, height, flags = struct.unpack("<HHB", data[6:11]) if len(data) >= 13 else (0, 0, 0)
    check_frame_size(path, limits, width, height)
    position = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    frames = 0
    while position < len(data) and data[position] != 0x3B:
        if data[position] == 0x21:
            position += 2
        elif data[position] == 0x2C and position + 10 < len(data):
            left, top, wide, high, flags = struct.unpack("<HHHHB", data[position + 1 : position + 10])
            if left + wide > width or top + high > height:
                raise cut(path, f"picture {frames} lies outside the {width}x{height} frame")
            position += 11 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
            frames += 1
        else:
            raise cut(path, f"byte {position:,} begins no known part")
        while position < len(data) and data[position]:
            position += 1 + data[position]
        position += 1
    if position >= len(data):
        raise cut(path, f"it ends within or after picture {frames} without the closing mark")
    within(path, limits, "max_frames", frames, "frames")


def _check_png(path: PathLike, data: mmap.mmap, limits: VideoLimits) -> None:
    width, height = struct.unpack(">II", data[16:24]) if len(data) >= 24 else (0, 0)
    check_frame_size(path, limits, width, height)
    position, kind = 8, b""
    while position + 12 <= len(data) and kind != b"IEND":
        size, kind = int.from_bytes(data[position : position + 4]), data[position + 4 : position + 8]
        position += 12 + size
    if kind != b"IEND" or position > len(data):
        raise cut(path, "its closing part is missing")


def _check_transport_stream(path: PathLike, data: mmap.mmap) -> None:
    """Packets of 188 bytes, each with its mark; FFmpeg would skip to the next one that has it."""
    if len(data) % 188:
        raise cut(path, "its last packet is incomplete")
    marks = data[::188]
    if marks.count(b"\x47") != len(marks):
        raise cut(path, f"{len(marks) - marks.count(b'G'):,} of {len(marks):,} packets have no mark")


def _check_riff(path: PathLike, data: mmap.mmap) -> None:
    size = int.from_bytes(data[4:8], "little")
    if size + 8 > len(data):
        raise cut(path, f"it promises {size + 8:,} bytes and has {len(data):,}")

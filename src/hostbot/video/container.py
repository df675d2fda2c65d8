"""Exact random access into a video file.

A frame is found in a table of timestamps, decoded forward from the keyframe before it, and checked: each
frame from there on must come out of the decoder, in order and unflagged.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import av
import numpy as np
from jaxtyping import Float64

from hostbot.types import BadInput, VideoError
from hostbot.video.colour import Colour
from hostbot.video.fit import Size
from hostbot.video.info import VideoInfo, describe
from hostbot.video.limits import PathLike, VideoLimits, bad, cut
from hostbot.video.reader import Reader
from hostbot.video.source import STRICT, check_crc32, error_log, open_container, telling, video_stream
from hostbot.video.table import FrameTable, build_table

_CHEAPER_TO_DECODE = 12
"""Frames ahead up to which decoding on beats seeking to a later keyframe."""

_TELL_ONLY_THE_LOG = ("ffv1", "gif")
"""Decoders that find damage, note it in the log and give a patched picture all the same."""

_inherited: list[object] = []
"""A parent process's containers: closing them in a forked child would wait for threads that are not there."""


class VideoReader(Reader):
    """A video file open for exact random access.

    The container and the decoder stay open between calls, so frames asked for in ascending order never cost
    a seek within a group of pictures. Forked and pickled readers open the file again in their own process;
    within a process a reader serves one thread at a time.

    Damage is refused when the container's bookkeeping, its index or the decoder shows it. Not every flipped
    bit does. Of single flips anywhere in a file, this share decoded to other, valid pixels without a sign:
    AV1 3 %, H.264 15 %, MPEG-4 31 %, MJPEG 49 %, HEVC 62 %, GIF 80 %, VP9 all; none in FFV1 and APNG, which
    carry checksums, nor in the pictures of HEVC with hashes, as VideoWriter writes it. A Matroska recording
    of unknown length or an MPEG-TS file cut between two packets is shorter but whole, and a flip in an mp4's
    rotation, pixel shape or edit list makes another valid file. ``crc32``, the checksum recorded when the
    file was written, catches those, and with it every change.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        threads: int = 1,
        crc32: int | None = None,
        limits: VideoLimits | None = None,
        background: Colour = (0, 0, 0),
    ) -> None:
        super().__init__(path, limits or VideoLimits(), background)
        if not 1 <= threads <= 64:
            raise BadInput(f"decoder threads are 1 to 64, got {threads}")
        self.threads = threads
        self.crc32 = crc32
        self._container: av.container.InputContainer | None = None
        self._closed = False
        self._coded_size: Size | None = None
        self._pending: deque[tuple[int, av.VideoFrame]] = deque()
        self._open()
        try:
            self.table = self._build_table()
            _ = self.info
        except BaseException:
            self.close()
            raise

    @property
    def times_s(self) -> Float64[np.ndarray, " T"]:
        """When each frame appears, from 0.0."""
        return self._times_s

    @cached_property
    def _times_s(self) -> Float64[np.ndarray, " T"]:
        return self.table.times_s()

    @property
    def _tolerance_s(self) -> float:
        return self.table.rounding_s

    @property
    def info(self) -> VideoInfo:
        """What the file says of itself; the first call decodes one frame, for rotation lives there."""
        return self._info

    @cached_property
    def _info(self) -> VideoInfo:
        _, picture = next(self._pictures([0]))
        return describe(self.path, self._stream, picture, self.table, bool(self._live().streams.audio))

    def close(self) -> None:
        """Give back the file and the decoder, now."""
        self._closed = True
        self._pending.clear()
        if self._container is not None and self._pid == os.getpid():
            self._container.close()
        self._container = None

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("_container", "_stream", "_packets", "_pending", "_converter"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Reader.__init__(self, self.path, self.limits, self.background)
        self._container = None
        self._pending = deque()

    def _open(self) -> None:
        if self.crc32 is not None:
            check_crc32(self.path, self.crc32, self.limits)
        self._container, self._promised = open_container(self.path, self.limits)
        self._stream = video_stream(self.path, self._container, self.limits)
        context = self._stream.codec_context
        context.options = STRICT | {"max_pixels": str(self.limits.max_pixels)}
        self._must_hear = context.name in _TELL_ONLY_THE_LOG
        context.thread_count = 1 if self._must_hear else self.threads
        context.thread_type = "SLICE" if context.thread_count == 1 else "AUTO"
        self._pid = os.getpid()
        self._packets: Iterator[av.Packet[Any]] | None = None
        self._pending = deque()
        self._next = 0
        self._begun_at = 0
        self._begun_pts = 0

    def _build_table(self, trust_index: bool = True) -> FrameTable:
        with telling(self.path, "reading its packets"):
            table = build_table(self.path, self._live(), self._stream, self.limits, trust_index=trust_index)
        if self._promised is not None and len(table) != self._promised:
            raise cut(self.path, f"it promises {self._promised} frames, and {len(table)} can be shown")
        return table

    def _live(self) -> av.container.InputContainer:
        """The open container of this process."""
        if self._closed:
            raise BadInput(f"the reader of {str(self.path)!r} is closed; open it again")
        if self._container is None or self._pid != os.getpid():
            _inherited.append((self._container, self.__dict__.get("_packets"), list(self._pending)))
            self._open()
        assert self._container is not None
        return self._container

    def _pictures(self, indices: Sequence[int]) -> Iterator[tuple[int, av.VideoFrame]]:
        for index in indices:
            yield index, self._picture(index)

    def _picture(self, index: int) -> av.VideoFrame:
        self._live()
        try:
            return self._decode_to(index)
        except _Reordered:
            self._live().close()
            self._open()
            self.table = self._build_table(trust_index=False)
            self.__dict__.pop("_times_s", None)
            return self._decode_to(index)

    def _decode_to(self, index: int) -> av.VideoFrame:
        begin = self.table.keyframe_before(index)
        if self._packets is None or index < self._next or begin > self._next + _CHEAPER_TO_DECODE:
            self._seek(begin)
        try:
            return self._advance_to(index)
        except VideoError:
            if self._begun_at == 0:
                raise
        return self._decode_from_further_back(index)

    def _decode_from_further_back(self, index: int) -> av.VideoFrame:
        """Begin earlier and earlier: a strict decoder cannot begin at every keyframe of an open group."""
        failed = self._begun_at
        back = 1
        while True:
            place = max(0, int(np.searchsorted(self.table.keyframes, failed)) - back)
            self._seek(int(self.table.keyframes[place]) if place else 0)
            try:
                picture = self._advance_to(index)
            except VideoError:
                if self._begun_at == 0:
                    raise
                back *= 2
            else:
                self.table = self.table.without_keyframe(failed)
                return picture

    def _advance_to(self, index: int) -> av.VideoFrame:
        while True:
            found, picture = self._advance()
            if found == index:
                return picture

    def _advance(self) -> tuple[int, av.VideoFrame]:
        """The next frame in display order; a missing one is an error, never the next one in its stead."""
        while not self._pending:
            self._decode_packet()
        index, picture = self._pending.popleft()
        if index != self._next:
            raise self._lost(self._next)
        self._next = index + 1
        return index, picture

    def _lost(self, index: int) -> VideoError:
        self._packets = None
        return bad(
            self.path, f"is damaged: frame {index} of {len(self.table)} cannot be decoded; copy it again"
        )

    def _decode_packet(self) -> None:
        """Feed the decoder one packet and number what comes out."""
        assert self._packets is not None
        doing = f"decoding frame {self._next} of {len(self.table)}"
        try:
            with telling(self.path, doing):
                packet = next(self._packets, None)
                if packet is None or self._next >= len(self.table):
                    raise self._lost(self._next)
                if packet.is_corrupt:
                    raise self._lost(self._next)
                if self._skip(packet):
                    return
                pictures = self._decode(packet)
        except VideoError:
            self._packets = None
            raise
        for picture in pictures:
            self._number(picture)

    def _decode(self, packet: av.Packet[Any]) -> list[av.VideoFrame]:
        decode = self._stream.codec_context.decode
        if not self._must_hear:
            return decode(packet if packet.size else None)
        with error_log() as errors:
            pictures = decode(packet if packet.size else None)
        if errors:
            raise self._lost(self._next)
        return pictures

    def _skip(self, packet: av.Packet[Any]) -> bool:
        """Leading pictures of the keyframe we began at need frames from before it; nobody asked for them."""
        if packet.size == 0:
            return packet.dts is not None
        if self.table.by_order:
            return False
        if self.table.from_index and packet.pts != packet.dts:
            raise _Reordered
        return packet.pts is None or packet.pts < self._begun_pts

    def _number(self, picture: av.VideoFrame) -> None:
        self._coded_size = self._coded_size or (picture.height, picture.width)
        last = self._pending[-1][0] if self._pending else self._next - 1
        index = last + 1 if self.table.by_order else self.table.find(picture.pts or 0, last)
        if index is None or index < self._begun_at:
            return
        if picture.is_corrupt:
            raise self._lost(index)
        size = (picture.height, picture.width)
        if size != self._coded_size:
            raise bad(
                self.path, f"changes size at frame {index}, from {self._coded_size} to {size}; convert it"
            )
        self._pending.append((index, picture))

    def _seek(self, begin: int) -> None:
        """Place the demuxer at keyframe ``begin``, or at an earlier one where seeking overshoots."""
        self._pending.clear()
        keys = self.table.keyframes
        landed: int | None = None
        with telling(self.path, f"seeking to frame {begin}"):
            for place in range(int(np.searchsorted(keys, begin)), -1, -1):
                key = int(keys[place]) if place > 0 else 0
                self._live().seek(int(self.table.pts[key]), stream=self._stream)
                landed = self._land()
                if landed is not None and landed <= key:
                    break
            else:  # MPEG-TS may have no way back to its first packet but opening it anew
                self._live().close()
                self._open()
                landed = self._land()
        if landed is None or landed > begin:
            raise self._lost(begin)
        self._begun_at = self._next = landed

    def _land(self) -> int | None:
        """Read on to the first keyframe, keep it for decoding, and say which frame it is."""
        packets = self._live().demux(self._stream)
        for packet in packets:
            if not packet.size:
                break
            if self.table.from_index and packet.pts != packet.dts:
                raise _Reordered
            if packet.is_keyframe or self.table.by_order:
                self._packets = _with_first(packet, packets)
                self._begun_pts = packet.pts or 0
                return 0 if self.table.by_order else int(np.searchsorted(self.table.pts, self._begun_pts))
        return None


class _Reordered(Exception):
    """The index was taken for display order, and a packet says otherwise."""


def _with_first(first: av.Packet[Any], rest: Iterator[av.Packet[Any]]) -> Iterator[av.Packet[Any]]:
    yield first
    yield from rest

"""Every frame of a file by number: when it is shown, and from which keyframe it can be decoded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import av
import numpy as np
from jaxtyping import Bool, Float64, Int64

from hostbot.video.limits import PathLike, VideoLimits, bad, within


@dataclass(frozen=True, kw_only=True)
class FrameTable:
    """Frames in the order they are shown; ``pts`` counts ticks of ``time_base``."""

    pts: Int64[np.ndarray, " T"]
    keyframe: Bool[np.ndarray, " T"]
    time_base: Fraction
    last_duration: int
    """Ticks the last frame is shown."""
    by_order: bool = False
    """The container stores no display times for reordered frames (AVI): count frames from the start."""
    from_index: bool = False
    """Read from the container's index alone; the packets have not been seen yet."""

    def __len__(self) -> int:
        return len(self.pts)

    def times_s(self) -> Float64[np.ndarray, " T"]:
        """Seconds from the first frame."""
        return np.asarray((self.pts - self.pts[0]) * float(self.time_base))

    @property
    def duration_s(self) -> float:
        """From the first frame's appearance to the last one's end."""
        return float(max(1, int(self.pts[-1] - self.pts[0]) + self.last_duration) * self.time_base)

    @property
    def rounding_s(self) -> float:
        """How far a time may be off for having been rounded to the container's clock, as Matroska's ms."""
        ticks = 0.5 if self.pts[0] == 0 else 1.0
        step = float(np.median(np.diff(self.pts))) if len(self) > 1 else 1.0
        return min(ticks, 0.05 * step) * float(self.time_base) + 1e-9

    @property
    def is_variable_rate(self) -> bool:
        """Whether frame spacings differ by more than the container's clock has to round."""
        steps = np.diff(self.pts)
        return len(steps) > 1 and bool(np.ptp(steps) > max(1, 0.01 * float(np.median(steps))))

    def keyframe_before(self, index: int) -> int:
        """The frame to begin decoding at, to reach ``index``; leading pictures need the keyframe before."""
        if self.by_order:
            return 0
        place = np.searchsorted(self.keyframes, index, side="right") - 1
        return int(self.keyframes[place]) if place >= 0 else 0

    @cached_property
    def keyframes(self) -> Int64[np.ndarray, " K"]:
        """Numbers of the frames where decoding can begin."""
        return np.flatnonzero(self.keyframe)

    def without_keyframe(self, index: int) -> FrameTable:
        """The same table, with decoding never begun at ``index``."""
        keyframe = self.keyframe.copy()
        keyframe[index] = False
        return replace(self, keyframe=keyframe)

    def find(self, pts: int, after: int) -> int | None:
        """Number of the frame shown at ``pts``; of several shown at once, the first one past ``after``."""
        index = int(np.searchsorted(self.pts, pts))
        if index <= after < len(self.pts) - 1 and self.pts[after + 1] == pts:
            index = after + 1
        return index if index < len(self.pts) and self.pts[index] == pts else None


def build_table(
    path: PathLike,
    container: av.container.InputContainer,
    stream: av.video.stream.VideoStream,
    limits: VideoLimits,
    *,
    trust_index: bool = True,
) -> FrameTable:
    """Read the table from an mp4's index where it suffices, else from one pass over the packets."""
    if trust_index and "mp4" in container.format.name and not stream.codec_context.has_b_frames:
        table = _from_index(path, container, stream)
        if table is not None:
            return _checked(path, table, limits)
    return _checked(path, _from_packets(path, container, stream, limits), limits)


def _from_index(
    path: PathLike, container: av.container.InputContainer, stream: av.video.stream.VideoStream
) -> FrameTable | None:
    """Without reordering a frame's place in the index is its display time; None when that is not so."""
    entries = list(stream.index_entries)
    if len(entries) < 2 or len(entries) != stream.frames:
        return None
    size = container.size
    if any(entry.pos + entry.size > size for entry in entries):
        missing = sum(entry.pos + entry.size > size for entry in entries)
        raise bad(path, f"is cut short: {missing} of {len(entries)} frames lie past its end; copy it again")
    shown = [entry for entry in entries if not entry.is_discard and entry.size]
    pts = np.array([entry.timestamp for entry in shown], np.int64)
    if len(pts) == 0 or not (np.diff(pts) > 0).all():
        return None
    end = (stream.start_time or 0) + (stream.duration or 0)
    last = end - int(pts[-1])
    step = int(np.median(np.diff(pts))) if len(pts) > 1 else 1
    return FrameTable(
        pts=pts,
        keyframe=np.array([entry.is_keyframe for entry in shown]),
        time_base=stream.time_base or Fraction(1),
        last_duration=last if 0 < last <= 10 * step else step,
        from_index=True,
    )


def _from_packets(
    path: PathLike,
    container: av.container.InputContainer,
    stream: av.video.stream.VideoStream,
    limits: VideoLimits,
) -> FrameTable:
    rows: list[tuple[int, bool, int]] = []
    # A header counts what an mp4's edit list leaves out, and an AVI's may count one too many.
    is_avi = "avi" in container.format.name.split(",")
    has_order = is_avi and bool(stream.codec_context.has_b_frames)
    promised = max(len(stream.index_entries), stream.frames - 1 if is_avi else 0)
    read = 0
    first_key: int | None = None
    last_key = 0  # row of the latest keyframe
    strict = stream.codec_context.name == "h264"
    for packet in container.demux(stream):
        if packet.size == 0:
            read += packet.dts is not None
            continue
        read += 1
        if packet.is_corrupt:
            raise bad(path, f"is cut short or damaged near frame {len(rows)}; copy or record it again")
        if first_key is None and packet.is_keyframe:
            first_key = packet.pts
        if packet.is_discard or (first_key is None and not has_order):
            continue
        shown_at = len(rows) if has_order else packet.pts
        if shown_at is None:
            raise bad(path, "has no timestamps; put it into an mp4 file first (ffmpeg -i in -c copy out.mp4)")
        if packet.is_keyframe:
            last_key = len(rows)
        elif strict and last_key and shown_at < rows[last_key][0]:
            # H.264 numbers its reference pictures: begun here, the decoder would miss this leading one.
            rows[last_key] = (rows[last_key][0], False, rows[last_key][2])
        rows.append((shown_at, packet.is_keyframe, packet.duration or 0))
        within(path, limits, "max_frames", len(rows), "frames")
    if read < promised:
        raise bad(path, f"is cut short: it promises {promised} frames and holds {read}; copy it again")
    table = _from_rows(rows, 0 if has_order else first_key or 0, stream)
    return replace(table, by_order=has_order)


def _from_rows(
    rows: list[tuple[int, bool, int]], first_key: int, stream: av.video.stream.VideoStream
) -> FrameTable:
    """Sort by display time; pictures shown before the first keyframe have nothing to be decoded from."""
    rows = sorted((row for row in rows if row[0] >= first_key), key=lambda row: row[0])
    pts = np.array([row[0] for row in rows], np.int64)
    step = int(np.median(np.diff(pts))) if len(pts) > 1 else 1
    return FrameTable(
        pts=pts,
        keyframe=np.array([row[1] for row in rows], bool),
        time_base=stream.time_base or Fraction(1),
        last_duration=(rows[-1][2] if rows else 0) or step,
    )


def _checked(path: PathLike, table: FrameTable, limits: VideoLimits) -> FrameTable:
    if len(table) == 0:
        raise bad(path, "holds no frame that can be decoded; copy or record it again")
    within(path, limits, "max_frames", len(table), "frames")
    within(path, limits, "max_duration_s", table.duration_s, "seconds")
    return table

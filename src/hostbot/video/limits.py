"""How large a video may be before it is refused, and the one sentence every refusal is told in."""

from __future__ import annotations

import os
from dataclasses import dataclass

from hostbot.types import VideoError

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class VideoLimits:
    """What a reader accepts; the defaults are far above what cameras record and far below what hurts."""

    max_pixels: int = 64_000_000
    """Of one frame; 8K is 33 million."""
    max_frames: int = 5_000_000
    max_duration_s: float = 48 * 3600.0
    max_file_bytes: int = 64 << 30
    max_output_bytes: int = 16 << 30
    """Of the array one call returns."""
    io_timeout_s: float = 30.0
    """Longest wait for one read of a file on a slow disk or network mount."""


def bad(path: PathLike, text: str) -> VideoError:
    """The error to raise for a file: one line that begins with its name."""
    return VideoError(" ".join(f"video {os.fspath(path)!r} {text}".split()))


def cut(path: PathLike, how: str) -> VideoError:
    """The error for a file that contradicts itself."""
    return bad(path, f"is cut short or damaged: {how}; copy or record it again")


def within(path: PathLike, limits: VideoLimits, name: str, value: float, what: str) -> None:
    """Refuse a file whose ``value`` passes the limit called ``name``."""
    limit = getattr(limits, name)
    if value > limit:
        raise bad(
            path,
            f"has {value:,.0f} {what}, above the limit of {limit:,.0f}; if it is meant to be so large, "
            f"open it with VideoLimits({name}=...)",
        )


def check_frame_size(path: PathLike, limits: VideoLimits, width: int, height: int) -> None:
    """Refuse a header's frame size before anything of that size is allocated."""
    if width <= 0 or height <= 0:
        raise bad(path, f"claims frames of {width}x{height} pixels; record or export it again")
    within(path, limits, "max_pixels", width * height, f"pixels a frame ({width}x{height})")

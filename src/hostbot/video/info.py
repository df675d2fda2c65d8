"""What a video says of itself: size as shown, rate, rotation, colour."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import av
import numpy as np

from hostbot.video.colour import Hdr, hdr_transfer
from hostbot.video.fit import Size
from hostbot.video.limits import PathLike, bad
from hostbot.video.table import FrameTable


@dataclass(frozen=True, kw_only=True)
class VideoInfo:
    """What a file says of itself; width and height are as shown, after rotation and pixel aspect."""

    width: int
    height: int
    codec: str
    num_frames: int
    duration_s: float
    fps: float
    """Average frames a second."""
    is_variable_rate: bool
    rotation: int
    """Degrees the coded picture is turned counter-clockwise to be upright: 0, 90, 180 or 270."""
    is_mirrored: bool
    bit_depth: int
    hdr: Hdr | None
    has_audio: bool

    @property
    def size(self) -> Size:
        """(height, width) as shown."""
        return self.height, self.width


def orientation(path: PathLike, picture: av.VideoFrame) -> tuple[int, bool]:
    """Counter-clockwise degrees and mirroring that the display matrix of a frame asks for."""
    side_data: Any = cast(Any, picture.side_data).get("DISPLAYMATRIX")
    if side_data is None:
        return 0, False
    a, b, _, c, d, *_ = np.frombuffer(bytes(side_data), np.int32).astype(np.float64) / 65536
    if a == b == c == d == 0:
        return 0, False
    mirrored = a * d - b * c < 0
    along = (-a, -b) if mirrored else (a, b)
    angle = np.degrees(np.arctan2(-along[1], along[0])) % 360
    turns = round(angle / 90)
    if abs(angle - 90 * turns) > 1:
        raise bad(
            path, f"asks to be turned by {angle:.0f} degrees; only quarter turns can be shown, convert it"
        )
    return turns % 4 * 90, bool(mirrored)


def describe(
    path: PathLike,
    stream: av.video.stream.VideoStream,
    picture: av.VideoFrame,
    table: FrameTable,
    has_audio: bool,
) -> VideoInfo:
    """Gather what the header, the table and the first picture say."""
    rotation, mirrored = orientation(path, picture)
    aspect = stream.sample_aspect_ratio or Fraction(1)
    if not Fraction(1, 16) <= aspect <= 16:
        raise bad(path, f"claims pixels of shape {aspect}; record or export it again")
    height, width = picture.height, max(1, round(picture.width * aspect))
    if rotation % 180:
        height, width = width, height
    return VideoInfo(
        width=width,
        height=height,
        codec=stream.codec_context.codec.canonical_name,
        num_frames=len(table),
        duration_s=table.duration_s,
        fps=len(table) / table.duration_s,
        is_variable_rate=table.is_variable_rate,
        rotation=rotation,
        is_mirrored=mirrored,
        bit_depth=max(component.bits for component in picture.format.components),
        hdr=hdr_transfer(picture.color_trc),
        has_audio=has_audio,
    )

"""The doors of the module: open any recording, describe it, or take it as a demonstration."""

from __future__ import annotations

import os
from pathlib import Path

from hostbot.types import Demonstration
from hostbot.video.colour import Colour
from hostbot.video.container import VideoReader
from hostbot.video.fit import Fit, Size
from hostbot.video.images import FolderReader, WebpReader
from hostbot.video.info import VideoInfo
from hostbot.video.limits import PathLike, VideoLimits, bad
from hostbot.video.live import is_live
from hostbot.video.reader import Reader
from hostbot.video.source import check_crc32


def open_video(
    path: PathLike,
    *,
    threads: int = 1,
    crc32: int | None = None,
    folder_fps: float = 30.0,
    limits: VideoLimits | None = None,
    background: Colour = (0, 0, 0),
) -> Reader:
    """A reader for a video file, an animated picture or a folder of pictures.

    Alpha is laid over ``background``, black unless given.
    """
    if is_live(path):
        raise bad(
            path, "is live and cannot be sought; iterate over LiveVideo(path), or record it to a file first"
        )
    if crc32 is not None and os.path.isfile(path):
        check_crc32(path, crc32, limits or VideoLimits())
    if os.path.isdir(path):
        return FolderReader(path, fps=folder_fps, limits=limits, background=background)
    if _is_webp(path):
        return WebpReader(path, limits=limits, background=background)
    return VideoReader(path, threads=threads, crc32=crc32, limits=limits, background=background)


def probe(path: PathLike, *, limits: VideoLimits | None = None) -> VideoInfo:
    """What a recording says of itself; reads headers and timestamps and decodes one frame."""
    with open_video(path, limits=limits) as reader:
        return reader.info


def load_demonstration(
    path: PathLike,
    *,
    rate_hz: float,
    size: Size,
    fit: Fit = "letterbox",
    instruction: str = "",
    view: str = "third_person",
    limits: VideoLimits | None = None,
) -> Demonstration:
    """A recording at the control rate and the model's size; memory grows with that output only."""
    threads = min(4, os.cpu_count() or 1)
    with open_video(path, threads=threads, folder_fps=rate_hz, limits=limits) as reader:
        frames = reader.at_rate(rate_hz, size, fit)
    return Demonstration(views={view: frames}, fps=rate_hz, instruction=instruction)


def _is_webp(path: PathLike) -> bool:
    if not Path(path).is_file() or not os.access(path, os.R_OK):
        return False
    with open(path, "rb") as file:
        head = file.read(12)
    return head[:4] == b"RIFF" and head[8:] == b"WEBP"

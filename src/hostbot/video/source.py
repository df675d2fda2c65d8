"""Open a video file, or say in one sentence why it cannot be opened.

FFmpeg is shown only files, and only the formats listed here: others of its hundreds read playlists, run
filters or take any text file for a film.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import av
import av.logging

from hostbot.types import VideoError
from hostbot.video.limits import PathLike, VideoLimits, bad, check_frame_size, within
from hostbot.video.structure import check_structure

FORMATS = ("mov", "mp4", "matroska", "webm", "avi", "mpegts", "mpeg", "flv", "asf", "ogg", "gif", "apng")
PICTURES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
_PICTURE_HEADS = {b"\x89PNG", b"\xff\xd8", b"BM", b"II*\0", b"MM\0*", b"P5", b"P6"}
STRICT = {"err_detect": "crccheck+bitstream+buffer+explode"}

_checked: set[tuple[str, int, int, int]] = set()


def check_file(path: PathLike, limits: VideoLimits) -> os.stat_result:
    """Refuse what is missing, unreadable, no regular file, empty or too large."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError):
            raise bad(path, "is in a folder that may not be read; check its permissions") from None
        raise bad(path, "does not exist; check the path") from None
    if not stat.S_ISREG(status.st_mode):
        raise bad(path, "is no regular file (a pipe, socket or device); save the video to a file first")
    if status.st_size == 0:
        raise bad(path, "is empty (0 bytes); copy or record it again")
    if not os.access(path, os.R_OK):
        raise bad(path, "may not be read; check its permissions")
    within(path, limits, "max_file_bytes", status.st_size, "bytes")
    return status


def check_crc32(path: PathLike, expected: int, limits: VideoLimits) -> None:
    """Refuse a file whose content is not what was stored, once per process and version of the file."""
    status = check_file(path, limits)
    key = (os.fspath(path), status.st_size, status.st_mtime_ns, expected)
    if key in _checked:
        return
    found = crc32(path)
    if found != expected:
        raise bad(
            path, f"has checksum {found:08x} but {expected:08x} was recorded; it is damaged, fetch it again"
        )
    _checked.add(key)


def crc32(path: PathLike) -> int:
    """CRC-32 of a file's content, as a dataset records it."""
    value = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value


@contextmanager
def telling(path: PathLike, doing: str) -> Iterator[None]:
    """Turn whatever FFmpeg raises into a VideoError about this file."""
    try:
        yield
    except (av.FFmpegError, MemoryError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise bad(path, f"is damaged: {doing} failed ({reason}); copy or record it again") from None


def open_container(path: PathLike, limits: VideoLimits) -> tuple[av.container.InputContainer, int | None]:
    """Open a checked file for demuxing, and say how many frames its structure promises, where it does."""
    check_file(path, limits)
    try:
        promised = check_structure(path, limits)
        container = _open(path, limits)
    except VideoError:
        raise
    except (av.FFmpegError, OSError, MemoryError, OverflowError, ValueError) as error:
        raise bad(path, _why_not(path, limits, error)) from None
    try:
        video_stream(path, container, limits)
    except BaseException:
        container.close()
        raise
    return container, promised


def video_stream(
    path: PathLike, container: av.container.InputContainer, limits: VideoLimits
) -> av.video.stream.VideoStream:
    """The film: of the streams that are no cover picture the one marked default, else the longest, else the first."""
    attached = av.stream.Disposition.attached_pic
    streams = [stream for stream in container.streams.video if not stream.disposition & attached]
    if not streams:
        sound = "only sound" if container.streams.audio else "no video"
        raise bad(path, f"holds {sound}; give a file with a video track")
    default = av.stream.Disposition.default
    stream = max(streams, key=lambda s: (bool(s.disposition & default), _length_s(s), -s.index))
    if stream.codec_context is None:
        raise bad(path, "uses a codec this build of FFmpeg cannot decode; convert it to H.264")
    check_frame_size(path, limits, stream.codec_context.width, stream.codec_context.height)
    return stream


def _length_s(stream: av.video.stream.VideoStream) -> float:
    return float(stream.duration * stream.time_base) if stream.duration and stream.time_base else 0.0


def _open(path: PathLike, limits: VideoLimits) -> av.container.InputContainer:
    return av.open(
        os.fspath(Path(path).absolute()),
        container_options={
            "format_whitelist": ",".join(FORMATS),
            "protocol_whitelist": "file",
            "fflags": "+genpts",
            "err_detect": "crccheck+bitstream+buffer",
        },
        options={"max_pixels": str(limits.max_pixels), "threads": "1"},
        metadata_errors="replace",
        timeout=limits.io_timeout_s,
    )


def _why_not(path: PathLike, limits: VideoLimits, error: Exception) -> str:
    """Open the file once more with FFmpeg's log on, for its reason is only there."""
    head = b""
    with suppress(OSError), open(path, "rb") as file:
        head = file.read(4)
    if head in _PICTURE_HEADS or head[:2] in _PICTURE_HEADS:
        return "is a still picture; give a video, or the folder that holds the pictures of one"
    with error_log() as logs, suppress(Exception):
        _open(path, limits).close()
    reason = logs[-1] if logs else getattr(error, "strerror", None) or str(error)
    if reason.startswith("Format not on whitelist"):
        return f"is no video, or of a kind that is not read; convert it to one of {', '.join(FORMATS)}"
    return (
        f"is no video that can be read ({reason}); it may be cut short, damaged or another kind of file: "
        "copy it again or convert it to mp4"
    )


@contextmanager
def error_log() -> Iterator[list[str]]:
    """FFmpeg's errors of this thread while the context lasts; outside it FFmpeg stays silent.

    Only for work without threads of FFmpeg's own: they would wait for the interpreter to log.
    """
    level, skip = av.logging.get_level(), av.logging.get_skip_repeated()
    messages: list[str] = []
    av.logging.set_skip_repeated(False)
    av.logging.set_level(av.logging.ERROR)
    try:
        with av.logging.Capture() as logs:
            yield messages
    finally:
        messages.extend(message.strip() for _, _, message in logs)
        av.logging.set_level(level)
        av.logging.set_skip_repeated(skip)

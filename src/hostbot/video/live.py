"""Cameras and network streams: frames as they come, never again."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from types import TracebackType
from typing import NoReturn, Self

import av
import numpy as np

from hostbot.types import Image, VideoError
from hostbot.video.colour import Converter, hdr_transfer, lay_into, upright
from hostbot.video.fit import Fit, Size, place
from hostbot.video.info import orientation
from hostbot.video.limits import PathLike, VideoLimits, bad, check_frame_size
from hostbot.video.source import telling

_NETWORK = ("rtsp://", "rtsps://", "rtmp://", "udp://", "rtp://", "srt://", "http://", "https://")


def is_live(path: PathLike) -> bool:
    """Whether a path names a camera (``webcam:0``, ``/dev/video0``) or a network stream (``rtsp://...``)."""
    text = os.fspath(path)
    return text.startswith(("webcam:", *_NETWORK)) or re.fullmatch(r"/dev/video\d+", text) is not None


class LiveVideo:
    """A camera or network stream as an iterator of frames; it can be neither counted nor sought."""

    def __init__(self, path: PathLike, *, limits: VideoLimits | None = None, timeout_s: float = 10.0) -> None:
        self.path = path
        self.limits = limits or VideoLimits()
        self._container = _open(path, timeout_s)
        if not self._container.streams.video:
            self.close()
            raise bad(path, "sends no video; check the address")
        self._converter = Converter()

    def stream(self, size: Size | None = None, fit: Fit = "letterbox") -> Iterator[Image]:
        """Frames as they arrive; ends when the source does."""
        return (image for _, image in self.timed(size, fit))

    def at_a_rate(
        self, rate_hz: float, seconds: float, size: Size | None = None, fit: Fit = "letterbox"
    ) -> Iterator[Image]:
        """The frame on screen at k / rate_hz for so many seconds, or until the source ends."""
        shown: Image | None = None
        tick = 0
        for time_s, image in self.timed(size, fit):
            while shown is not None and tick / rate_hz < min(time_s, seconds):
                yield shown
                tick += 1
            if time_s >= seconds:
                return
            shown = image
        if shown is not None:
            yield shown

    def timed(self, size: Size | None = None, fit: Fit = "letterbox") -> Iterator[tuple[float, Image]]:
        """Frames with their seconds since the first, by the source's own clock."""
        first: float | None = None
        with telling(self.path, "receiving a frame"):
            for picture in self._container.decode(self._container.streams.video[0]):
                check_frame_size(self.path, self.limits, picture.width, picture.height)
                rotation, mirrored = orientation(self.path, picture)
                turned = rotation % 180 != 0
                shown = (picture.width, picture.height) if turned else (picture.height, picture.width)
                placement = place(shown, size or shown, fit)
                scaled = placement.scaled[::-1] if turned else placement.scaled
                pixels = self._converter.rgb(picture, scaled, hdr_transfer(picture.color_trc))
                image = np.zeros((*placement.output, 3), np.uint8)
                lay_into(image, upright(pixels, rotation // 90, mirrored), placement)
                if picture.time is None:
                    raise bad(self.path, "sends frames without times; record it with its own tool first")
                first = picture.time if first is None else first
                yield picture.time - first, image

    def __iter__(self) -> Iterator[Image]:
        return self.stream()

    def frames(self, *_: object, **__: object) -> NoReturn:
        """Refused: a live source has no frame numbers."""
        raise bad(self.path, "is live and cannot be sought; iterate over it, or record it to a file first")

    at_times = at_rate = frames

    def close(self) -> None:
        """Let go of the camera."""
        self._container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open(path: PathLike, timeout_s: float) -> av.container.InputContainer:
    text = os.fspath(path)
    device = re.sub(r"^webcam:(\d+)$", r"/dev/video\1", text)
    if text.startswith("webcam:") and device == text:
        raise bad(path, "names no camera; write webcam:0 for the first one")
    camera = device.startswith("/dev/")
    if camera and not (os.path.exists(device) and stat.S_ISCHR(os.stat(device).st_mode)):
        raise bad(path, f"is not there: no camera at {device}; plug one in or give another number")
    # A stream may not point back at files of this machine.
    options = {} if camera else {"protocol_whitelist": "tcp,udp,rtp,rtsp,rtmp,srt,http,https,tls,crypto"}
    if text.startswith("rtsp"):
        options["rtsp_transport"] = "tcp"
    try:
        return av.open(device, format="v4l2" if camera else None, options=options, timeout=timeout_s)
    except (av.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _unreachable(path, str(reason)) from None


def _unreachable(path: PathLike, reason: str) -> VideoError:
    return bad(path, f"cannot be opened ({reason}); check that it is on, reachable and used by nobody else")

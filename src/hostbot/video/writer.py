"""Write frames to an mp4 that every player, browser and LeRobot reader takes.

Constant rate, timestamps from 0, 4:2:0, no reordering; the file appears under its name only when it is whole.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, cast

import av
import numpy as np
from av.video.frame import PictureType
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter
from av.video.stream import VideoStream

from hostbot.types import BadInput, Image
from hostbot.video.fit import Size, check_size
from hostbot.video.limits import PathLike, bad

# SVT-AV1 prints to stderr past FFmpeg's own log; 1 keeps its errors.
os.environ.setdefault("SVT_LOG", "1")

# HEVC can carry a hash of every picture, which readers check: the only one of the three that shows any flip.
VideoCodec = Literal["h264", "hevc", "av1"]
_ENCODERS: dict[VideoCodec, tuple[str, int, dict[str, str]]] = {
    "h264": ("libx264", 18, {"preset": "veryfast", "bf": "0"}),
    "hevc": (
        "libx265",
        22,
        {"preset": "fast", "x265-params": "bframes=0:hash=1:log-level=none", "tag": "hvc1"},
    ),
    "av1": ("libsvtav1", 28, {"preset": "10"}),
}


class VideoWriter:
    """A video being written; leaving it by an exception or :meth:`abort` leaves no file behind."""

    def __init__(
        self,
        path: PathLike,
        size: Size,
        fps: float | Fraction,
        *,
        codec: VideoCodec = "h264",
        gop: int = 30,
        crf: int | None = None,
        threads: int = 2,
    ) -> None:
        self.path = Path(path)
        self.size = check_size(size)
        self.num_frames = 0
        self._rate = Fraction(fps).limit_denominator(100_000)
        self._check(codec, gop)
        encoder, default_crf, options = _ENCODERS[codec]
        self._temporary = _temporary_beside(self.path)
        self._container: av.container.OutputContainer | None = None
        self._reformatter = VideoReformatter()
        try:
            self._container = av.open(
                os.fspath(self._temporary), "w", format="mp4", options={"movflags": "+faststart"}
            )
            self._stream = cast(VideoStream, self._container.add_stream(encoder, rate=self._rate))
            self._configure(options | {"crf": str(default_crf if crf is None else crf)}, gop, threads)
        except BaseException as error:
            self.abort()
            if isinstance(error, (av.FFmpegError, ValueError)):
                raise bad(path, f"cannot be encoded as {codec} ({error}); try codec='h264'") from None
            raise

    def _check(self, codec: str, gop: int) -> None:
        if codec not in _ENCODERS:
            raise BadInput(f"codec is one of {', '.join(_ENCODERS)}, got {codec!r}")
        height, width = self.size
        if height % 2 or width % 2:
            raise BadInput(
                f"videos are written with even sides, got {width}x{height}; pad or resize the frames"
            )
        if self._rate <= 0 or gop < 1:
            raise BadInput(f"the rate must be above 0 Hz and gop at least 1, got {self._rate} and {gop}")

    def _configure(self, options: dict[str, str], gop: int, threads: int) -> None:
        context = self._stream.codec_context
        context.height, context.width = self.size
        context.pix_fmt = "yuv420p"
        context.time_base = 1 / self._rate
        context.gop_size = gop
        context.thread_count = threads
        context.color_range = ColorRange.MPEG
        context.colorspace = context.color_primaries = context.color_trc = 1  # BT.709
        if options.pop("tag", None):
            context.codec_tag = "hvc1"
        context.options = options
        context.open()

    def write(self, frame: Image, *, keyframe: bool = False) -> None:
        """Append a uint8 RGB frame; ``keyframe`` lets readers start there."""
        if self._container is None:
            raise BadInput(f"the writer of {str(self.path)!r} is closed; open another")
        if frame.dtype != np.uint8 or frame.shape != (*self.size, 3):
            raise BadInput(f"frames are uint8 of shape {(*self.size, 3)}, got {frame.dtype} of {frame.shape}")
        picture = self._reformatter.reformat(
            av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24"),
            format="yuv420p",
            interpolation=Interpolation.BILINEAR | Interpolation.ACCURATE_RND,
            dst_colorspace=Colorspace.ITU709,
            src_color_range=ColorRange.JPEG,
            dst_color_range=ColorRange.MPEG,
            threads=1,
        )
        picture.pts, picture.time_base = self.num_frames, 1 / self._rate
        picture.pict_type = PictureType.I if keyframe else PictureType.NONE
        try:
            self._container.mux(self._stream.encode(picture))
        except (av.FFmpegError, OSError) as error:
            self.abort()
            raise bad(self.path, f"cannot be written ({error}); is the disk full?") from None
        self.num_frames += 1

    def close(self) -> None:
        """Finish the file and give it its name."""
        if self._container is None:
            return
        if self.num_frames == 0:
            self.abort()
            raise BadInput(f"no frame was written to {str(self.path)!r}; a video needs at least one")
        try:
            self._container.mux(self._stream.encode(None))
            self._container.close()
            os.replace(self._temporary, self.path)
        except (av.FFmpegError, OSError) as error:
            raise bad(self.path, f"cannot be written ({error}); is the disk full?") from None
        finally:
            self.abort()

    def abort(self) -> None:
        """Stop, and remove what was written."""
        container, self._container = self._container, None
        if container is not None:
            with suppress(av.FFmpegError, OSError):
                container.close()
        self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def _temporary_beside(path: Path) -> Path:
    """An empty file in the same folder, with the permissions a plain new file would have."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem[:40]}.", suffix=".part")
    except OSError as error:
        raise bad(
            path, f"cannot be written ({error.strerror}); make its folder first or choose another"
        ) from None
    umask = os.umask(0)
    os.umask(umask)
    os.fchmod(handle, 0o666 & ~umask)
    os.close(handle)
    return Path(name)

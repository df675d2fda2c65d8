"""What every kind of recorded video can be asked: frames by number, by time, at a rate, or in turn.

Legend: T frames, sizes (height, width), times in seconds from the first frame.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

import av
import numpy as np
from jaxtyping import Float64, Int64

from hostbot.types import BadInput, Frames, Image
from hostbot.video.colour import Colour, Converter, lay_into, upright
from hostbot.video.fit import Fit, Placement, Size, place
from hostbot.video.info import VideoInfo
from hostbot.video.limits import PathLike, VideoLimits, bad
from hostbot.video.source import telling


class Reader(ABC):
    """A recorded video: its frames can be asked for in any order, and come back as uint8 RGB."""

    def __init__(self, path: PathLike, limits: VideoLimits, background: Colour) -> None:
        self.path = path
        self.limits = limits
        self.background = background
        self._converter = Converter(background)

    @property
    @abstractmethod
    def info(self) -> VideoInfo:
        """What the file says of itself."""

    @property
    @abstractmethod
    def times_s(self) -> Float64[np.ndarray, " T"]:
        """When each frame appears, from 0.0."""

    @property
    @abstractmethod
    def _tolerance_s(self) -> float:
        """How far times may be off for having been rounded to the container's clock."""

    @abstractmethod
    def _pictures(self, indices: Sequence[int]) -> Iterator[tuple[int, av.VideoFrame]]:
        """Decode exactly these frames; ``indices`` ascend without repetition."""

    @abstractmethod
    def close(self) -> None:
        """Give back the file and the decoder, now."""

    def __len__(self) -> int:
        return self.info.num_frames

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Image]:
        return self.stream()

    def stream(
        self, indices: Iterable[int] | None = None, size: Size | None = None, fit: Fit = "letterbox"
    ) -> Iterator[Image]:
        """Frames one at a time, by default all; ``indices`` ascend, and repetitions repeat the frame."""
        wanted = self._checked(range(len(self)) if indices is None else indices)
        if (np.diff(wanted) < 0).any():
            raise BadInput("stream goes forward only: give ascending frame numbers, or use frames()")
        placement = place(self.info.size, size or self.info.size, fit)
        unique, repeats = np.unique(wanted, return_counts=True)
        pictures = self._pictures(unique.tolist())
        for (_, picture), count in zip(pictures, repeats.tolist(), strict=True):
            image = np.zeros((*placement.output, 3), np.uint8)
            self._draw(picture, placement, image)
            for _ in range(count):
                yield image

    def frames(self, indices: Iterable[int], size: Size | None = None, fit: Fit = "letterbox") -> Frames:
        """Exactly these frames in the order asked for; each is decoded once however often it is named."""
        wanted = self._checked(indices)
        placement = place(self.info.size, size or self.info.size, fit)
        shape = (len(wanted), *placement.output, 3)
        self._check_output(shape)
        out = np.zeros(shape, np.uint8)
        unique, first, inverse = np.unique(wanted, return_index=True, return_inverse=True)
        for (_, picture), place_of in zip(self._pictures(unique.tolist()), first.tolist(), strict=True):
            self._draw(picture, placement, out[place_of])
        source = first[inverse]
        for row in np.flatnonzero(source != np.arange(len(wanted))):
            out[row] = out[source[row]]
        return out

    def at_times(
        self,
        times_s: Sequence[float] | Float64[np.ndarray, " T"],
        size: Size | None = None,
        fit: Fit = "letterbox",
    ) -> Frames:
        """The frames on screen at these times."""
        return self.frames(self.indices_at(times_s), size, fit)

    def at_rate(self, rate_hz: float, size: Size | None = None, fit: Fit = "letterbox") -> Frames:
        """The whole video at a steady rate: the frames on screen at k / rate_hz."""
        return self.at_times(resample_times(self.info.duration_s, rate_hz), size, fit)

    def indices_at(self, times_s: Sequence[float] | Float64[np.ndarray, " T"]) -> Int64[np.ndarray, " T"]:
        """Numbers of the frames on screen: the latest with a time at or before t.

        A frame counts as shown up to the rounding of the container's clock early: at 30 Hz Matroska stores
        0.067 for the frame of 2/30 s. The allowance is at most a twentieth of a frame.
        """
        times = np.asarray(times_s, np.float64)
        if times.size and not (np.isfinite(times).all() and times.min() >= 0):
            raise BadInput(f"times are seconds from the first frame, at least 0, got {float(times.min())}")
        if times.size and times.max() > self.info.duration_s + self._tolerance_s:
            raise BadInput(f"time {times.max():.3f} s is past the video's end, {self.info.duration_s:.3f} s")
        return np.searchsorted(self.times_s, times + self._tolerance_s, side="right") - 1

    def _checked(self, indices: Iterable[int]) -> Int64[np.ndarray, " T"]:
        given = np.asarray(indices if isinstance(indices, (np.ndarray, range)) else list(indices))
        wanted = given.astype(np.int64)
        if wanted.ndim != 1 or (given.size and (given != wanted).any()):
            raise BadInput("frame numbers are a list of whole numbers")
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise BadInput(
                f"frames {wanted.min()}..{wanted.max()} were asked for, but {str(self.path)!r} has "
                f"0..{len(self) - 1}"
            )
        return wanted

    def _check_output(self, shape: tuple[int, ...]) -> None:
        num_bytes = int(np.prod(shape, dtype=np.int64))
        if num_bytes > self.limits.max_output_bytes:
            raise bad(
                self.path,
                f"gives {shape[0]} frames of {shape[2]}x{shape[1]}, {num_bytes / 2**30:.1f} GiB, above the "
                f"limit of {self.limits.max_output_bytes / 2**30:.1f}; ask for a smaller size or fewer "
                "frames, iterate with stream(), or raise VideoLimits(max_output_bytes=...)",
            )

    def _draw(self, picture: av.VideoFrame, placement: Placement, out: Image) -> None:
        turns = self.info.rotation // 90
        height, width = placement.scaled
        coded = (width, height) if turns % 2 else (height, width)
        with telling(self.path, f"converting a picture of format {picture.format.name}"):
            pixels = self._converter.rgb(picture, coded, self.info.hdr)
        lay_into(out, upright(pixels, turns, self.info.is_mirrored), placement)


def resample_times(duration_s: float, rate_hz: float) -> Float64[np.ndarray, " T"]:
    """The times k / rate_hz that fall inside a video, always at least the first."""
    if not (rate_hz > 0 and np.isfinite(rate_hz) and duration_s >= 0):
        raise BadInput(
            f"a rate must be above 0 Hz and a duration not negative, got {rate_hz} and {duration_s}"
        )
    count = max(1, int(np.ceil(duration_s * rate_hz - 1e-6)))
    return np.arange(count) / rate_hz

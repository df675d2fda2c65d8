"""Pictures as a video: a folder of numbered images, or an animated WebP.

Folders are read in natural order (2.jpg before 10.jpg) at a rate the caller gives. A single still picture is
refused: it shows no task.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
from jaxtyping import Float64
from PIL import Image as Pillow
from PIL import ImageOps

from hostbot.types import BadInput
from hostbot.video.colour import Colour
from hostbot.video.info import VideoInfo
from hostbot.video.limits import PathLike, VideoLimits, bad, check_frame_size, within
from hostbot.video.reader import Reader
from hostbot.video.source import PICTURES, check_file

# The pixel limit is ours, checked from the header before anything is decoded.
warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """Sort key by which frame2 comes before frame10."""
    parts = re.split(r"(\d+)", name.lower())
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part]


class FolderReader(Reader):
    """A folder of pictures of one size, one a frame; other files in it are ignored."""

    def __init__(
        self,
        path: PathLike,
        *,
        fps: float = 30.0,
        limits: VideoLimits | None = None,
        background: Colour = (0, 0, 0),
    ) -> None:
        super().__init__(path, limits or VideoLimits(), background)
        if not 0 < fps < 10_000:
            raise BadInput(f"the rate of a picture folder must be above 0 Hz, got {fps}")
        self.files = self._list()
        within(path, self.limits, "max_frames", len(self.files), "pictures")
        size = self._header_size(self.files[0])
        self._info = _info(size, f"folder of {self.files[0].suffix[1:].lower()}", len(self.files), fps)

    def _list(self) -> list[Path]:
        try:
            entries = list(Path(self.path).iterdir())
        except OSError as error:
            raise bad(self.path, f"cannot be listed ({error.strerror}); check the path") from None
        shown = [file for file in entries if file.suffix.lower() in PICTURES and file.name[0] != "."]
        if not shown:
            kinds = ", ".join(sorted(PICTURES))
            raise bad(
                self.path, f"is a folder without pictures ({kinds}); give a video file or another folder"
            )
        for file in shown:
            if not file.is_file() or file.stat().st_size == 0:
                raise bad(file, "is no picture but an empty file or a folder; remove it or copy it again")
        return sorted(shown, key=lambda file: natural_key(file.name))

    @property
    def info(self) -> VideoInfo:
        """Size from the first picture, rate as given."""
        return self._info

    @property
    def times_s(self) -> Float64[np.ndarray, " T"]:
        """Evenly spaced."""
        return np.arange(len(self.files)) / self._info.fps

    @property
    def _tolerance_s(self) -> float:
        return 1e-6

    def close(self) -> None:
        """Nothing stays open between calls."""

    def _pictures(self, indices: Sequence[int]) -> Iterator[tuple[int, av.VideoFrame]]:
        for index in indices:
            size = self._header_size(self.files[index])
            if size != self._info.size:
                raise bad(
                    self.files[index],
                    f"is {size[1]}x{size[0]} but the first is {self._info.width}x{self._info.height}; "
                    "a folder holds one video of one size, move the others out",
                )
            yield index, self._load(self.files[index])

    def _header_size(self, file: Path) -> tuple[int, int]:
        check_file(file, self.limits)
        try:
            with Pillow.open(file) as picture:
                check_frame_size(file, self.limits, *picture.size)
                turned = picture.getexif().get(0x0112, 1) >= 5
                return picture.size if turned else picture.size[::-1]
        except (OSError, ValueError, SyntaxError, Pillow.DecompressionBombError) as error:
            raise _broken(file, error) from None

    def _load(self, file: Path) -> av.VideoFrame:
        try:
            with Pillow.open(file) as picture:
                picture.load()
                return as_frame(ImageOps.exif_transpose(picture))
        except (OSError, ValueError, SyntaxError, Pillow.DecompressionBombError) as error:
            raise _broken(file, error) from None


class WebpReader(Reader):
    """An animated WebP; going back starts again from its first frame, as the format requires."""

    def __init__(
        self, path: PathLike, *, limits: VideoLimits | None = None, background: Colour = (0, 0, 0)
    ) -> None:
        super().__init__(path, limits or VideoLimits(), background)
        check_file(path, self.limits)
        with Path(path).open("rb") as file:
            promised = int.from_bytes(file.read(8)[4:], "little") + 8
        if promised > Path(path).stat().st_size:
            raise bad(path, f"is cut short: it promises {promised:,} bytes; copy it again")
        try:
            self._picture = Pillow.open(path)
        except (OSError, ValueError, SyntaxError, Pillow.DecompressionBombError) as error:
            raise _broken(Path(path), error) from None
        check_frame_size(path, self.limits, *self._picture.size)
        num_frames = getattr(self._picture, "n_frames", 1)
        if num_frames < 2:
            raise bad(path, "is a still picture; give a video, or the folder that holds the pictures of one")
        within(path, self.limits, "max_frames", num_frames, "frames")
        ends = np.cumsum([self._duration_ms(index) for index in range(num_frames)]) / 1000
        self._times_s = np.concatenate([[0.0], ends[:-1]])
        self._info = _info(self._picture.size[::-1], "webp", num_frames, num_frames / float(ends[-1]))
        steady = np.ptp(np.diff(ends, prepend=0.0)) < 1e-9
        self._info = replace(self._info, is_variable_rate=not steady)

    def _duration_ms(self, index: int) -> int:
        self._show(index)
        return int(self._picture.info.get("duration") or 100)

    def _show(self, index: int) -> None:
        try:
            self._picture.seek(index)
            self._picture.load()
        except (OSError, ValueError, EOFError, SyntaxError) as error:
            raise _broken(Path(self.path), error) from None

    @property
    def info(self) -> VideoInfo:
        """What the file says of itself."""
        return self._info

    @property
    def times_s(self) -> Float64[np.ndarray, " T"]:
        """When each frame appears; a frame without a duration is shown for 100 ms, as browsers do."""
        return self._times_s

    @property
    def _tolerance_s(self) -> float:
        return 0.0005

    def close(self) -> None:
        """Close the file."""
        self._picture.close()

    def _pictures(self, indices: Sequence[int]) -> Iterator[tuple[int, av.VideoFrame]]:
        for index in indices:
            self._show(index)
            yield index, as_frame(self._picture)


def as_frame(picture: Pillow.Image) -> av.VideoFrame:
    """A decoded picture of any mode as a frame for the colour converter; 16-bit greys keep their top byte."""
    if picture.mode.startswith("I;16"):
        grey = np.asarray(picture).astype(np.uint16) >> 8
        return av.VideoFrame.from_ndarray(np.repeat(grey.astype(np.uint8)[..., None], 3, 2))
    if picture.mode in ("I", "F"):
        raise ValueError(f"it holds {'whole' if picture.mode == 'I' else 'real'} 32-bit numbers, not colours")
    mode = "RGBA" if picture.has_transparency_data else "RGB"
    return av.VideoFrame.from_ndarray(
        np.asarray(picture.convert(mode)), format="rgba" if mode == "RGBA" else "rgb24"
    )


def _info(size: tuple[int, int], codec: str, num_frames: int, fps: float) -> VideoInfo:
    return VideoInfo(
        width=size[1],
        height=size[0],
        codec=codec,
        num_frames=num_frames,
        duration_s=num_frames / fps,
        fps=fps,
        is_variable_rate=False,
        rotation=0,
        is_mirrored=False,
        bit_depth=8,
        hdr=None,
        has_audio=False,
    )


def _broken(file: Path, error: Exception) -> Exception:
    return bad(file, f"is no whole picture ({error or type(error).__name__}); copy it again or remove it")

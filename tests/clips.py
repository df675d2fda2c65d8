"""Real video files whose every frame carries its own number as ten black or white blocks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

ROWS, COLUMNS = 2, 5
BLACK, WHITE = 40, 215


def stamped(index: int, size: tuple[int, int]) -> np.ndarray:
    """A picture of ROWS x COLUMNS blocks that spell ``index`` in binary."""
    bits = np.array([(index >> bit) & 1 for bit in range(ROWS * COLUMNS)]).reshape(ROWS, COLUMNS)
    rows = np.arange(size[0]) * ROWS // size[0]
    columns = np.arange(size[1]) * COLUMNS // size[1]
    grey = np.where(bits[rows][:, columns], WHITE, BLACK).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=2)


def number_on(image: np.ndarray) -> int:
    """The number a stamped picture carries, read in the middle of each block."""
    height, width = image.shape[:2]
    rows = ((np.arange(ROWS) + 0.5) * height / ROWS).astype(int)
    columns = ((np.arange(COLUMNS) + 0.5) * width / COLUMNS).astype(int)
    bits = image[rows][:, columns].mean(axis=-1) > 127
    return int(sum(1 << int(bit) for bit in np.flatnonzero(bits.ravel())))


def numbers_on(images: np.ndarray) -> list[int]:
    return [number_on(image) for image in images]


def encode(
    path: Path,
    codec: str,
    num_frames: int = 40,
    size: tuple[int, int] = (96, 160),
    *,
    pix_fmt: str = "yuv420p",
    options: dict[str, str] | None = None,
    pts: Sequence[int] | None = None,
    time_base: Fraction = Fraction(1, 30),
    rotation: float | None = None,
    hflip: bool = False,
    audio: bool = False,
    aspect: Fraction | None = None,
    transfer: int | None = None,
    muxer: dict[str, str] | None = None,
    pictures: Sequence[np.ndarray] | None = None,
) -> Path:
    """Write a clip with PyAV alone, so that the module under test is not its own oracle."""
    pts = list(range(num_frames)) if pts is None else list(pts)
    with av.open(str(path), "w", options=muxer or {}) as container:
        stream = container.add_stream(codec, rate=Fraction(1) / time_base)
        context = stream.codec_context
        context.height, context.width = size
        context.pix_fmt = pix_fmt
        context.time_base = time_base
        context.options = {"threads": "1"} | (options or {})
        if aspect is not None:
            context.sample_aspect_ratio = aspect
        if transfer is not None:
            context.color_trc, context.colorspace, context.color_primaries = transfer, 9, 9
            context.color_range = 1
        if rotation is not None or hflip:
            stream.set_display_rotation(rotation or 0, hflip=hflip)
        sound = container.add_stream("aac", rate=44100) if audio else None
        for index, at in enumerate(pts):
            pixels = stamped(index, size) if pictures is None else pictures[index]
            kind = "rgba" if pixels.shape[-1] == 4 else "rgb24"
            frame = av.VideoFrame.from_ndarray(pixels, format=kind).reformat(format=pix_fmt, threads=1)
            frame.pts, frame.time_base = at, time_base
            container.mux(stream.encode(frame))
        if sound is not None:
            for start in range(0, 44100, 1024):
                noise = np.zeros((1, 1024), np.float32)
                tone = av.AudioFrame.from_ndarray(noise, format="fltp", layout="mono")
                tone.sample_rate, tone.pts = 44100, start
                container.mux(sound.encode(tone))
            container.mux(sound.encode(None))
        container.mux(stream.encode(None))
    return path


X265 = "log-level=none:keyint=12:pools=1:frame-threads=1"
"""x265's default, open groups of pictures, is what phones and encoders leave us with."""


def clip(folder: Path, name: str) -> Path:
    """One of the named clips below, made on first use."""
    path = folder / name
    if not path.exists():
        recipe = RECIPES[name]
        encode(path, **recipe)  # type: ignore[arg-type]
    return path


VFR = [0, 40, 50, 90, 200, 201, 300, 310, 350, 420, 600, 610, 640, 700, 705, 800, 900, 901, 950, 1000]
RECIPES: dict[str, dict[str, object]] = {
    "h264_bframes.mp4": {"codec": "libx264", "options": {"bf": "3", "g": "12"}},
    "h264_open_gop.mp4": {
        "codec": "libx264",
        "options": {"x264-params": "open-gop=1:bframes=3:keyint=12:b-pyramid=2:scenecut=0"},
    },
    "h264_plain.mp4": {"codec": "libx264", "options": {"bf": "0", "g": "10", "sc_threshold": "0"}},
    "h264_fragmented.mp4": {
        "codec": "libx264",
        "options": {"bf": "2", "g": "10"},
        "muxer": {"movflags": "frag_keyframe+empty_moov"},
    },
    "h264_bframes.mkv": {"codec": "libx264", "options": {"bf": "3", "g": "12"}},
    "h264_bframes.avi": {"codec": "libx264", "options": {"bf": "3", "g": "12"}},
    "h264_bframes.ts": {"codec": "libx264", "options": {"bf": "3", "g": "12"}},
    "h264_audio.mp4": {"codec": "libx264", "options": {"g": "12"}, "audio": True},
    "h264_late_start.mp4": {"codec": "libx264", "options": {"g": "12"}, "pts": range(100, 140)},
    "h264_late_start.mkv": {"codec": "libx264", "options": {"g": "12"}, "pts": range(100, 140)},
    "h264_vfr.mp4": {
        "codec": "libx264",
        "options": {"bf": "2", "g": "7"},
        "pts": VFR,
        "time_base": Fraction(1, 1000),
    },
    "h264_odd.mp4": {"codec": "libx264", "size": (95, 161), "pix_fmt": "yuv444p", "options": {"g": "12"}},
    "hevc.mp4": {"codec": "libx265", "options": {"x265-params": X265}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"g": "12", "deadline": "realtime", "cpu-used": "8"}},
    "av1.mp4": {"codec": "libsvtav1", "options": {"g": "12", "preset": "8", "crf": "10"}},
    "mpeg4.avi": {"codec": "mpeg4", "options": {"bf": "2", "g": "12", "q": "4"}},
    "mpeg4.mp4": {"codec": "mpeg4", "options": {"bf": "2", "g": "12", "q": "4"}},
    "mjpeg.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p"},
    "ffv1.mkv": {"codec": "ffv1", "options": {"level": "3", "slicecrc": "1", "g": "12"}},
    "plain.gif": {"codec": "gif", "pix_fmt": "rgb8", "time_base": Fraction(1, 25)},
    "plain.apng": {"codec": "apng", "pix_fmt": "rgb24", "time_base": Fraction(1, 25)},
}

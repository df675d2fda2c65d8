"""From a decoder's picture to upright 8-bit sRGB at the size asked for.

Legend: PQ and HLG are the two HDR transfers of BT.2100; E' is a coded signal, E linear light with
1.0 at reference white (203 cd/m2, BT.2408). Wide-gamut SDR is left in its own primaries.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import av
import numpy as np
from av.video.reformatter import ColorRange, ColorTrc, Interpolation, VideoReformatter
from jaxtyping import Float32, UInt8, UInt16

from hostbot.types import Image
from hostbot.video.fit import Placement, Size

Hdr = Literal["pq", "hlg"]
Colour = tuple[int, int, int]

_MATRIX_UNKNOWN = 2
_MATRIX_601, _MATRIX_709 = 5, 1
_EXACT = Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
_REFERENCE_WHITE = 203.0
_PEAK = 1000.0 / _REFERENCE_WHITE
_BT2020_TO_BT709 = np.array(
    [[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]], np.float32
)
_HLG_LUMA = np.array([0.2627, 0.6780, 0.0593], np.float32)


def hdr_transfer(color_trc: int) -> Hdr | None:
    """Which HDR transfer a stream declares, if any."""
    if color_trc == ColorTrc.SMPTE2084:
        return "pq"
    return "hlg" if color_trc == ColorTrc.ARIB_STD_B67 else None


class Converter:
    """Scales and converts frames, reusing one swscale context; one thread, so that workers stay bounded."""

    def __init__(self, background: Colour = (0, 0, 0)) -> None:
        self._background = background
        self._reformatter = VideoReformatter()
        self._flattener = VideoReformatter()

    def rgb(self, frame: av.VideoFrame, scaled: Size, hdr: Hdr | None) -> Image:
        """The coded picture (not yet turned upright) as 8-bit RGB of ``scaled`` size."""
        if any(component.is_alpha for component in frame.format.components):
            frame = self._flatten(frame)
        pixels = self._reformat(self._reformatter, frame, "rgb48le" if hdr else "rgb24", scaled)
        return tone_map(pixels, hdr) if hdr else pixels

    def _flatten(self, frame: av.VideoFrame) -> av.VideoFrame:
        """Lay a picture with alpha over the background, before scaling so that edges do not bleed."""
        rgba = self._reformat(self._flattener, frame, "rgba", (frame.height, frame.width)).astype(np.uint16)
        alpha = rgba[..., 3:]
        under = np.array(self._background, np.uint16)
        over = (rgba[..., :3] * alpha + under * (255 - alpha) + 127) // 255
        return av.VideoFrame.from_ndarray(over.astype(np.uint8), format="rgb24")

    @staticmethod
    def _reformat(
        reformatter: VideoReformatter, frame: av.VideoFrame, pixel_format: str, size: Size
    ) -> UInt8[np.ndarray, "h w C"] | UInt16[np.ndarray, "h w C"]:
        if not frame.format.is_rgb and frame.colorspace == _MATRIX_UNKNOWN:
            # Players' convention for untagged video: HD is BT.709, smaller is BT.601.
            frame.colorspace = _MATRIX_709 if frame.height >= 720 or frame.width >= 1280 else _MATRIX_601
        # Unscaled 8-bit conversion has a fast path of its own, 18 times as fast and within 2 of 255.
        same_size = size == (frame.height, frame.width) and pixel_format == "rgb24"
        out = reformatter.reformat(
            frame,
            width=size[1],
            height=size[0],
            format=pixel_format,
            interpolation=Interpolation.BILINEAR if same_size else _EXACT,
            src_color_range=_range_of(frame),
            dst_color_range=ColorRange.JPEG,
            threads=1,
        )
        return out.to_ndarray()


def _range_of(frame: av.VideoFrame) -> ColorRange:
    if frame.color_range == ColorRange.UNSPECIFIED:
        full = frame.format.is_rgb or frame.format.name.startswith(("yuvj", "gray", "pal8", "ya8"))
        return ColorRange.JPEG if full else ColorRange.MPEG
    return ColorRange(frame.color_range)


def tone_map(signal: UInt16[np.ndarray, "h w 3"], hdr: Hdr) -> Image:
    """HDR BT.2020 (16-bit E') to SDR BT.709: decode, change primaries, roll highlights off, encode sRGB."""
    light = _decode_lut(hdr)[signal]
    if hdr == "hlg":
        luma = np.maximum(light @ _HLG_LUMA, 1e-6)
        light *= (_PEAK * luma**0.2)[..., None]
    light = np.maximum(light @ _BT2020_TO_BT709.T, 0.0)
    brightest = np.maximum(light.max(axis=-1), 1e-6)
    light *= (_roll_off(brightest) / brightest)[..., None]
    codes = np.minimum(light * 4095.0 + 0.5, 4095.0).astype(np.uint16)
    return np.asarray(_encode_lut()[codes])


def _roll_off(light: Float32[np.ndarray, "h w"]) -> Float32[np.ndarray, "h w"]:
    """Identity up to 0.7, then a smooth shoulder that reaches 1 at the peak (1000 cd/m2)."""
    knee, span = 0.7, _PEAK - 0.7
    over = np.clip((light - knee) / span, 0.0, 1.0)
    shoulder = knee + (1 - knee) * (over * (1 + span / (1 - knee)) / (1 + over * span / (1 - knee)))
    return np.where(light <= knee, light, shoulder)


@cache
def _decode_lut(hdr: Hdr) -> Float32[np.ndarray, " 65536"]:
    signal = np.linspace(0.0, 1.0, 65536)
    if hdr == "pq":  # SMPTE ST 2084 EOTF
        m1, m2, c1, c2, c3 = 0.1593017578125, 78.84375, 0.8359375, 18.8515625, 18.6875
        power = signal ** (1 / m2)
        light = (np.maximum(power - c1, 0) / (c2 - c3 * power)) ** (1 / m1) * 10_000 / _REFERENCE_WHITE
    else:  # BT.2100 HLG inverse OETF, scene light in [0, 1]
        a, b, c = 0.17883277, 0.28466892, 0.55991073
        light = np.where(signal <= 0.5, signal**2 / 3, (np.exp((signal - c) / a) + b) / 12)
    return light.astype(np.float32)


@cache
def _encode_lut() -> UInt8[np.ndarray, " 4096"]:
    light = np.linspace(0.0, 1.0, 4096)
    signal = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.round(signal * 255).astype(np.uint8)


def upright(pixels: Image, quarter_turns: int, mirrored: bool) -> Image:
    """Apply a display matrix: mirror left-right, then turn counter-clockwise by quarter turns."""
    return np.rot90(pixels[:, ::-1] if mirrored else pixels, quarter_turns)


def lay_into(out: Image, pixels: Image, placement: Placement) -> None:
    """Copy the overlapping part of a scaled picture into an output frame; the rest of it stays black."""
    (top, left), (height, width) = placement.offset, placement.scaled
    row, column = max(top, 0), max(left, 0)
    part = pixels[max(-top, 0) :, max(-left, 0) :]
    rows, columns = min(height, out.shape[0]), min(width, out.shape[1])
    out[row : row + rows, column : column + columns] = part[:rows, :columns]

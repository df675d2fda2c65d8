"""Where a picture goes inside the model's frame: stretched, centre-cropped or letterboxed.

Legend: sizes are (height, width) everywhere in hostbot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hostbot.types import BadInput

Fit = Literal["letterbox", "crop", "stretch"]
Size = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Scale the picture to ``scaled``, then put the part that overlaps into an ``output`` frame."""

    scaled: Size
    output: Size

    @property
    def offset(self) -> Size:
        """Top-left corner of the scaled picture in the output; negative where it is cropped."""
        return (self.output[0] - self.scaled[0]) // 2, (self.output[1] - self.scaled[1]) // 2


def check_size(size: Size) -> Size:
    """A (height, width) of positive whole numbers, or a sentence."""
    if len(size) != 2 or any(int(side) != side or side < 1 for side in size):
        raise BadInput(f"a frame size is (height, width), both whole and at least 1, got {tuple(size)}")
    return int(size[0]), int(size[1])


def place(source: Size, output: Size, fit: Fit) -> Placement:
    """Placement of a ``source``-sized picture; letterbox and crop keep its aspect to within a pixel."""
    output = check_size(output)
    if fit == "stretch":
        return Placement(scaled=output, output=output)
    ratios = (output[0] / source[0], output[1] / source[1])
    if fit == "letterbox":
        ratio = min(ratios)
        scaled = tuple(max(1, min(round(s * ratio), o)) for s, o in zip(source, output, strict=True))
    elif fit == "crop":
        ratio = max(ratios)
        scaled = tuple(max(round(s * ratio), o) for s, o in zip(source, output, strict=True))
    else:
        raise BadInput(f"fit is 'letterbox', 'crop' or 'stretch', got {fit!r}")
    return Placement(scaled=(scaled[0], scaled[1]), output=output)


def aligned_size(source: Size, side: int = 224, multiple: int = 8) -> Size:
    """The paper's camera size: long side ``side``, aspect kept, both sides a multiple of ``multiple``."""
    height, width = check_size(source)
    if side < multiple or multiple < 1:
        raise BadInput(
            f"the long side ({side}) must be at least the multiple ({multiple}), and that at least 1"
        )
    ratio = side / max(height, width)
    return _aligned(height * ratio, multiple), _aligned(width * ratio, multiple)


def _aligned(length: float, multiple: int) -> int:
    return max(multiple, round(length / multiple) * multiple)

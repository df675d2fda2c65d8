"""A contact sheet: one look at what a dataset holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hostbot.types import EpisodeSource

_MARGIN, _CAPTION, _LABEL, _GAP = 12, 22, 84, 3
_PAPER, _INK, _FAINT = (250, 250, 248), (30, 30, 30), (120, 120, 120)


def contact_sheet(
    source: EpisodeSource, episodes: Sequence[int], columns: int = 8, tile: int = 112
) -> Image.Image:
    """A row a view for each episode, frames evenly spaced from first to last, times and events written below."""
    text, small = ImageFont.load_default(14), ImageFont.load_default(11)
    rows = max(1, len(source.views))
    block = _CAPTION + rows * (tile + _GAP) + _CAPTION
    width = 2 * _MARGIN + _LABEL + columns * (tile + _GAP)
    sheet = Image.new("RGB", (width, 2 * _MARGIN + _CAPTION + len(episodes) * block), _PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN), f"{source.name}: {len(source)} episodes at {source.fps:g} Hz", _INK, text)
    for number, index in enumerate(episodes):
        top = _MARGIN + _CAPTION + number * block
        info = source.episode(index)
        caption = f"{index}  {info.instruction}  ({info.length} frames, {info.length / source.fps:.1f} s)"
        draw.text((_MARGIN, top), _shorten(draw, caption, text, width - 2 * _MARGIN), _INK, text)
        chosen = np.round(np.linspace(0, info.length - 1, columns)).astype(int).tolist()
        for row, view in enumerate(source.views):
            y = top + _CAPTION + row * (tile + _GAP)
            draw.text((_MARGIN, y + tile // 2 - 6), _shorten(draw, view, small, _LABEL - 6), _FAINT, small)
            for column, frame in enumerate(source.frames(index, view, chosen)):
                sheet.paste(_fitted(frame, tile), (_MARGIN + _LABEL + column * (tile + _GAP), y))
        _write_times(draw, source, index, chosen, (top + block - _CAPTION, tile), small)
    return sheet


def _fitted(frame: np.ndarray, tile: int) -> Image.Image:
    picture = Image.fromarray(frame)
    scale = tile / max(picture.size)
    picture = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))
    box = Image.new("RGB", (tile, tile), (225, 225, 222))
    box.paste(picture, ((tile - picture.width) // 2, (tile - picture.height) // 2))
    return box


def _write_times(
    draw: ImageDraw.ImageDraw,
    source: EpisodeSource,
    index: int,
    chosen: list[int],
    place: tuple[int, int],
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> None:
    top, tile = place
    for column, frame in enumerate(chosen):
        last = chosen[column + 1] if column + 1 < len(chosen) else source.episode(index).length
        names = [event.name for event in source.events(index) if frame <= event.frame < last]
        label = " ".join([f"{frame / source.fps:.1f} s", *names])
        draw.text(
            (_MARGIN + _LABEL + column * (tile + _GAP), top), _shorten(draw, label, font, tile), _FAINT, font
        )


def _shorten(
    draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int
) -> str:
    if draw.textlength(text, font) <= width:
        return text
    while text and draw.textlength(f"{text}…", font) > width:
        text = text[:-1]
    return f"{text}…"

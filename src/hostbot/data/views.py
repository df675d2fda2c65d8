"""Frames of an episode's cameras, out of mp4 files shared by many episodes or pictures kept in the parquet.

Legend: T frames asked for, sizes (height, width). A frame is found by its number in the mp4 (the episode's
first plus its own), and the file's own table of times is held against that number before any frame is
served.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISREG

import av
import numpy as np

from hostbot.data.files import Files, one_line, reading
from hostbot.data.index import EpisodeIndex
from hostbot.data.schema import Feature, Schema
from hostbot.data.table import Recent, Rows
from hostbot.types import DataError, Frames, Image
from hostbot.video.colour import Converter, lay_into
from hostbot.video.container import VideoReader
from hostbot.video.fit import Size, place

_CODECS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "mjpeg"}
_PICTURE_BATCH = 16


class Views:
    """The cameras of a dataset, a few files open at a time."""

    def __init__(self, files: Files, schema: Schema, index: EpisodeIndex, max_open: int = 12) -> None:
        self.files, self.schema, self.index = files, schema, index
        self._open: Recent[tuple[str, int], VideoReader] = Recent(max_open, self._opener, VideoReader.close)
        self._lock = threading.RLock()
        self._firsts = {key: places.first_of_file() for key, places in index.videos.items()}
        self._totals = {key: index.file_totals(places) for key, places in index.videos.items()}

    def relative(self, key: str, episode: int) -> str:
        """The mp4 that holds an episode of a camera."""
        places = self.index.videos[key]
        chunk, file = int(places.chunk[episode]), int(places.file[episode])
        template = self.schema.video_path or ""
        if self.schema.version == "v3.0":
            return template.format(video_key=key, chunk_index=chunk, file_index=file)
        return template.format(video_key=key, episode_chunk=chunk, episode_index=file)

    def frames(self, key: str, episode: int, wanted: Sequence[int], size: Size | None) -> Frames:
        """Exactly these frames, in the order asked for."""
        with self._lock:
            first = int(self.index.videos[key].start[episode])
            return self.reader(key, episode).frames([first + int(i) for i in wanted], size)

    def reader(self, key: str, episode: int) -> VideoReader:
        """The open mp4 that holds an episode, its frame count, rate and size found right."""
        return self._open.get((key, int(self._firsts[key][episode])))

    def present(self) -> None:
        """Every mp4 the metadata name is there and not empty."""
        for relative in self.named():
            path = self.files.path(relative)
            with reading(path):
                status = path.stat()
            if not S_ISREG(status.st_mode) or status.st_size == 0:
                raise DataError(f"{path} is missing or empty; restore it from a copy")

    def named(self) -> list[str]:
        """Every mp4, once."""
        return [self.relative(key, int(e)) for key, firsts in self._firsts.items() for e in np.unique(firsts)]

    def close(self) -> None:
        """Close every open file."""
        self._open.clear()

    def _opener(self, wanted: tuple[str, int]) -> VideoReader:
        key, episode = wanted
        path = self.files.checked(self.relative(key, episode))
        reader = VideoReader(path)
        try:
            self._check(
                reader,
                self.schema.features[key],
                path,
                int(self._totals[key][episode]),
            )
        except BaseException:
            reader.close()
            raise
        return reader

    def _check(self, reader: VideoReader, feature: Feature, path: Path, expected: int) -> None:
        if len(reader) != expected:
            raise DataError(
                f"{path} has {len(reader)} frames but its episodes have {expected}; restore it from a copy"
            )
        if reader.info.size != feature.size:
            raise DataError(
                f"{path} has frames of {reader.info.size} but meta/info.json says {feature.size} "
                "(height, width); correct the one that is wrong"
            )
        drift = np.abs(reader.times_s * self.schema.fps - np.arange(expected))
        if drift.max(initial=0) > 0.5:
            frame = int(np.argmax(drift > 0.5))
            raise DataError(
                f"{path} shows frame {frame} at {reader.times_s[frame]:.3f} s, which is not {frame} / "
                f"{self.schema.fps:g} s; encode it at a constant {self.schema.fps:g} frames a second"
            )


def picture_frames(rows: Rows, name: str, episode: int, wanted: Sequence[int], size: Size | None) -> Frames:
    """Frames of a camera whose pictures are kept in the parquet (dtype "image")."""
    places: dict[int, list[int]] = {}
    for place_of, frame in enumerate(wanted):
        places.setdefault(int(frame), []).append(place_of)
    feature, path = rows.schema.features[name], rows.files.path(rows.relative(episode))
    out = np.zeros((len(wanted), *(size or feature.size), 3), np.uint8)
    rows.table(episode, ())
    converter, row = Converter(), 0
    for batch in rows.batches(episode, [name], _PICTURE_BATCH):
        for offset in range(len(batch)):
            for nth, place_of in enumerate(places.get(row + offset, ())):
                if nth == 0:
                    where = f"{path}: {name!r} of episode {episode}, frame {row + offset},"
                    picture = _decode(batch.column(name)[offset].as_py(), where)
                    out[place_of] = _fitted(picture, feature, size, converter, where)
                else:
                    out[place_of] = out[places[row + offset][0]]
        row += len(batch)
    return out


def _decode(cell: object, where: str) -> av.VideoFrame:
    raw = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(raw, bytes):
        raise DataError(f"{where} has no picture bytes in the parquet; embed the pictures with lerobot first")
    codec = next((c for mark, c in _CODECS.items() if raw.startswith(mark)), None)
    if codec is None or (codec == "png" and not _png_is_whole(raw)):
        raise DataError(f"{where} is not a whole PNG or JPEG picture; restore the file from a copy")
    try:
        context = av.CodecContext.create(codec, "r")
        context.options = {"err_detect": "crccheck+explode"}
        pictures = [*context.decode(av.Packet(raw)), *context.decode(None)]  # type: ignore[attr-defined]
    except (av.FFmpegError, ValueError, MemoryError) as error:
        raise DataError(
            f"{where} cannot be decoded ({one_line(error)}); restore the file from a copy"
        ) from None
    if len(pictures) != 1:
        raise DataError(
            f"{where} holds {len(pictures)} pictures instead of one; restore the file from a copy"
        )
    picture: av.VideoFrame = pictures[0]
    return picture


def _fitted(
    picture: av.VideoFrame, feature: Feature, size: Size | None, converter: Converter, where: str
) -> Image:
    if (picture.height, picture.width) != feature.size:
        raise DataError(
            f"{where} is {picture.height}x{picture.width}, not {feature.size}; correct meta/info.json"
        )
    placement = place(feature.size, size or feature.size, "letterbox")
    image = np.zeros((*placement.output, 3), np.uint8)
    lay_into(image, converter.rgb(picture, placement.scaled, None), placement)
    return image


def _png_is_whole(raw: bytes) -> bool:
    """Whether every chunk is there with the checksum PNG gives it."""
    position, kind = 8, b""
    while position + 12 <= len(raw) and kind != b"IEND":
        size, kind = int.from_bytes(raw[position : position + 4]), raw[position + 4 : position + 8]
        body = raw[position + 4 : position + 8 + size]
        if zlib.crc32(body) != int.from_bytes(raw[position + 8 + size : position + 12 + size]):
            return False
        position += 12 + size
    return kind == b"IEND"

"""Three hundred damaged videos, the same ones for the same seed.

Each says what may happen to it: ``refuse`` must raise; ``same`` must raise or give the undamaged frames;
``checksum`` may in truth decode to other pixels without any decoder noticing (a flip inside coded picture
data), so that only a recorded checksum can tell, and with one it must be refused.
"""

from __future__ import annotations

import io
import os
import random
import struct
import wave
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import av
import numpy as np
from PIL import Image as Pillow

from tests.clips import X265, encode, stamped

Verdict = Literal["refuse", "same", "checksum"]
NUM_FRAMES, SIZE = 24, (96, 160)


@dataclass(frozen=True, kw_only=True)
class Damaged:
    path: Path
    kind: str
    verdict: Verdict
    original: Path | None = None
    """The undamaged video, where there was one."""


X264 = {"g": "8", "crf": "20"}
FAST = {"movflags": "+faststart"}
BASES: dict[str, dict[str, object]] = {
    "h264.mp4": {"codec": "libx264", "options": X264 | {"bf": "2"}, "muxer": FAST},
    "h264_tail.mp4": {"codec": "libx264", "options": X264 | {"bf": "0"}},
    "h264.mov": {"codec": "libx264", "options": X264 | {"bf": "2"}},
    "h264.mkv": {"codec": "libx264", "options": X264 | {"bf": "2"}},
    "h264.ts": {"codec": "libx264", "options": X264 | {"bf": "2"}},
    "hevc.mp4": {"codec": "libx265", "options": {"x265-params": X265}, "muxer": FAST},
    "hevc_hashed.mp4": {"codec": "libx265", "options": {"x265-params": X265 + ":hash=1"}, "muxer": FAST},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"g": "8", "deadline": "realtime", "cpu-used": "8"}},
    "av1.mp4": {"codec": "libsvtav1", "options": {"g": "8", "preset": "12"}, "muxer": FAST},
    "mpeg4.mp4": {"codec": "mpeg4", "options": {"g": "8", "q": "4"}, "muxer": FAST},
    "mpeg4.avi": {"codec": "mpeg4", "options": {"g": "8", "q": "4"}},
    "mjpeg.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p"},
    "ffv1.mkv": {"codec": "ffv1", "options": {"level": "3", "slicecrc": "1", "g": "1"}},
    "plain.gif": {"codec": "gif", "pix_fmt": "rgb8", "time_base": Fraction(1, 25)},
    "plain.apng": {"codec": "apng", "pix_fmt": "rgb24", "time_base": Fraction(1, 25)},
}
CHECKSUMMED = ("ffv1.mkv", "plain.apng")
"""Bases whose coded pictures carry checksums of their own: no flip may pass in them."""


def make_bases(folder: Path) -> list[Path]:
    """Undamaged clips with texture and motion, so that every byte of them matters."""
    noise = np.random.default_rng(5).integers(0, 60, (*SIZE, 3), dtype=np.uint8)
    pictures = [np.roll(noise, 3 * i, axis=1) + stamped(i, SIZE) // 2 + 40 for i in range(NUM_FRAMES)]
    folder.mkdir(parents=True, exist_ok=True)
    return [
        encode(folder / name, num_frames=NUM_FRAMES, size=SIZE, pictures=pictures, **recipe)  # type: ignore[arg-type]
        for name, recipe in BASES.items()
    ]


Change = Callable[[bytearray, random.Random], bytearray]


def cut(data: bytearray, rng: random.Random) -> bytearray:
    return data[: rng.randrange(1, len(data) - 1)]


def cut_little(data: bytearray, rng: random.Random) -> bytearray:
    return data[: len(data) - rng.randrange(1, 40)]


def flip(count: int) -> Change:
    def change(data: bytearray, rng: random.Random) -> bytearray:
        for _ in range(count):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return data

    return change


def flip_header(data: bytearray, rng: random.Random) -> bytearray:
    data[rng.randrange(min(64, len(data)))] ^= 1 << rng.randrange(8)
    return data


def flip_index(data: bytearray, rng: random.Random) -> bytearray:
    """Among the tables of sizes, times and offsets, where a flip lies about the film."""
    at = data.find(b"moov")
    start, end = (at, at + int.from_bytes(data[at - 4 : at])) if at > 0 else (0, len(data) // 10)
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(start, min(end, len(data)))] ^= 1 << rng.randrange(8)
    return data


def zero_run(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data) // 4, len(data) * 3 // 4)
    data[start : start + 512] = bytes(len(data[start : start + 512]))
    return data


def noise_run(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data) // 4, len(data) * 3 // 4)
    data[start : start + 256] = rng.randbytes(len(data[start : start + 256]))
    return data


def hole(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data) // 4, len(data) * 3 // 4)
    del data[start : start + rng.randrange(1, 400)]
    return data


def trailing_junk(data: bytearray, rng: random.Random) -> bytearray:
    return data + rng.randbytes(rng.randrange(1, 2000))


def zeroed_tail(data: bytearray, rng: random.Random) -> bytearray:
    """A download that reserved its length and stopped."""
    start = rng.randrange(len(data) // 3, len(data) * 2 // 3)
    data[start:] = bytes(len(data) - start)
    return data


CHANGES: list[tuple[str, Change, Verdict]] = [
    ("cut", cut, "refuse"),
    ("cut_little", cut_little, "same"),
    ("flip_1", flip(1), "checksum"),
    ("flip_8", flip(8), "checksum"),
    ("flip_64", flip(64), "checksum"),
    ("flip_header", flip_header, "checksum"),
    ("flip_index", flip_index, "checksum"),
    ("zero_run", zero_run, "checksum"),
    ("noise_run", noise_run, "checksum"),
    ("hole", hole, "checksum"),
    ("zeroed_tail", zeroed_tail, "checksum"),
    ("trailing_junk", trailing_junk, "same"),
]


def _patched(original: Path, path: Path, marker: bytes, offset: int, value: bytes) -> Path:
    data = bytearray(original.read_bytes())
    at = data.index(marker) + offset
    data[at : at + len(value)] = value
    path.write_bytes(data)
    return path


def _sound(path: Path) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        for start in range(0, 20480, 1024):
            tone = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            tone.sample_rate, tone.pts = 44100, start
            container.mux(stream.encode(tone))
        container.mux(stream.encode(None))
    return path


def _wave(path: Path) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(16000))
    return path


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _zipped(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("clip.mp4", b"nothing" * 50)
    return path


def _bomb_png(path: Path) -> Path:
    header = b"IHDR" + struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return _written(path, b"\x89PNG\r\n\x1a\n" + chunk + bytes(12))


def _folder(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def _png(size: tuple[int, int]) -> bytes:
    stream = io.BytesIO()
    Pillow.fromarray(stamped(3, size)).save(stream, "png")
    return stream.getvalue()


def special_cases(folder: Path, bases: dict[str, Path], rng: random.Random) -> list[Damaged]:
    """What is no video at all, or a header that lies."""
    at = folder.joinpath
    os.mkfifo(at("pipe.mp4"))
    at("loop.mp4").symlink_to(at("loop.mp4"))
    at("dangling.mp4").symlink_to(at("nowhere.mp4"))
    whole = _png((40, 40))
    paths = {
        "missing": at("missing.mp4"),
        "pipe": at("pipe.mp4"),
        "device": Path("/dev/null"),
        "loop": at("loop.mp4"),
        "dangling": at("dangling.mp4"),
        "empty": _written(at("empty.mp4"), b""),
        "one_byte": _written(at("one.mp4"), b"\0"),
        "text": _written(at("text.mp4"), b"This is no video.\n" * 100),
        "no_extension": _written(at("text"), b"just words " * 50),
        "html": _written(at("page.mp4"), b"<!DOCTYPE html><html><body>404</body></html>" * 20),
        "json": _written(at("data.mp4"), b'{"error": "not found"}'),
        "playlist": _written(at("list.m3u8"), b"#EXTM3U\n#EXTINF:10,\n/etc/hostname\n"),
        "concat": _written(at("list.ffconcat"), b"ffconcat version 1.0\nfile '/etc/hostname'\n"),
        "subtitles": _written(at("subs.mp4"), b"1\n00:00:01,000 --> 00:00:02,000\nHello\n"),
        "zip": _zipped(at("archive.mp4")),
        "pdf": _written(at("paper.mp4"), b"%PDF-1.7\n" + rng.randbytes(500)),
        "random": _written(at("random.mp4"), rng.randbytes(20_000)),
        "random_mkv": _written(at("random.mkv"), b"\x1a\x45\xdf\xa3" + rng.randbytes(5000)),
        "zeros": _written(at("zeros.mp4"), bytes(10_000)),
        "lfs_pointer": _written(
            at("lfs.mp4"), b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
        ),
        "sound_only": _sound(at("sound.m4a")),
        "wave": _wave(at("sound.mp4")),
        "still_png": _written(at("still.png"), whole),
        "still_named_mp4": _written(at("still.mp4"), whole),
        "png_bomb": _bomb_png(at("bomb.png")),
        "empty_folder": _folder(at("empty_folder"), {}),
        "folder_of_text": _folder(at("texts"), {"a.txt": b"a", "b.md": b"b"}),
        "folder_cut_picture": _folder(at("cut"), {"1.png": whole, "2.png": whole[:-40]}),
        "folder_sizes": _folder(at("sizes"), {"1.png": whole, "2.png": _png((40, 42))}),
        "folder_fake_picture": _folder(at("fake"), {"1.jpg": b"no picture", "2.jpg": b"none"}),
        "folder_empty_picture": _folder(at("hollow"), {"1.png": whole, "2.png": b""}),
        "folder_bomb": _folder(at("bombs"), {"1.png": _bomb_png(at("b.png")).read_bytes()}),
        "gif_bomb": _patched(bases["plain.gif"], at("bomb.gif"), b"GIF89a", 6, b"\xff\xff\xff\xff"),
        "mp4_bomb": _patched(bases["h264.mp4"], at("bomb.mp4"), b"avc1\0\0\0\0\0\0", 28, b"\xea\x60\xea\x60"),
        "mp4_no_size": _patched(bases["h264.mp4"], at("flat.mp4"), b"avc1\0\0\0\0\0\0", 28, bytes(4)),
        "billion_frames": _patched(bases["h264.mp4"], at("billion.mp4"), b"stsz", 12, (10**9).to_bytes(4)),
        "billion_equal_frames": _patched(
            bases["h264.mp4"], at("equal.mp4"), b"stsz", 8, (1).to_bytes(4) + (10**9).to_bytes(4)
        ),
        "billion_times": _patched(bases["h264.mp4"], at("times.mp4"), b"stts", 12, (10**9).to_bytes(4)),
        "wrong_codec": _patched(bases["h264.mp4"], at("codec.mp4"), b"avc1\0\0", 0, b"hvc1"),
        "unknown_codec": _patched(bases["h264.mp4"], at("unknown.mp4"), b"avc1\0\0", 0, b"zzzz"),
        "newline\nname": _written(at("two\nlines.mp4"), b"not a video"),
    }
    return [Damaged(path=path, kind=kind, verdict="refuse") for kind, path in paths.items()]


def damaged_videos(folder: Path, count: int = 300, seed: int = 0) -> list[Damaged]:
    """``count`` damaged videos in ``folder``: the special cases, then changes of every base in turn."""
    rng = random.Random(seed)
    bases = {path.name: path for path in make_bases(folder / "bases")}
    (folder / "damaged").mkdir()
    found = special_cases(folder / "damaged", bases, rng)
    while len(found) < count:
        number = len(found)
        kind, change, verdict = CHANGES[number % len(CHANGES)]
        original = rng.choice(list(bases.values()))
        before = original.read_bytes()
        after = bytes(change(bytearray(before), rng))
        if after == before:
            continue
        if kind.startswith("cut") and original.suffix == ".ts" and len(after) % 188 == 0:
            verdict = "checksum"  # cut between two packets, a transport stream is shorter and whole
        path = folder / "damaged" / f"{number:03d}_{kind}_{original.name}"
        path.write_bytes(after)
        found.append(Damaged(path=path, kind=kind, verdict=verdict, original=original))
    return found[:count]

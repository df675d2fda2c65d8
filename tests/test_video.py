"""Every frame of every kind of file is the right one, upright, in the right colours, or refused."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import stat
import struct
import subprocess
import sys
import threading
from fractions import Fraction
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from hostbot.types import BadInput, VideoError
from hostbot.video import (
    LiveVideo,
    VideoLimits,
    VideoReader,
    VideoWriter,
    aligned_size,
    crc32,
    load_demonstration,
    open_video,
    place,
    probe,
    resample_times,
)
from tests.clips import RECIPES, VFR, clip, encode, number_on, numbers_on, stamped


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", RECIPES)
def test_every_frame_in_random_order(clips: Path, name: str, threads: int) -> None:
    with open_video(clip(clips, name), threads=threads) as reader:
        count = len(VFR) if "vfr" in name else 40
        assert len(reader) == count
        assert numbers_on(reader.frames(range(count))) == list(range(count))
        order = random.Random(7).sample(range(count), count)
        assert [number_on(reader.frames([index])[0]) for index in order] == order
        assert numbers_on(reader.frames(order)) == order
        assert [number_on(image) for image in reader] == list(range(count))
        windows = [range(3, 36, 4), range(5, 9), [9, 9, 2, 9]] if count == 40 else [range(3, 18, 4)]
        for window in windows:
            assert numbers_on(reader.frames(window, (48, 80))) == list(window)


@pytest.mark.parametrize("name", ["h264_bframes.mp4", "hevc.mp4", "h264_open_gop.mp4", "av1.mp4", "vp9.webm"])
def test_random_access_gives_the_pixels_of_sequential_decoding(clips: Path, name: str) -> None:
    path = clip(clips, name)
    with VideoReader(path) as reader:
        whole = reader.frames(range(40))
        for index in random.Random(3).sample(range(40), 40):
            np.testing.assert_array_equal(reader.frames([index])[0], whole[index])


def test_a_jump_backward_seeks_and_a_step_forward_does_not(
    clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeks: list[int] = []
    plain = VideoReader._seek
    monkeypatch.setattr(
        VideoReader, "_seek", lambda self, begin: (seeks.append(begin), plain(self, begin))[1]
    )
    with VideoReader(clip(clips, "h264_plain.mp4")) as reader:
        seeks.clear()
        reader.frames([2, 3, 9, 12, 15])
        reader.frames([16, 19])
        assert seeks == []
        reader.frames([21])
        assert seeks == []
        reader.frames([3])
        assert seeks == [0]
        reader.frames([35])
        assert seeks == [0, 30]
        reader.frames([34])
        assert seeks == [0, 30, 30]


def test_an_index_that_hides_reordering_is_not_trusted(clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hostbot.video import table

    path = clip(clips, "h264_bframes.mp4")
    plain = table.build_table
    fooled: list[bool] = []

    def fool(path, container, stream, limits, *, trust_index=True):  # type: ignore[no-untyped-def]
        found = table._from_index(path, container, stream) if trust_index else None
        fooled.append(found is not None)
        return found or plain(path, container, stream, limits, trust_index=trust_index)

    monkeypatch.setattr("hostbot.video.container.build_table", fool)
    with VideoReader(path) as reader:
        assert numbers_on(reader.frames(range(40))) == list(range(40))
    assert fooled == [True, False]


def test_probe_tells_what_is_in_a_file(clips: Path) -> None:
    info = probe(clip(clips, "h264_audio.mp4"))
    assert (info.width, info.height, info.codec, info.num_frames) == (160, 96, "h264", 40)
    assert (info.has_audio, info.is_variable_rate, info.hdr, info.bit_depth) == (True, False, None, 8)
    assert (info.duration_s, info.fps) == (pytest.approx(40 / 30), pytest.approx(30))
    assert not probe(clip(clips, "h264_bframes.mkv")).is_variable_rate
    assert probe(clip(clips, "h264_vfr.mp4")).is_variable_rate
    assert not probe(clip(clips, "vp9.webm")).has_audio


def test_times_follow_the_timestamps(clips: Path) -> None:
    with VideoReader(clip(clips, "h264_vfr.mp4")) as reader:
        np.testing.assert_allclose(reader.times_s, np.array(VFR) / 1000)
        times = [0.0, 0.039, 0.04, 0.199, 0.2004, 0.201, 0.95, 0.999, 1.0]
        assert numbers_on(reader.at_times(times)) == [0, 0, 1, 3, 4, 5, 18, 18, 19]
        shown = [max(i for i, at in enumerate(VFR) if at / 1000 <= k / 20 + 1e-9) for k in range(20)]
        assert numbers_on(reader.at_rate(20))[:20] == shown
        with pytest.raises(BadInput, match="past the video's end"):
            reader.at_times([9.0])
        with pytest.raises(BadInput, match="at least 0"):
            reader.at_times([-0.1])


@pytest.mark.parametrize("name", ["h264_bframes.mp4", "h264_bframes.mkv", "h264_late_start.mkv", "vp9.webm"])
def test_a_rate_equal_to_the_videos_gives_each_frame_once(clips: Path, name: str) -> None:
    with VideoReader(clip(clips, name)) as reader:
        assert reader.times_s[0] == 0
        assert numbers_on(reader.at_rate(30.0)) == list(range(40))
        assert numbers_on(reader.at_rate(10.0)) == list(range(0, 40, 3))


@pytest.mark.parametrize(
    ("rotation", "hflip", "turn"),
    [
        (90, False, lambda image: np.rot90(image, 1)),
        (180, False, lambda image: np.rot90(image, 2)),
        (-90, False, lambda image: np.rot90(image, 3)),
        (0, True, lambda image: image[:, ::-1]),
    ],
)
def test_phones_rotation_is_applied(tmp_path: Path, rotation: int, hflip: bool, turn) -> None:  # type: ignore[no-untyped-def]
    coded = np.full((96, 160, 3), 60, np.uint8)
    coded[:48, :80] = (220, 40, 40)
    coded[:48, 80:] = (40, 200, 40)
    path = encode(tmp_path / "turned.mp4", "libx264", 4, rotation=rotation, hflip=hflip, pictures=[coded] * 4)
    with VideoReader(path) as reader:
        upright = turn(coded)
        assert reader.info.size == upright.shape[:2]
        assert (reader.info.rotation, reader.info.is_mirrored) == (rotation % 360, hflip)
        error = np.abs(reader.frames([1])[0].astype(int) - upright)
        assert np.median(error, axis=(0, 1)).max() <= 6
        assert (error.max(axis=-1) > 30).mean() < 0.05
        small = reader.frames([1], (40, 40), "stretch")[0]
        assert (
            np.abs(small[10, 10].astype(int) - upright[upright.shape[0] // 4, upright.shape[1] // 4]).max()
            < 8
        )


def test_wide_pixels_are_shown_wide(tmp_path: Path) -> None:
    path = encode(tmp_path / "wide.mp4", "libx264", 3, aspect=Fraction(2, 1))
    with VideoReader(path) as reader:
        assert reader.info.size == (96, 320)
        assert reader.frames([2]).shape == (1, 96, 320, 3)
        assert number_on(reader.frames([2])[0]) == 2


def yuv(rgb: tuple[int, int, int], red: float, blue: float, full: bool) -> list[int]:
    r, g, b = (value / 255 for value in rgb)
    y = red * r + (1 - red - blue) * g + blue * b
    cb, cr = (b - y) / (2 - 2 * blue), (r - y) / (2 - 2 * red)
    codes = (
        (255 * y, 128 + 255 * cb, 128 + 255 * cr) if full else (16 + 219 * y, 128 + 224 * cb, 128 + 224 * cr)
    )
    return [min(255, max(0, round(code))) for code in codes]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("tag", "height", "red", "blue"),
    [(1, 64, 0.2126, 0.0722), (6, 64, 0.299, 0.114), (2, 64, 0.299, 0.114), (2, 720, 0.2126, 0.0722)],
)
def test_matrix_and_range(tag: int, height: int, red: float, blue: float, full: bool) -> None:
    from hostbot.video.colour import Converter

    for rgb in [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0), (128, 64, 200)]:
        frame = av.VideoFrame(64, height, "yuv420p")
        for plane, code in zip(frame.planes, yuv(rgb, red, blue, full), strict=True):
            plane.update(bytes([code]) * plane.buffer_size)
        frame.colorspace, frame.color_range = tag, 2 if full else 1
        for size in [(height, 64), (30, 20)]:
            assert np.abs(Converter().rgb(frame, size, None).astype(int) - rgb).max() <= 3


def pq_code(nits: float) -> int:
    m1, m2, c1, c2, c3 = 2610 / 16384, 2523 / 32, 3424 / 4096, 2413 / 128, 2392 / 128
    power = (nits / 10_000) ** m1
    return round(64 + 876 * ((c1 + c2 * power) / (1 + c3 * power)) ** m2)


def hdr_clip(path: Path, transfer: int, luma: list[int]) -> Path:
    """Five ten-bit grey bars a frame, each of a given code, tagged as HDR."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx265", rate=30)
        context = stream.codec_context
        context.width, context.height, context.pix_fmt = 160, 96, "yuv420p10le"
        context.options = {"x265-params": "log-level=none:pools=1:lossless=1"}
        context.color_trc, context.colorspace, context.color_primaries, context.color_range = (
            transfer,
            9,
            9,
            1,
        )
        for index in range(3):
            frame = av.VideoFrame(160, 96, "yuv420p10le")
            row = np.repeat(np.array(luma, np.uint16), 32)
            frame.planes[0].update(_rows(np.tile(row, (96, 1)), frame.planes[0]))
            for plane in frame.planes[1:]:
                plane.update(_rows(np.full((48, 80), 512, np.uint16), plane))
            frame.pts, frame.time_base = index, Fraction(1, 30)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def _rows(values: np.ndarray, plane: av.video.plane.VideoPlane) -> bytes:
    padded = np.zeros((plane.height, plane.line_size // 2), np.uint16)
    padded[:, : values.shape[1]] = values
    return padded.tobytes()


def srgb(light: float) -> float:
    return 255 * (12.92 * light if light <= 0.0031308 else 1.055 * light ** (1 / 2.4) - 0.055)


def test_pq_is_shown_as_sdr(tmp_path: Path) -> None:
    nits = [0.0, 10.0, 100.0, 203.0, 1000.0]
    with VideoReader(hdr_clip(tmp_path / "pq.mp4", 16, [pq_code(value) for value in nits])) as reader:
        assert (reader.info.hdr, reader.info.bit_depth, reader.info.codec) == ("pq", 10, "hevc")
        bars = reader.frames([1])[0][48, 16::32].astype(int)
    assert np.ptp(bars, axis=1).max() <= 1  # grey stays grey
    grey = bars[:, 0]
    for value, shown in zip(nits[:3], grey, strict=False):  # below the shoulder light is kept
        assert abs(shown - srgb(value / 203)) <= 2
    assert (np.diff(grey) > 0).all()
    assert 215 <= grey[3] <= 250
    assert grey[4] >= 253


def test_hlg_is_shown_as_sdr(tmp_path: Path) -> None:
    codes = [64, 64 + 219, 64 + 438, 64 + 657, 940]
    with VideoReader(hdr_clip(tmp_path / "hlg.mp4", 18, codes)) as reader:
        assert (reader.info.hdr, reader.info.bit_depth) == ("hlg", 10)
        grey = reader.frames([1], (48, 80))[0][24, 8::16].astype(int)
    assert np.ptp(grey, axis=1).max() <= 1
    half = (0.5**2 / 3) ** 1.2 * 1000 / 203  # HLG at half signal: 50 cd/m2 on a 1000 cd/m2 display
    assert abs(grey[2, 0] - srgb(half)) <= 3
    assert grey[0, 0] <= 1
    assert grey[4, 0] >= 253
    assert (np.diff(grey[:, 0]) > 0).all()


def test_alpha_lies_over_the_declared_background(tmp_path: Path) -> None:
    frames = []
    for index in range(4):
        rgba = np.zeros((40, 60, 4), np.uint8)
        rgba[:, : 15 * (index + 1)] = (200, 30, 30, 255)
        frames.append(Pillow.fromarray(rgba))
    delays = [40, 120, 80, 200]
    options = {"save_all": True, "append_images": frames[1:], "duration": delays, "disposal": 2}
    frames[0].save(tmp_path / "alpha.gif", **options)
    frames[0].save(
        tmp_path / "alpha.webp", save_all=True, append_images=frames[1:], duration=delays, lossless=True
    )
    for name in ("alpha.gif", "alpha.webp"):
        with open_video(tmp_path / name, background=(10, 20, 250)) as reader:
            np.testing.assert_allclose(reader.times_s, [0, 0.04, 0.16, 0.24], atol=1e-6)
            assert reader.info.duration_s == pytest.approx(0.44)
            for index in (3, 0, 2, 1):
                image = reader.frames([index])[0]
                assert np.abs(image[20, 15 * (index + 1) - 3].astype(int) - (200, 30, 30)).max() <= 8, name
                if index < 3:
                    assert tuple(image[20, 15 * (index + 1) + 3]) == (10, 20, 250), name
    with open_video(tmp_path / "alpha.gif") as reader:
        assert tuple(reader.frames([0])[0][20, 50]) == (0, 0, 0)


def test_a_folder_of_pictures_in_natural_order(tmp_path: Path) -> None:
    for index in range(12):
        Pillow.fromarray(stamped(index, (50, 70))).save(tmp_path / f"{index}.png")
    (tmp_path / "notes.txt").write_text("not a picture")
    with open_video(tmp_path, folder_fps=10) as reader:
        assert (len(reader), reader.info.size, reader.info.duration_s) == (12, (50, 70), pytest.approx(1.2))
        assert numbers_on(reader.frames(range(12))) == list(range(12))
        assert numbers_on(reader.at_rate(5)) == [0, 2, 4, 6, 8, 10]
    Pillow.fromarray(stamped(12, (60, 70))).save(tmp_path / "12.png")
    with open_video(tmp_path) as reader, pytest.raises(VideoError, match=r"12\.png.*70x60.*70x50"):
        reader.frames(range(13))


def test_exif_rotation_of_pictures(tmp_path: Path) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    Pillow.fromarray(np.rot90(stamped(5, (60, 100)), 1)).save(tmp_path / "1.jpg", exif=exif, quality=95)
    with open_video(tmp_path) as reader:
        assert reader.info.size == (60, 100)
        assert number_on(reader.frames([0])[0]) == 5


@pytest.mark.parametrize("fit", ["letterbox", "crop", "stretch"])
def test_fits(clips: Path, fit) -> None:  # type: ignore[no-untyped-def]
    with VideoReader(clip(clips, "h264_plain.mp4")) as reader:
        image = reader.frames([31], (64, 64), fit)[0]
    assert image.shape == (64, 64, 3)
    if fit == "letterbox":
        inner = place((96, 160), (64, 64), fit)
        top, height = inner.offset[0], inner.scaled[0]
        assert (top, height) == (13, 38)
        assert not image[:top].any()
        assert not image[top + height :].any()
        assert number_on(image[top : top + height]) == 31
    elif fit == "crop":
        whole = stamped(31, (96, 160))[:, 32:128]
        assert (
            np.abs(image[::21, ::21].astype(int) - whole[:: 21 * 3 // 2, :: 21 * 3 // 2][:4, :4]).max() < 30
        )
    else:
        assert number_on(image) == 31


sides = st.integers(1, 4000)


@settings(deadline=None)
@given(sides, sides, sides, sides)
def test_letterbox_and_crop_keep_aspect_within_a_pixel(height: int, width: int, high: int, wide: int) -> None:
    for fit, inside in (("letterbox", True), ("crop", False)):
        scaled = place((height, width), (high, wide), fit).scaled  # type: ignore[arg-type]
        ratio = (min if inside else max)(high / height, wide / width)
        assert abs(scaled[0] - max(1, height * ratio)) <= 0.5 + 1e-6
        assert abs(scaled[1] - max(1, width * ratio)) <= 0.5 + 1e-6
        assert all((s <= o) if inside else (s >= o) for s, o in zip(scaled, (high, wide), strict=True))


@settings(deadline=None)
@given(sides, sides, st.sampled_from([224, 256, 640]))
def test_aligned_sizes(height: int, width: int, side: int) -> None:
    high, wide = aligned_size((height, width), side)
    assert high % 8 == wide % 8 == 0
    assert max(high, wide) == side
    assert abs(min(high, wide) - max(8, side * min(height, width) / max(height, width))) <= 4
    assert (high <= wide) == (height <= width) or high == wide


def test_the_papers_size() -> None:
    assert aligned_size((480, 640)) == (168, 224)
    assert aligned_size((1080, 1080)) == (224, 224)


@settings(deadline=None)
@given(st.floats(0, 1e4), st.floats(0.1, 240))
def test_resampled_times_are_monotone_and_inside(duration_s: float, rate_hz: float) -> None:
    times = resample_times(duration_s, rate_hz)
    assert times[0] == 0
    assert (np.diff(times) > 0).all()
    assert len(times) == 1 or times[-1] < duration_s
    assert duration_s <= (len(times) + 1e-5) / rate_hz


@settings(max_examples=15, deadline=None)
@given(
    num_frames=st.integers(1, 40),
    fps=st.sampled_from([10, 29.97, 30, 32, 50, Fraction(24000, 1001)]),
    gop=st.integers(1, 12),
    episode=st.integers(0, 39),
)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, num_frames: int, fps: float, gop: int, episode: int
) -> None:
    path = tmp_path_factory.mktemp("round") / "trip.mp4"
    with VideoWriter(path, (64, 96), fps, gop=gop) as writer:
        for index in range(num_frames):
            writer.write(stamped(index, (64, 96)), keyframe=index == episode)
    with VideoReader(path) as reader:
        assert numbers_on(reader.frames(range(len(reader)))) == list(range(num_frames))
        np.testing.assert_allclose(reader.times_s, np.arange(num_frames) / float(fps), atol=5e-5)
        assert reader.table.pts[0] == 0
        assert reader.info.duration_s == pytest.approx(num_frames / float(fps), abs=1e-4)
        if episode < num_frames:
            assert reader.table.keyframe[episode]


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_writer_codecs(tmp_path: Path, codec) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "clip.mp4"
    colour = np.zeros((64, 96, 3), np.uint8)
    colour[:, :48], colour[:, 48:] = (200, 60, 40), (30, 90, 210)
    with VideoWriter(path, (64, 96), 30, codec=codec, gop=10) as writer:
        for index in range(25):
            writer.write(stamped(index, (64, 96)) if index != 13 else colour, keyframe=index == 13)
    with VideoReader(path) as reader:
        assert reader.info.codec == codec
        expected = [*range(13), *range(14, 25)]
        assert numbers_on(reader.frames(expected)) == expected
        assert reader.table.keyframe[[0, 13]].all()
        image = reader.frames([13])[0].astype(int)
        assert np.abs(image[::8, 8:40] - (200, 60, 40)).max() <= 8
        assert np.abs(image[::8, 56:88] - (30, 90, 210)).max() <= 8
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")  # browsers start at once, and a cut shows


def test_writer_respects_umask_and_leaves_nothing_when_stopped(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        with VideoWriter(tmp_path / "a.mp4", (32, 32), 10) as writer:
            writer.write(np.zeros((32, 32, 3), np.uint8))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.mp4").stat().st_mode) == 0o644
    before = (tmp_path / "a.mp4").read_bytes()

    def interrupted() -> None:
        with VideoWriter(tmp_path / "a.mp4", (32, 32), 10) as writer:
            writer.write(np.zeros((32, 32, 3), np.uint8))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "a.mp4").read_bytes() == before
    assert os.listdir(tmp_path) == ["a.mp4"]


def test_writers_refusals(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="even sides, got 33x32"):
        VideoWriter(tmp_path / "a.mp4", (32, 33), 30)
    with pytest.raises(VideoError, match="make its folder"):
        VideoWriter(tmp_path / "none" / "a.mp4", (32, 32), 30)
    with pytest.raises(BadInput, match="no frame was written"), VideoWriter(tmp_path / "a.mp4", (32, 32), 30):
        pass
    with VideoWriter(tmp_path / "b.mp4", (32, 32), 30) as writer:
        with pytest.raises(BadInput, match=r"\(32, 32, 3\)"):
            writer.write(np.zeros((32, 34, 3), np.uint8))
        writer.write(np.zeros((32, 32, 3), np.uint8))
    with pytest.raises(BadInput, match="closed"):
        writer.write(np.zeros((32, 32, 3), np.uint8))
    assert os.listdir(tmp_path) == ["b.mp4"]


def test_load_demonstration(clips: Path) -> None:
    demo = load_demonstration(
        clip(clips, "h264_bframes.mp4"), rate_hz=15, size=(48, 80), fit="crop", instruction="stack the cups"
    )
    assert (demo.fps, demo.instruction, set(demo.views)) == (15, "stack the cups", {"third_person"})
    assert demo.views["third_person"].shape == (20, 48, 80, 3)
    assert numbers_on(demo.views["third_person"]) == list(range(0, 40, 2))


def test_asking_for_what_is_not_there(clips: Path) -> None:
    with VideoReader(clip(clips, "h264_plain.mp4")) as reader:
        for wanted in ([40], [-1], [0.5], [[1]]):
            with pytest.raises(BadInput):
                reader.frames(wanted)  # type: ignore[arg-type]
        assert reader.frames([]).shape == (0, 96, 160, 3)
        with pytest.raises(BadInput, match="fit is"):
            reader.frames([0], (8, 8), "squash")  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="height, width"):
            reader.frames([0], (0, 8))
    with pytest.raises(BadInput, match="closed"):
        reader.frames([0])


def _last_number(reader: VideoReader) -> int:
    return number_on(reader.frames([37])[0])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_open_their_own(clips: Path, method: str) -> None:
    with VideoReader(clip(clips, "h264_bframes.mp4"), threads=3) as reader:
        assert number_on(reader.frames([8])[0]) == 8
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(_last_number, [reader] * 4) == [37] * 4
        assert number_on(reader.frames([9])[0]) == 9


def test_a_forked_reader_is_independent(clips: Path) -> None:
    with VideoReader(clip(clips, "h264_bframes.mp4"), threads=3) as reader:
        reader.frames([8])
        child = os.fork()
        if child == 0:
            os._exit(0 if [number_on(reader.frames([i])[0]) for i in (30, 9)] == [30, 9] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert numbers_on(reader.frames([9, 10])) == [9, 10]


def test_pickling_keeps_the_table_and_not_the_file(clips: Path) -> None:
    reader = VideoReader(clip(clips, "vp9.webm"))
    copy = pickle.loads(pickle.dumps(reader))
    reader.close()
    assert number_on(copy.frames([21])[0]) == 21
    copy.close()


def test_closing_gives_the_file_back(clips: Path) -> None:
    path = clip(clips, "h264_plain.mp4")
    opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    with VideoReader(path) as reader:
        reader.frames([5])
        assert any(os.path.realpath(f"/proc/self/fd/{fd}") == str(path) for fd in os.listdir("/proc/self/fd"))
    assert [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")].count(
        str(path)
    ) == (opened.count(str(path)))


def test_decoder_threads_are_bounded(clips: Path) -> None:
    before = len(os.listdir("/proc/self/task"))
    with VideoReader(clip(clips, "h264_bframes.mp4")) as reader:
        reader.frames(range(40), (32, 32))
        assert len(os.listdir("/proc/self/task")) <= before


def test_memory_follows_the_output_not_the_video(tmp_path: Path) -> None:
    path = tmp_path / "long.mp4"
    with VideoWriter(path, (1080, 1920), 30, crf=40) as writer:
        picture = stamped(1, (1080, 1920))
        for index in range(240):
            writer.write(picture, keyframe=index == 100)
    script = (
        "import resource, sys\n"
        "from hostbot.video import VideoReader\n"
        "with VideoReader(sys.argv[1]) as reader:\n"
        "    reader.frames([0], (64, 64))\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "    assert len(reader.frames(range(240), (64, 64))) == 240\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    # 240 frames of 1080p are 1.4 GB; the output is 3 MB and a decoder holds a handful of 3 MB pictures.
    assert int(done.stdout) < 100


def test_live_sources_are_iterators_only(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match="cannot be sought"):
        open_video("rtsp://127.0.0.1:1/none")
    with pytest.raises(VideoError, match="no camera at /dev/video97"):
        LiveVideo("webcam:97")
    with pytest.raises(VideoError, match="webcam:0"):
        LiveVideo("webcam:front")
    with pytest.raises(VideoError, match="cannot be opened"):
        LiveVideo("rtsp://127.0.0.1:1/none", timeout_s=2)


def test_a_network_stream_is_read_as_it_comes(clips: Path) -> None:
    path = clip(clips, "h264_bframes.ts")
    handler = partial(SimpleHTTPRequestHandler, directory=str(path.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with LiveVideo(f"http://127.0.0.1:{server.server_port}/{path.name}", timeout_s=10) as live:
            assert [number_on(image) for image in live.stream((48, 80))] == list(range(40))
            with pytest.raises(VideoError, match="cannot be sought"):
                live.frames([0])
        server.shutdown()


def test_an_edit_list_trims_the_start(clips: Path, tmp_path: Path) -> None:
    """As phones trim: the film begins at its 15th frame, which is decoded from the keyframe before it."""
    for name in ("h264_bframes.mp4", "h264_plain.mp4"):
        data = bytearray(clip(clips, name).read_bytes())
        at = data.index(b"elst") + 4 + 4 + 4
        duration, media_time = struct.unpack(">II", data[at : at + 8])
        data[at : at + 8] = struct.pack(">II", duration - 500, media_time + 15 * 512)
        path = tmp_path / name
        path.write_bytes(data)
        with VideoReader(path) as reader:
            assert numbers_on(reader.frames(range(len(reader)))) == list(range(15, 40))
            order = random.Random(1).sample(range(25), 25)
            assert [number_on(reader.frames([index])[0]) - 15 for index in order] == order


def test_limits_refuse_before_decoding(clips: Path) -> None:
    path = clip(clips, "h264_plain.mp4")
    cases = [
        (VideoLimits(max_pixels=100), "max_pixels"),
        (VideoLimits(max_frames=39), "max_frames"),
        (VideoLimits(max_duration_s=1), "max_duration_s"),
        (VideoLimits(max_file_bytes=1000), "max_file_bytes"),
    ]
    for limits, name in cases:
        with pytest.raises(VideoError, match=name):
            probe(path, limits=limits)
    with (
        VideoReader(path, limits=VideoLimits(max_output_bytes=10_000)) as reader,
        pytest.raises(VideoError, match="max_output_bytes"),
    ):
        reader.frames(range(40))


def test_a_file_without_read_permission(clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostbot.video.source.os.access", lambda *_: False)  # a superuser may read anything
    with pytest.raises(VideoError, match=r"h264_plain\.mp4' may not be read; check its permissions"):
        VideoReader(clip(clips, "h264_plain.mp4"))


def test_ffmpeg_itself_stays_silent(clips: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = bytearray(clip(clips, "h264_plain.mp4").read_bytes())
    at = data.index(b"mdat") + 900
    data[at : at + 300] = bytes(range(255, 225, -1)) * 10
    (tmp_path / "noisy.mp4").write_bytes(data)
    with pytest.raises(VideoError, match="noisy"), open_video(tmp_path / "noisy.mp4") as reader:
        reader.frames(range(40))
    assert capfd.readouterr() == ("", "")


def test_a_known_checksum_is_checked(clips: Path, tmp_path: Path) -> None:
    path = clip(clips, "h264_plain.mp4")
    with VideoReader(path, crc32=crc32(path)) as reader:
        assert number_on(reader.frames([3])[0]) == 3
    with pytest.raises(VideoError, match="checksum"):
        VideoReader(path, crc32=crc32(path) ^ 1)

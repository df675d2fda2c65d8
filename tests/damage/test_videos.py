"""300 damaged videos: each refused in one sentence, or read exactly as if undamaged."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hostbot.types import BadInput, VideoError
from hostbot.video import VideoLimits, crc32, open_video, probe
from tests.damage.videos import BASES, CHECKSUMMED, NUM_FRAMES, Damaged, damaged_videos

SECONDS_EACH = 30.0


@cache
def undamaged(path: Path) -> np.ndarray:
    with open_video(path) as reader:
        return reader.frames(range(len(reader)))


def outcome(case: Damaged) -> str:
    """What reading a damaged video comes to: refused, same, wrong, or what should never happen."""
    try:
        info = probe(case.path)
        with open_video(case.path) as reader:
            frames = reader.frames(range(len(reader)))
        if case.original is None or len(frames) != info.num_frames:
            return "wrong"
        whole = undamaged(case.original)
        return "same" if frames.shape == whole.shape and (frames == whole).all() else "wrong"
    except VideoError as error:
        text = str(error)
        named = case.path.name in text or repr(str(case.path)) in text
        return "refused" if named and "\n" not in text and len(text) < 500 else f"badly told: {text!r}"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {error}"


def outcome_with_checksum(case: Damaged) -> str:
    assert case.original is not None
    try:
        with open_video(case.path, crc32=crc32(case.original)) as reader:
            reader.frames(range(len(reader)))
    except VideoError:
        return "refused"
    return "accepted"


def outcomes(cases: list[Damaged], judge) -> list[str]:  # type: ignore[no-untyped-def]
    """Judge in worker processes, so that a hang or a crash of a decoder is an answer too."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        waiting = [pool.apply_async(judge, (case,)) for case in cases]
        results = []
        for result in waiting:
            try:
                results.append(result.get(timeout=SECONDS_EACH))
            except multiprocessing.TimeoutError:
                results.append("hang or crash")
        return results


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Damaged]:
    return damaged_videos(tmp_path_factory.mktemp("damage"), count=300, seed=0)


def test_the_generator_covers_every_base_and_is_seeded(cases: list[Damaged], tmp_path: Path) -> None:
    assert len(cases) == 300
    assert {case.original.name for case in cases if case.original} == set(BASES)
    again = damaged_videos(tmp_path, count=300, seed=0)
    assert [(case.path.name, case.kind) for case in again] == [(case.path.name, case.kind) for case in cases]


def test_the_bases_are_read_whole(cases: list[Damaged]) -> None:
    for original in {case.original for case in cases if case.original}:
        assert len(undamaged(original)) == NUM_FRAMES


def test_every_damaged_video_is_refused_or_read_right(cases: list[Damaged]) -> None:
    allowed = {"refuse": {"refused"}, "same": {"refused", "same"}, "checksum": {"refused", "same", "wrong"}}
    results = outcomes(cases, outcome)
    wrong = [
        f"{case.path.name}: {result}"
        for case, result in zip(cases, results, strict=True)
        if result not in allowed[case.verdict]
    ]
    assert not wrong
    silent = [case for case, result in zip(cases, results, strict=True) if result == "wrong"]
    # Where the coded data carries checksums nothing passes; elsewhere this is what decoders let through.
    assert not [case.path.name for case in silent if case.original.name.startswith(CHECKSUMMED)]  # type: ignore[union-attr]
    counts = Counter(case.original.name for case in silent)  # type: ignore[union-attr]
    print("decoded to other pixels without any sign:", len(silent), dict(counts))
    assert len(silent) <= 30


def test_with_a_recorded_checksum_every_change_is_refused(cases: list[Damaged]) -> None:
    changed = [case for case in cases if case.original is not None and case.original.suffix != ".webp"]
    assert len(changed) > 200
    assert set(outcomes(changed, outcome_with_checksum)) == {"refused"}


def test_a_hash_in_every_picture_shows_every_flip_in_the_pictures(
    cases: list[Damaged], tmp_path: Path
) -> None:
    """What VideoWriter(codec="hevc") writes: no flip of the coded data goes unnoticed, even unrecorded."""
    rng = random.Random(3)
    original = next(case.original for case in cases if case.original and "hashed" in case.original.name)
    data = original.read_bytes()
    start = data.index(b"mdat") + 4
    flipped = []
    for number in range(60):
        changed = bytearray(data)
        changed[rng.randrange(start, len(data))] ^= 1 << rng.randrange(8)
        path = tmp_path / f"{number}.mp4"
        path.write_bytes(changed)
        flipped.append(Damaged(path=path, kind="flip", verdict="same", original=original))
    results = Counter(outcomes(flipped, outcome))
    assert set(results) <= {"refused", "same"}
    assert results["refused"] >= 40


def test_a_file_that_cannot_be_held_is_refused_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.mp4"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(VideoError, match="max_file_bytes"):
        probe(path)


def test_refusals_are_the_users_mistakes(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"does not exist; check the path"):
        probe(tmp_path / "none.mp4", limits=VideoLimits())

"""``hostbot video``: what hostbot makes of a video that somebody brought."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from hostbot.cli.show import print_json, print_table, progress
from hostbot.types import BadInput


@dataclass(frozen=True)
class Info:
    """What a video is: size, rate, length, codec, rotation, HDR. Works for files, GIFs and picture folders."""

    path: Annotated[Positional[Path], arg(metavar="VIDEO")]
    """A video file, an animated picture, or a folder of pictures."""
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Print it."""
        from hostbot.video import probe

        found = asdict(probe(self.path))
        if self.json:
            print_json(found)
            return
        print_table(str(self.path), ["", ""], found.items())


@dataclass(frozen=True)
class Cut:
    """Write a video as the model will see it: at one control rate and size, upright, in plain 8-bit colour."""

    path: Annotated[Positional[Path], arg(metavar="VIDEO")]
    """A video file, an animated picture, or a folder of pictures."""
    out: Annotated[Positional[Path], arg(metavar="OUT.mp4")]
    """The mp4 to write."""
    rate: float = 16.0
    """Frames a second."""
    size: Annotated[tuple[int, int], arg(metavar="HEIGHT WIDTH")] = (224, 224)
    """Height and width, even numbers."""
    fit: Literal["letterbox", "crop", "stretch"] = "letterbox"
    """How another shape becomes this one."""
    folder_fps: float = 30.0
    """Frames a second of a picture folder."""
    overwrite: bool = False
    """Replace a file that is there."""

    def run(self) -> None:
        """Read, resample, write."""
        from hostbot.video import VideoWriter, open_video, resample_times

        check_target(self.out, self.rate, self.overwrite)
        check_side(self.size)
        with open_video(self.path, threads=2, folder_fps=self.folder_fps) as reader:
            indices = reader.indices_at(resample_times(reader.info.duration_s, self.rate))
            with (
                VideoWriter(self.out, self.size, self.rate) as writer,
                progress("cutting", len(indices)) as tick,
            ):
                for frame in reader.stream(indices, self.size, self.fit):
                    writer.write(frame)
                    tick()
        print(f"{self.out}: {len(indices)} frames of {self.size[0]}x{self.size[1]} at {self.rate:g} Hz")


@dataclass(frozen=True)
class Record:
    """Record a camera or network stream to a video: `hostbot video record webcam:0 me.mp4`."""

    source: Annotated[Positional[str], arg(metavar="SOURCE")]
    """`webcam:0`, `/dev/video0`, `rtsp://...`, `http://...`."""
    out: Annotated[Positional[Path], arg(metavar="OUT.mp4")]
    """The mp4 to write."""
    seconds: float = 20.0
    """How long."""
    rate: float = 16.0
    """Frames a second."""
    size: Annotated[tuple[int, int], arg(metavar="HEIGHT WIDTH")] = (480, 640)
    """Height and width, even numbers."""
    fit: Literal["letterbox", "crop", "stretch"] = "letterbox"
    """How another shape becomes this one."""
    overwrite: bool = False
    """Replace a file that is there."""

    def run(self) -> None:
        """Receive and write; Ctrl-C ends the recording and keeps it."""
        from hostbot.video import LiveVideo, VideoWriter, is_live

        check_target(self.out, self.rate, self.overwrite)
        check_side(self.size)
        if not is_live(self.source):
            raise BadInput(f"{self.source} is no camera or stream; `hostbot video cut` reads a file")
        if not 0 < self.seconds <= 24 * 3600:
            raise BadInput(f"--seconds must be above 0 and at most a day, got {self.seconds:g}")
        total = math.ceil(self.seconds * self.rate)
        with (
            LiveVideo(self.source) as live,
            VideoWriter(self.out, self.size, self.rate) as writer,
            progress("recording", total) as tick,
        ):
            try:
                for frame in live.at_a_rate(self.rate, self.seconds, self.size, self.fit):
                    writer.write(frame)
                    tick()
            except KeyboardInterrupt:
                print("stopped", file=sys.stderr)
            if writer.num_frames == 0:
                raise BadInput(f"{self.source} sent no frame; nothing was written")
        print(
            f"{self.out}: {writer.num_frames} frames, {writer.num_frames / self.rate:.1f} s at {self.rate:g} Hz"
        )


def check_target(out: Path, rate: float, overwrite: bool) -> None:
    """Refuse to replace a file unasked, other containers, and rates that are none."""
    if out.suffix.lower() not in (".mp4", ".m4v", ".mov"):
        raise BadInput(f"an mp4 is written, so its name should end in .mp4, not {out.name!r}")
    if out.is_dir():
        raise BadInput(f"{out} is a folder; name a file")
    if out.exists() and not overwrite:
        raise BadInput(f"{out} exists; pass --overwrite to replace it")
    if not 0 < rate <= 1000:
        raise BadInput(f"--rate must be above 0 and at most 1000 Hz, got {rate:g}")


def check_side(size: tuple[int, int]) -> None:
    """Refuse sizes no encoder takes."""
    if not all(2 <= side <= 8192 and side % 2 == 0 for side in size):
        raise BadInput(f"--size must be two even numbers from 2 to 8192, got {size[0]} {size[1]}")


VERBS = (Info, Cut, Record)

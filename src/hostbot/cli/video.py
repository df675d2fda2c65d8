"""``hostbot video``: what hostbot makes of a video that somebody brought."""

from __future__ import annotations

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

        if self.out.exists() and not self.overwrite:
            raise BadInput(f"{self.out} exists; pass --overwrite to replace it")
        if not 0 < self.rate <= 1000:
            raise BadInput(f"--rate must be above 0 and at most 1000 Hz, got {self.rate:g}")
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


VERBS = (Info, Cut)

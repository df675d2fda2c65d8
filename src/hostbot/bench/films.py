"""Human videos of the bench's tasks, filmed when they are needed and kept where a folder for them is named.

Legend: T frames, h w pixels.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from hostbot.bench.happenings import Witness
from hostbot.sim.catalogue import task
from hostbot.sim.demonstrator import DemonstratorConfig, Recording
from hostbot.types import BadInput, Event, Frames
from hostbot.video import fit_frames

TRIES = 8
STRIDE = 1_000_003
"""Between the seeds of two tries at one video, as in recordings."""


@dataclass(frozen=True, kw_only=True)
class Film:
    """A video to be made: who does what in which scene, and how it is looked at."""

    task: str
    seed: int
    rate_hz: float = 16.0
    size: int = 96
    """Height and width at which it is drawn."""
    image_size: tuple[int, int] | None = None
    """Size at which it is wanted; None: nobody looks, only what happens matters."""


@dataclass(frozen=True, kw_only=True)
class Filmed:
    """A human video that fulfils its task."""

    film: Film
    frames: Frames | None
    num_frames: int
    instruction: str
    events: tuple[Event, ...]
    """As the script notes them."""
    happened: tuple[Event, ...]
    """As physics shows them."""
    first_touched: str


def make(film: Film) -> Filmed:
    """Film it; a person who fails is not shown."""
    config = DemonstratorConfig(rate_hz=film.rate_hz, size=film.size)
    for attempt in range(TRIES):
        take, witness = Recording(task(film.task), film.seed + attempt * STRIDE, config), Witness()
        frames, count, going = [], 0, True
        while going:
            if film.image_size is not None:
                frames.append(take.picture())
            count, going = count + 1, take.advance()
            witness.look(take.world)
        take.close()
        if take.judge.success:
            return Filmed(
                film=film,
                frames=None if film.image_size is None else fit_frames(np.stack(frames), film.image_size),
                num_frames=count,
                instruction=take.instruction,
                events=tuple(e for e in take.actor.events if e.frame < count),
                happened=tuple(e for e in witness.events if e.frame < count),
                first_touched=witness.first_touched,
            )
    raise BadInput(f"nobody managed {film.task} in {TRIES} videos from seed {film.seed}")


def get(film: Film, folder: Path | None) -> Filmed:
    """A video from the folder, or made and put there; one made by another bench is not found."""
    if folder is None:
        return make(film)
    name = hashlib.sha256(json.dumps([asdict(film), bench_hash()]).encode()).hexdigest()
    path = folder / f"{name}.npz"
    try:
        return _read(path, film)
    except (FileNotFoundError, BadZipFile, ValueError, KeyError, TypeError, EOFError):
        made = make(film)
    folder.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=".", suffix=".npz", dir=folder)
    os.close(handle)
    try:
        frames = np.zeros(0, np.uint8) if made.frames is None else made.frames
        np.savez_compressed(aside, frames=frames, about=np.frombuffer(_about(made), np.uint8))
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    return made


def _about(made: Filmed) -> bytes:
    plain = {
        "num_frames": made.num_frames,
        "instruction": made.instruction,
        "first_touched": made.first_touched,
        "events": [[e.name, e.frame] for e in made.events],
        "happened": [[e.name, e.frame] for e in made.happened],
    }
    return json.dumps(plain).encode()


def _read(path: Path, film: Film) -> Filmed:
    with np.load(path, allow_pickle=False) as file:
        about, frames = json.loads(file["about"].tobytes()), file["frames"]
    for name in ("events", "happened"):
        about[name] = tuple(Event(name=event, frame=frame) for event, frame in about[name])
    return Filmed(film=film, frames=None if film.image_size is None else frames, **about)


@cache
def bench_hash() -> str:
    """Of the bench's own source: what it films depends on nothing else."""
    digest = hashlib.sha256()
    with resources.as_file(resources.files("hostbot.sim")) as root:
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.json")]):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()

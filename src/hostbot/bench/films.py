"""Videos of the bench's tasks, a human's or the robot's own: filmed when needed, kept where a folder is named.

Legend: T frames, h w pixels.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np

from hostbot.bench.happenings import Witness
from hostbot.sim.catalogue import task
from hostbot.sim.demonstrator import VIEW, DemonstratorConfig, Recording
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.types import BadInput, Event, Frames, Image
from hostbot.video import fit_frames

TRIES = 8
STRIDE = 1_000_003
"""Between the seeds of two tries at one video, as in recordings."""
ELSEWHERE = 500_000
"""Added to the seed of a robot's video, so that its scene is none that is acted or was recorded in."""


@dataclass(frozen=True, kw_only=True)
class Film:
    """A video to be made: who does what in which scene, and how it is looked at."""

    task: str
    seed: int
    body: Literal["human", "robot"] = "human"
    rate_hz: float = 16.0
    size: int = 96
    """Height and width at which it is drawn."""
    image_size: tuple[int, int] | None = None
    """Size at which it is wanted; None: nobody looks, only what happens matters."""


@dataclass(frozen=True, kw_only=True)
class Filmed:
    """A video that fulfils its task."""

    film: Film
    views: Mapping[str, Frames]
    """A human's has one, a robot's all of its own; none where nobody looks."""
    num_frames: int
    instruction: str
    events: tuple[Event, ...]
    """As the script notes them."""
    happened: tuple[Event, ...]
    """As physics shows them."""
    first_touched: str


def make(film: Film) -> Filmed:
    """Film it; who fails is not shown."""
    for attempt in range(TRIES):
        made = _HOW[film.body](film, film.seed + attempt * STRIDE)
        if made is not None:
            return made
    raise BadInput(f"nobody managed {film.task} in {TRIES} videos from seed {film.seed}")


def _human(film: Film, seed: int) -> Filmed | None:
    config = DemonstratorConfig(rate_hz=film.rate_hz, size=film.size)
    take, witness = Recording(task(film.task), seed, config), Witness()
    pictures: list[Image] = []
    count, going = 0, True
    while going:
        if film.image_size is not None:
            pictures.append(take.picture())
        count, going = count + 1, take.advance()
        witness.look(take.world)
    take.close()
    if not take.judge.success:
        return None
    return _filmed(film, {VIEW: pictures}, count, take.instruction, take.actor.events, witness)


def _robot(film: Film, seed: int) -> Filmed | None:
    env = SimEnv(task(film.task), EnvConfig(rate_hz=film.rate_hz, size=film.size))
    env.reset(seed=seed + ELSEWHERE)
    actor, witness = env.expert(), Witness()
    limit = int(env.config.seconds * env.config.rate_hz)
    pictures: dict[str, list[Image]] = {view: [] for view in env.config.views}
    done = False
    while not done and env.frame < limit:
        for view, picture in env.pictures().items() if film.image_size is not None else ():
            pictures[view].append(picture)
        done = env.advance(actor.act().astype(np.float32))
        assert env.world is not None
        witness.look(env.world)
    count, instruction = env.frame, env.instruction
    env.close()
    return _filmed(film, pictures, count, instruction, actor.events, witness) if env.success else None


_HOW = {"human": _human, "robot": _robot}


def _filmed(
    film: Film,
    pictures: Mapping[str, Sequence[Image]],
    count: int,
    instruction: str,
    events: Sequence[Event],
    witness: Witness,
) -> Filmed:
    size = film.image_size
    return Filmed(
        film=film,
        views={} if size is None else {v: fit_frames(np.stack(p), size) for v, p in pictures.items()},
        num_frames=count,
        instruction=instruction,
        events=tuple(Event(name=e.name, frame=e.frame) for e in events if e.frame < count),
        happened=tuple(e for e in witness.events if e.frame < count),
        first_touched=witness.first_touched,
    )


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
        arrays: dict[str, Any] = {**made.views, "about": np.frombuffer(_about(made), np.uint8)}
        np.savez_compressed(aside, **arrays)
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
        about = json.loads(file["about"].tobytes())
        views = {view: file[view] for view in file.files if view != "about"}
    for name in ("events", "happened"):
        about[name] = tuple(Event(name=event, frame=frame) for event, frame in about[name])
    return Filmed(film=film, views=views, **about)


@cache
def bench_hash() -> str:
    """Of the bench's own source: what it films depends on nothing else."""
    digest = hashlib.sha256()
    with resources.as_file(resources.files("hostbot.sim")) as root:
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.json")]):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()

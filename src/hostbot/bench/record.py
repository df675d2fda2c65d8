"""Record the bench as LeRobot datasets: robot trajectories, human videos, their events.

Encoding is as dear as simulating, so every worker writes a part of its own under ``OUT/robot.parts``; when all are
there they are put together as the dataset ``OUT/robot``, without encoding anything again. A job is one episode and
jobs have a fixed order, so a part that holds n episodes goes on with its job n. Only executions that fulfil the
predicate are kept; a failed one is tried again with another seed. The task of an episode is the task's first
instruction, the same for both bodies, by which pairs are found.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hostbot.bench.leads import RATE_HZ, STRIDE, lead_of, leads
from hostbot.data.concat import concatenate
from hostbot.data.reels import ReelKind, ReelWriter, is_reels, join_reels, num_recorded
from hostbot.data.wordings import wordings_path, write_wordings
from hostbot.data.write import DatasetWriter
from hostbot.sim.catalogue import split, task
from hostbot.sim.demonstrator import VIEW, DemonstratorConfig, demonstrate
from hostbot.sim.drills import NAME, THINGS, drill
from hostbot.sim.env import EnvConfig, seeded
from hostbot.sim.episode import RobotEpisode, led_episode, midway_episode, robot_episode
from hostbot.sim.layout import NoRoom
from hostbot.sim.sketch import human_sketch, robot_sketch
from hostbot.sim.task import Task
from hostbot.sim.variants import exchanged, varied
from hostbot.types import BadInput, DataError, Event, Frames, bimanual

Body = Literal["robot", "human"]
_EPISODES, _SKETCHES = (8, 200), (16, 1000)
"""How many are committed at once, and joined at once: a sketch takes less time than either."""
_FIRST_SEED = 10_000
_LED_LEAST = 4
"""Steps for which a robot is led at least."""
_LED_TRIES = 5
"""How often one is led in its own scene before another has to do."""


@dataclass(frozen=True, kw_only=True)
class RecordConfig:
    """What to record."""

    split: str = "train"
    families: tuple[str, ...] = ()
    """Only tasks of these families; of all if empty."""
    episodes_per_task: int = 40
    balance: float = 0.0
    """0: as many episodes of each task; 1: as many of each family. Of all tasks together as many as ever, nearly."""
    size: int = 96
    rate_hz: float = RATE_HZ
    workers: int = 1
    first_seed: int = _FIRST_SEED
    """Seeds of recorded scenes start here, clear of those for checks and evaluation."""
    tries: int = 8
    variants: int = 0
    """Colourings of every task's things, in scenes of other things than the bench's; 0: the bench's own scenes."""
    stray: float = 0.0
    """How far the robot strays from its way, in centimetres or so, before it puts it right."""
    midway: float = 0.0
    """Share of robots that begin in the midst of their task, where somebody has lost the way."""
    sketch: bool = False
    """Robots at their decisive moments only, set there without physics; in drills people up to the contact, too."""
    drills: bool = False
    """Touch one of a table full of things or bring something to it, instead of tasks; sketched robots have all that
    can be meant in one scene in turn."""
    raw: int = 0
    """Side of pictures that are kept as they are, without video; 0: mp4."""
    led: str = ""
    """Folder of an evaluation whose actions lead robots, each of them to as many places as a task has episodes."""

    def __post_init__(self) -> None:
        given = self.split != "train" or self.first_seed != _FIRST_SEED or self.families or self.variants
        if self.led and (given or self.stray or self.midway or self.sketch or self.drills):
            raise BadInput(
                "robots that are led are where an evaluation's were: no split, seed, families, variants, straying, "
                "beginning midway, sketches or drills"
            )
        if not 0 <= self.midway <= 1:
            raise BadInput(f"--midway is a share of robots, from 0 to 1, got {self.midway:g}")
        if self.midway and self.sketch:
            raise BadInput("sketched robots stand where they are put: give --midway or --sketch, not both")
        if not 0 <= self.balance <= 1:
            raise BadInput(f"--balance is from 0 (tasks alike) to 1 (families alike), got {self.balance:g}")
        if self.balance and (self.led or self.drills):
            raise BadInput("--balance is for tasks that are recorded whole: neither for drills nor for --led")
        if self.drills and (self.variants or self.families or self.split != "train"):
            raise BadInput("drills are no tasks: they have no split, families or variants")
        if self.raw < 0 or self.raw > self.size:
            raise BadInput(f"--raw is the side of a kept picture, at most --size {self.size}, got {self.raw}")
        if self.variants < 0:
            raise BadInput(f"variants are 0 or more, got {self.variants}")
        if not 0 <= self.stray <= 2:
            raise BadInput(f"a robot strays by 0 to 2, got {self.stray:g}: further off it fails")
        if self.variants and self.split != "train":
            raise BadInput(
                f"variants are for training tasks, not for {self.split!r}: novel tasks stay as they are"
            )

    def task_of(self, name: str, job: int, seed: int) -> Task:
        """The task of an episode: both bodies show the same variants, other first seeds show others."""
        if self.drills:
            return drill(seed, job, begun=self.sketch)
        own = task(name)
        if not self.variants:
            return own
        return varied(own, self._variant(job), seed)

    def _variant(self, job: int) -> int:
        return 2 * self.first_seed + (job - self.first_seed) % self.variants

    def in_scene_of(self, job: int) -> int:
        """The job whose scene a sketch is made in: variants share one in twos, all things of a drill in fours."""
        if self.sketch and self.drills:
            return job - job % THINGS
        return job - self._variant(job) % 2 if self.sketch and self.variants else job


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a worker says after an episode."""

    part: int
    task: str
    seed: int
    frames: int
    failures: int


def jobs(config: RecordConfig, part: int) -> list[tuple[str, int]]:
    """The (task, seed) of every episode of one part, all tasks early rather than task after task.

    A lead's seed tells how manieth time it is used, too, by so many strides.
    """
    if config.led:
        found = leads(Path(config.led))
        used = [
            (lead.task, lead.seed + k * STRIDE) for k in range(config.episodes_per_task) for lead in found
        ]
        return used[part :: config.workers]
    names = (NAME,) if config.drills else split().names(config.split, config.families)
    wanted = _episodes_of(names, config)
    most = max(wanted.values(), default=0)
    listed = [(name, config.first_seed + k) for k in range(most) for name in names if k < wanted[name]]
    return listed[part :: config.workers]


def _episodes_of(names: Sequence[str], config: RecordConfig) -> dict[str, int]:
    """How many of each task: small families have more of each, as far as they are balanced."""
    if not config.balance:
        return dict.fromkeys(names, config.episodes_per_task)
    family = {name: task(name).family for name in names}
    size = Counter(family.values())
    weights = {name: size[family[name]] ** -config.balance for name in names}
    scale = config.episodes_per_task * len(names) / sum(weights.values())
    return {name: max(1, round(scale * weight)) for name, weight in weights.items()}


def _reel_kind(body: Body, config: RecordConfig) -> ReelKind:
    size = (config.raw, config.raw)
    if body == "human":
        return ReelKind(fps=config.rate_hz, size=size, views=(VIEW,), widths={})
    robot = bimanual(config.rate_hz)
    widths = {"observation.state": 20, "action": 20}
    return ReelKind(fps=config.rate_hz, size=size, views=robot.views, widths=widths, embodiment=robot)


def _writer(root: Path, body: Body, config: RecordConfig) -> DatasetWriter | ReelWriter:
    if config.raw:
        return ReelWriter(root, _reel_kind(body, config))
    size = (config.size, config.size)
    together, batch = _SKETCHES if config.sketch else _EPISODES
    if body == "human":
        return DatasetWriter(
            root,
            fps=config.rate_hz,
            features={},
            views={VIEW: size},
            robot_type="human",
            resume=True,
            durable=False,
            together=together,
            batch=batch,
        )
    robot = bimanual(config.rate_hz)
    return DatasetWriter(
        root,
        fps=config.rate_hz,
        features={"observation.state": 20, "action": 20},
        views=dict.fromkeys(robot.views, size),
        embodiment=robot,
        robot_type="hostbot_sim",
        resume=True,
        durable=False,
        together=together,
        batch=batch,
    )


def _episode(
    body: Body, one: Task, seed: int, config: RecordConfig, instead: Task | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Frames], Sequence[Event], bool]:
    if body == "robot":
        env = EnvConfig(size=config.size, rate_hz=config.rate_hz)
        if config.sketch:
            made = robot_sketch(one, seed, env, config.stray, instead)
        else:
            made = _begun_midway(one, seed, env, config) or robot_episode(one, seed, env, config.stray)
        path = made.trajectory
        rows = {"observation.state": path.state, "action": path.action}
        return rows, dict(path.views), path.events, made.success
    made_by = human_sketch if config.sketch and config.drills else demonstrate
    demo, events, success = made_by(one, seed, DemonstratorConfig(size=config.size, rate_hz=config.rate_hz))
    assert demo is not None
    return {}, dict(demo.views), [e for e in events if e.frame < len(demo)], success


def _begun_midway(one: Task, seed: int, env: EnvConfig, config: RecordConfig) -> RobotEpisode | None:
    """Where this is one of those that begin midway, and there is something to go on with."""
    if seeded(one, seed, "begins").random() >= config.midway:
        return None
    return midway_episode(one, seed, env)


def _work(part: int, root: str, body: Body, config: RecordConfig, notes: Queue[Note | str]) -> None:
    """One worker: all episodes of one part, from where the part stands.

    Told to end it finishes the episode it is at and keeps what it has: an exception that may come anywhere could come
    while it writes.
    """
    told: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: told.append(number))
    try:
        with _writer(Path(root) / f"part-{part:02d}", body, config) as writer:
            for name, seed in jobs(config, part)[writer.num_episodes :]:
                if told:
                    notes.cancel_join_thread()  # nobody may be listening any more
                    break
                notes.put(_record_one(writer, part, body, name, seed, config))
    except BaseException:
        notes.put(traceback.format_exc())


def _record_one(
    writer: DatasetWriter | ReelWriter, part: int, body: Body, name: str, seed: int, config: RecordConfig
) -> Note:
    if config.led:
        return _record_led(writer, part, name, seed, config)
    # People show what robots are sketched doing, each in a room of their own.
    shared = config.in_scene_of(seed)
    scene = seed if body == "human" else shared
    room = False
    for failures in range(config.tries):
        used = scene + failures * STRIDE
        things = shared + failures * STRIDE if config.drills else used
        one, instead = config.task_of(name, scene, things), None
        told = one.instructions[0]
        if scene != seed:
            other = config.task_of(name, seed, used)
            instead, told = other if config.drills else exchanged(one), other.instructions[0]
        if scene != seed and instead is None:  # nothing there has a double
            used = seed + failures * STRIDE
            one = config.task_of(name, seed, used)
        try:
            rows, views, events, success = _episode(body, one, used, config, instead)
        except NoRoom:
            if not config.variants and not config.drills:
                raise
            continue  # these other things do not fit on the table
        room = True
        if success:
            frames = len(next(iter(views.values())))
            writer.add_episode(rows, views, [told] * frames, events)
            return Note(part=part, task=name, seed=used, frames=frames, failures=failures)
    if not room:
        raise DataError(
            f"the things of {name} fit on the table in none of {config.tries} scenes from seed {seed}"
        )
    raise DataError(
        f"{body} failed {name} in {config.tries} scenes from seed {seed}; run hostbot sim check {name}"
    )


def _record_led(
    writer: DatasetWriter | ReelWriter, part: int, name: str, job: int, config: RecordConfig
) -> Note:
    """What the expert does where a policy's actions have led to; at last in other scenes, if it can't help there."""
    own, (k, seed) = task(name), divmod(job, STRIDE)
    actions = lead_of(Path(config.led), name, seed).actions()
    rng = seeded(own, seed, f"led {k}")
    env = EnvConfig(size=config.size, rate_hz=config.rate_hz)
    for failures in range(config.tries):
        scene = seed if failures < _LED_TRIES else seed + failures * STRIDE
        # Rather early: a robot that fails has stood where it failed for most of its time.
        upto = _LED_LEAST + int((len(actions) - _LED_LEAST) * rng.random() ** 2)
        made = led_episode(own, scene, actions[: upto if scene == seed else 0], env)
        if made is not None and made.success:
            path = made.trajectory
            rows = {"observation.state": path.state, "action": path.action}
            writer.add_episode(rows, dict(path.views), [own.instructions[0]] * len(path.state), path.events)
            return Note(part=part, task=name, seed=job, frames=len(path.state), failures=failures)
    raise DataError(
        f"the expert failed {name} in {config.tries} scenes from seed {seed}; run hostbot sim check {name}"
    )


def parts_of(root: Path) -> Path:
    """Where the workers' parts lie until they are put together."""
    return root.with_name(f"{root.name}.parts")


def num_done(root: Path) -> int:
    """Episodes recorded so far, in parts or put together."""
    infos = [*parts_of(root).glob("part-*/meta/info.json"), *root.glob("meta/info.json")]
    reels = [*parts_of(root).glob("part-*/episodes.jsonl"), *root.glob("part-*/episodes.jsonl")]
    whole = sum(int(json.loads(path.read_text())["total_episodes"]) for path in infos)
    return whole + sum(num_recorded(path.parent) for path in reels)


def record(root: Path, body: Body, config: RecordConfig, *, until: float = float("inf")) -> Iterator[Note]:
    """Record one body's dataset with all workers, until it is whole or ``time.monotonic()`` is past ``until``.

    Call it again to go on after an interruption.
    """
    parts = parts_of(root)
    total = sum(len(jobs(config, part)) for part in range(config.workers))
    left = total - num_done(root)
    if (root / "meta" / "info.json").exists() or is_reels(root):
        if left:
            raise BadInput(f"{root} holds another recording; give another folder")
        _note_wordings(root, body, config)
        return
    _claim(parts, config)
    context = get_context("spawn")
    notes: Queue[Note | str] = context.Queue()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    arguments = [(part, str(parts), body, config, notes) for part in range(config.workers)]
    workers = [context.Process(target=_work, args=args, daemon=True) for args in arguments]
    for worker in workers:
        worker.start()
    try:
        while left > 0 and time.monotonic() < until:
            try:
                note = notes.get(timeout=1.0)
            except queue.Empty:
                # A commit that a kill cut short is finished by its writer: then there was less left than counted.
                if not any(worker.is_alive() for worker in workers) and notes.empty():
                    left = total - num_done(root)
                    if left:
                        raise DataError(
                            "the recording workers ended early; run the same command again"
                        ) from None
                continue
            if isinstance(note, str):
                raise DataError(f"a recording worker stopped; run the same command again to go on\n{note}")
            left -= 1
            with (parts / "episodes.jsonl").open("a") as file:
                file.write(json.dumps(asdict(note)) + "\n")
            yield note
        for worker in workers if left == 0 else ():
            worker.join()
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.terminate()
                worker.join()
    if left == 0:
        if config.raw:
            join_reels(parts, root, _reel_kind(body, config))
        else:
            concatenate([parts / f"part-{part:02d}" for part in range(config.workers)], root)
            shutil.rmtree(parts)
        _note_wordings(root, body, config)


def _note_wordings(root: Path, body: Body, config: RecordConfig) -> None:
    """In which ways a robot may be told what was recorded."""
    if body == "robot" and not wordings_path(root).exists():
        write_wordings(root, wordings(config))


def wordings(config: RecordConfig) -> dict[str, tuple[str, ...]]:
    """All ways to say each task that is recorded, the one that names it first; a drill is said in one way."""
    if config.drills:
        return {}
    found = {}
    for name, job in sorted({job for part in range(config.workers) for job in jobs(config, part)}):
        ways = config.task_of(name, job, job).instructions  # the scene's seed changes none of them
        found[ways[0]] = ways
    return found


_SINCE: dict[str, Any] = {
    "balance": 0.0,
    "families": [],
    "variants": 0,
    "stray": 0.0,
    "midway": 0.0,
    "sketch": False,
    "drills": False,
    "raw": 0,
    "led": "",
}
"""What recordings begun before these settings were there were made with."""


def _claim(root: Path, config: RecordConfig) -> None:
    """Write the configuration next to the parts, or refuse to go on with another one."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / "record.json"
    now: dict[str, Any] = {**asdict(config), "families": list(config.families), "sha256": split().sha256}
    if config.led:  # all of them, and read: no worker is to find out later
        names = [lead.path.name for lead in leads(Path(config.led)) if len(lead.actions())]
        now["leads"] = hashlib.sha256("\n".join(names).encode()).hexdigest()
    if path.exists() and _SINCE | json.loads(path.read_text()) != now:
        raise BadInput(f"{path} was recorded with other settings; give them again, or another folder")
    path.write_text(json.dumps(now, indent=1) + "\n")

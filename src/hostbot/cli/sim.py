"""``hostbot sim``: the bench of two arms and a human hand, in MuJoCo."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from tyro.conf import Positional, arg

from hostbot.cli.show import print_json, print_table, progress
from hostbot.config import provenance
from hostbot.types import BadInput

TaskName = Annotated[str, arg(metavar="TASK")]
Part = Literal["train", "novel", "mastered", "comparison", "all"]


@dataclass(frozen=True)
class List:
    """Every task with its family, its side of the split and the ways to ask for it."""

    split: Part = "all"
    """Which part of the split."""
    json: bool = False
    """Print a list of objects."""

    def run(self) -> None:
        """Print it."""
        from hostbot.sim.catalogue import split, task

        parts = split()
        rows = [
            {
                "name": name,
                "family": task(name).family,
                "split": parts.of(name),
                "mastered": name in parts.mastered,
                "comparison": name in parts.comparison,
                "instructions": list(task(name).instructions),
            }
            for name in parts.names(self.split)
        ]
        if self.json:
            print_json(rows)
            return
        marks = {True: "yes", False: ""}
        print_table(
            f"{len(parts.train)} training tasks, {len(parts.novel)} novel ones; split {parts.sha256[:12]}",
            ["task", "family", "split", "mastered", "comparison"],
            [
                (r["name"], r["family"], r["split"], marks[bool(r["mastered"])], marks[bool(r["comparison"])])
                for r in rows
            ],
        )


@dataclass(frozen=True)
class Play:
    """Run a task in the robot's world with a scripted agent; exit code 1 where it fails."""

    task: Positional[TaskName]
    """A task's name (hostbot sim list)."""
    agent: Literal["expert", "zero", "random"] = "expert"
    """Who acts."""
    seed: int = 0
    """Which scene."""
    perturb: Literal["none", "light", "objects", "scene", "disturb"] = "none"
    """Light and colour, unseen instances, another room, or a hand that pushes things aside."""
    video: Annotated[Path | None, arg(metavar="OUT.mp4")] = None
    """Write all views side by side to this mp4."""
    size: int = 192
    """Height and width of a view in the video."""

    def run(self) -> None:
        """Play and tell."""
        from hostbot.sim.agents import random_agent, zero_agent
        from hostbot.sim.catalogue import task
        from hostbot.sim.env import VIEWS, EnvConfig, SimEnv
        from hostbot.sim.perturb import perturbed

        config = EnvConfig(size=self.size, views=VIEWS if self.video else ())
        env = SimEnv(task(self.task), perturbed(config, self.perturb, self.seed))
        env.reset(seed=self.seed)
        expert = env.expert()
        act = {"expert": expert.act, "zero": zero_agent(env), "random": random_agent(env, self.seed)}[
            self.agent
        ]
        frames = []
        limit = config.seconds * config.rate_hz
        done = False
        while not done and env.frame < limit:
            if self.video:
                frames.append(env.render())
            done = env.advance(act())
        print(f"{env.instruction} {'Done' if done else 'Not done'} after {env.frame / config.rate_hz:.1f} s.")
        if self.agent == "expert":
            print("events: " + ", ".join(f"{e.name} {e.frame}" for e in expert.events))
        if self.video:
            write_video(self.video, np.stack(frames), config.rate_hz)
        if not done:
            raise SystemExit(1)


def write_video(path: Path, frames: np.ndarray, fps: float) -> None:
    """An mp4 of frames."""
    from hostbot.video import VideoWriter

    with VideoWriter(path, (frames.shape[1], frames.shape[2]), fps) as writer:
        for frame in frames:
            writer.write(frame)
    print(f"wrote {path}: {len(frames)} frames at {fps:g} Hz")


@dataclass(frozen=True)
class Demo:
    """A human does a task in a scene of their own: a one-view video without actions."""

    task: Positional[TaskName]
    """A task's name (hostbot sim list)."""
    out: Path = Path("human.mp4")
    """The video to write."""
    seed: int = 0
    """Which person, table, camera and scene."""
    size: int = 256
    """Height and width."""

    def run(self) -> None:
        """Film it."""
        from hostbot.sim.catalogue import task
        from hostbot.sim.demonstrator import VIEW, DemonstratorConfig, demonstrate

        demo, events, success = demonstrate(task(self.task), self.seed, DemonstratorConfig(size=self.size))
        assert demo is not None
        write_video(self.out, demo.views[VIEW], demo.fps)
        print(f"{demo.instruction} {'Done.' if success else 'Not done: try another --seed.'}")
        print("events: " + ", ".join(f"{e.name} {e.frame}" for e in events))


@dataclass(frozen=True)
class Record:
    """Record LeRobot datasets with events, robot and human; run it again to go on."""

    out: Path
    """Folder for the datasets `robot` and `human`."""
    split: Part = "train"
    """Which tasks."""
    families: tuple[str, ...] = ()
    """Only tasks of these families (hostbot sim list)."""
    episodes_per_task: int = 40
    """Successful episodes of each task; with --drills of all together."""
    balance: float = 0.0
    """0: as many episodes of each task; 1: as many of each family, whose tasks are many or few."""
    embodiment: Literal["robot", "human", "both"] = "both"
    """Whose executions."""
    workers: int = 1
    """Processes, and parts of the dataset."""
    size: int = 96
    """Height and width of every view."""
    first_seed: int = 10_000
    """Seed of each task's first scene."""
    variants: int = 0
    """Show a task's things in so many colourings, among other things than the bench's; 0: the bench's own scenes."""
    stray: float = 0.0
    """How far the robot strays before it puts it right: 1 is centimetres, and hands that begin elsewhere."""
    midway: float = 0.0
    """Share of robots that begin in the midst of their task, where somebody has lost the way: above a wrong place, say,
    with the thing in the hand."""
    sketch: bool = False
    """Robots at their decisive moments only, set there without physics: many scenes to learn matching from.
    With --drills also people, up to the contact."""
    drills: bool = False
    """No tasks: one of a table full of things is touched, or something is put there; any of them in turn where robots
    are sketched. Without --sketch things are also pushed, moved and held."""
    raw: Annotated[int, arg(metavar="SIDE")] = 0
    """Keep pictures of this side as they are instead of mp4, for `hostbot train` alone: faster to write and to read,
    no LeRobot dataset, about thirty times the disk."""
    led: Annotated[Path | None, arg(metavar="EVALUATION")] = None
    """Robots that a policy has led somewhere in these trials (hostbot eval --keep-actions), and what the expert does
    there; each trial is used --episodes-per-task times, up to other steps."""
    minutes: float = float("inf")
    """Stop cleanly after so many minutes; the same command goes on."""
    json: bool = False
    """Print figures as JSON."""

    def run(self) -> None:
        """Record and report."""
        if self.led is not None and self.embodiment != "robot":
            raise BadInput("only robots are led: --led goes with --embodiment robot")
        if self.sketch and self.embodiment == "human" and not self.drills:
            raise BadInput("sketches are of robots; humans are recorded whole: leave --sketch out")
        until = time.monotonic() + 60 * self.minutes
        from hostbot.bench.record import RecordConfig, jobs, num_done, record

        config = RecordConfig(
            split=self.split,
            families=self.families,
            episodes_per_task=self.episodes_per_task,
            balance=self.balance,
            size=self.size,
            workers=self.workers,
            first_seed=self.first_seed,
            variants=self.variants,
            stray=self.stray,
            midway=self.midway,
            sketch=self.sketch,
            drills=self.drills,
            raw=self.raw,
            led="" if self.led is None else str(self.led),
        )
        total = sum(len(jobs(config, part)) for part in range(config.workers))
        bodies: list[Literal["robot", "human"]] = (
            ["robot", "human"] if self.embodiment == "both" else [self.embodiment]
        )
        figures: dict[str, dict[str, float]] = {}
        for body in bodies:
            begin, frames, failures, episodes = time.perf_counter(), 0, 0, 0
            done = num_done(self.out / body)
            with progress(f"recording {body}", total) as tick:
                tick(done)
                for note in record(self.out / body, body, config, until=until):
                    frames, failures, episodes = frames + note.frames, failures + note.failures, episodes + 1
                    tick()
            seconds = time.perf_counter() - begin
            figures[body] = {
                "episodes": done + episodes,
                "wanted": total,
                "recorded_now": episodes,
                "frames": frames,
                "failed_tries": failures,
                "seconds": round(seconds, 1),
                "frames_per_second": round(frames / seconds, 1),
            }
        if self.json:
            print_json(dict(figures) | {"provenance": provenance()})
            return
        rows = [(body, *values.values()) for body, values in figures.items()]
        print_table(str(self.out), ["body", *next(iter(figures.values()))], rows)


@dataclass(frozen=True)
class Sheet:
    """A contact sheet of every family: the human's row above the robot's."""

    out: Path = Path("sheet.png")
    """The picture to write (.png or .jpg)."""
    size: int = 96
    """Height and width of a frame."""
    frames: int = 6
    """Frames of an execution."""
    seed: int = 0
    """Which scenes."""

    def run(self) -> None:
        """Draw it."""
        from PIL import Image

        from hostbot.sim.sheet import one_a_family, sheet

        chosen = one_a_family()
        with progress("drawing", len(chosen)) as tick:
            page = sheet(chosen, self.size, self.frames, seed=self.seed, tick=tick)
        Image.fromarray(page).save(self.out, quality=85)
        print(f"wrote {self.out}: {len(chosen)} families, {page.shape[1]}x{page.shape[0]}")


@dataclass(frozen=True)
class Check:
    """Is a task sound? Its expert and its human must succeed; zeros, chance and other experts must not."""

    tasks: Annotated[Positional[tuple[str, ...]], arg(metavar="TASK")] = ()
    """Tasks to check; none with --all."""
    all: bool = False
    """Check every task."""
    every: int = 1
    """With --all: only every n-th task."""
    seeds: int = 5
    """Scenes a task."""
    first_seed: int = 3000
    """The first of them."""
    agents: tuple[Literal["expert", "human", "zero", "random", "wandering", "other"], ...] = (
        "expert",
        "human",
        "zero",
        "random",
        "other",
    )
    """Who tries; ``wandering`` is chance that gets somewhere, told for interest."""
    workers: int = 1
    """Processes."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """Keep trials here (JSON lines) and go on from them; a table beside it as .md."""
    json: bool = False
    """Print figures as JSON."""

    def run(self) -> None:
        """Run what is missing, then judge."""
        import tempfile
        from json import dumps

        from hostbot.sim.catalogue import split, task
        from hostbot.sim.check import judge, read_trials, run_trials, summary, table

        names = split().names("all")[:: self.every] if self.all else self.tasks
        if not names:
            raise BadInput("name a task to check, or give --all")
        for name in names:
            task(name)
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        with tempfile.TemporaryDirectory() as scratch:
            out = self.out or Path(scratch) / "trials.jsonl"
            wanted = len(names) * len(self.agents) * len(seeds)
            before = sum(
                t.task in names and t.agent in self.agents and t.seed in seeds for t in read_trials(out)
            )
            with progress("trials", wanted) as tick:
                tick(before)
                for _ in run_trials(names, self.agents, seeds, out, self.workers):
                    tick()
            trials = [
                t for t in read_trials(out) if t.task in names and t.seed in seeds and t.agent in self.agents
            ]
        verdict = judge(trials)
        if self.out:
            title = f"# Trials of {len(names)} tasks, seeds {seeds.start} to {seeds.stop - 1}\n\n"
            self.out.with_suffix(".md").write_text(title + table(trials))
            self.out.with_suffix(".json").write_text(dumps(summary(trials), indent=1) + "\n")
        if self.json:
            print_json(asdict(verdict))
        else:
            print(table(trials))
            print("\n".join(verdict.complaints) or "sound")
        if verdict.complaints:
            raise SystemExit(1)


@dataclass(frozen=True)
class Bench:
    """How fast the bench runs, physics and pictures apart."""

    workers: int = 1
    """Processes at once."""
    seconds: float = 10.0
    """How long to measure."""
    size: int = 96
    """Height and width of a view."""
    json: bool = False
    """Print figures as JSON."""

    def run(self) -> None:
        """Measure and print."""
        from hostbot.sim.env import EnvConfig
        from hostbot.sim.speed import measure_many

        config = EnvConfig(size=self.size)
        speeds = measure_many(self.workers, self.seconds, config)
        steps = sum(s.steps for s in speeds)
        physics, pictures = sum(s.physics_s for s in speeds), sum(s.pictures_s for s in speeds)
        whole = sum(s.steps_per_second for s in speeds)
        figures = {
            "workers": self.workers,
            "views": len(config.views),
            "size": self.size,
            "steps_per_second": round(whole, 1),
            "steps_per_second_per_worker": round(whole / self.workers, 1),
            "wall_steps_per_second": round(sum(s.wall_steps_per_second for s in speeds), 1),
            "physics_ms_per_step": round(1e3 * physics / steps, 3),
            "pictures_ms_per_step": round(1e3 * pictures / steps, 3),
            "physics_only_steps_per_second_per_worker": round(steps / physics, 1),
            "reset_ms": round(1e3 * sum(s.reset_s for s in speeds) / sum(s.episodes for s in speeds), 1),
        }
        if self.json:
            print_json({**figures, "provenance": provenance()})
        else:
            print_table("bench", ["", ""], list(figures.items()))


@dataclass(frozen=True)
class Asynchrony:
    """How far apart in progress human and robot are when matched by clock time."""

    split: Part = "novel"
    """Which tasks."""
    seeds: int = 3
    """Pairs a task."""
    first_seed: int = 2000
    """The first scene."""
    json: bool = False
    """Print figures as JSON."""

    def run(self) -> None:
        """Measure and print."""
        from hostbot.sim.asynchrony import measure_clock
        from hostbot.sim.catalogue import split

        names = split().names(self.split)
        with progress("pairs", len(names) * self.seeds) as tick:
            found = measure_clock(names, range(self.first_seed, self.first_seed + self.seeds), tick)
        figures = {
            "tasks": len(names),
            "pairs": len(found),
            "mean_progress_error": round(float(np.mean(found)), 4),
        }
        if self.json:
            print_json({**figures, "provenance": provenance()})
        else:
            print_table("matching by clock time", ["", ""], list(figures.items()))


VERBS: tuple[type, ...] = (List, Play, Demo, Record, Sheet, Check, Bench, Asynchrony)

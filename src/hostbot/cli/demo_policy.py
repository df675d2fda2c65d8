"""``hostbot demo``: one human video, acquired, and done by the robot before your eyes."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hostbot.cli.policies import load_policy
from hostbot.types import BadInput, Demonstration, Event, Frames

if TYPE_CHECKING:
    from hostbot.bench.perform import Performance
    from hostbot.cli.demo import Demo
    from hostbot.policy.execution import ExecutionConfig
    from hostbot.policy.policy import Policy
    from hostbot.policy.session import Decision
    from hostbot.policy.skill import Skill
    from hostbot.sim.task import Task

DEFAULT = "place_in-green_block-brown_box"
SIDE = 256
"""Pixels a side of what people look at."""
Watch = Callable[[int, "Decision"], None]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the robot watches, and the same for people."""

    video: Path | Demonstration
    instruction: str
    frames: Frames
    """At the control rate and ``SIDE``."""
    events: tuple[Event, ...] = ()
    """What the person does when, where it is known."""


def follow(flags: Demo, fresh: Callable[[Path], None]) -> None:
    """Show, acquire, act, leave the files, and say how it went."""
    from hostbot.config import record_run, write_json
    from hostbot.policy.execution import ExecutionConfig
    from hostbot.sim.catalogue import split, task

    if flags.video is not None and not flags.video.exists():
        raise BadInput(f"{flags.video} does not exist")
    if flags.instruction and flags.video is None:
        raise BadInput("--instruction goes with --video: the bench's people have words of their own")
    if not 0 < flags.seconds <= 600:
        raise BadInput(f"--seconds is in 0..600, got {flags.seconds:g}")
    chosen = task(flags.task or DEFAULT)
    policy = load_policy(flags.policy, "cpu", "float32", remember=False)  # it tells how long watching takes
    execution = ExecutionConfig(execute=policy.spec.execute if flags.execute is None else flags.execute)
    execution.steps(policy.horizon)
    fresh(flags.out)
    record_run(flags.out, flags, {"demo": flags.seed})
    shown = _own(flags, policy) if flags.video is not None else _filmed(flags, chosen, policy)
    side = "novel" if chosen.name in split().novel else "training"
    print(f"task: {chosen.name} ({side}); told: {shown.instruction or 'nothing'}")
    before, begin = policy.fingerprint(), time.perf_counter()
    skill = policy.acquire(shown.video, shown.instruction)
    acquire_s = time.perf_counter() - begin
    print(f"acquired in {acquire_s:.2f} s: {skill.num_frames} control steps to follow")
    done = _act(flags, policy, skill, chosen, shown, execution)
    if policy.fingerprint() != before:
        raise RuntimeError("a weight has changed")
    _leave(flags.out, policy, shown, done)
    told = {
        "task": chosen.name, "instruction": shown.instruction, "success": done.success, "steps": done.steps,
        "robot_s": round(done.steps / policy.embodiment.rate_hz, 2), "acquire_s": round(acquire_s, 3),
        "seconds": round(done.seconds, 1), "progress": done.progress, "weights": before,
    }  # fmt: skip
    write_json(flags.out / "demo.json", told)
    _say(flags.out, told)


def _filmed(flags: Demo, chosen: Task, policy: Policy) -> Shown:
    """A person in another scene; the robot watches at the size it was trained with, people at theirs."""
    from hostbot.bench.films import Film, make
    from hostbot.cli.show import progress
    from hostbot.sim.demonstrator import VIEW
    from hostbot.video import VideoWriter

    rate = policy.embodiment.rate_hz
    takes = []
    with progress("filming a person", 2) as tick:
        for size, wanted in ((96, policy.spec.image_size), (SIDE, (SIDE, SIDE))):
            film = Film(task=chosen.name, seed=flags.seed, rate_hz=rate, size=size, image_size=wanted)
            takes.append(make(film))
            tick()
    small, large = takes
    with VideoWriter(flags.out / "human.mp4", (SIDE, SIDE), rate) as writer:
        for frame in large.views[VIEW]:
            writer.write(frame)
    watched = Demonstration(views={VIEW: small.views[VIEW]}, fps=rate)
    return Shown(video=watched, instruction=small.instruction, frames=large.views[VIEW], events=small.events)


def _own(flags: Demo, policy: Policy) -> Shown:
    from hostbot.sim.demonstrator import VIEW
    from hostbot.video import load_demonstration

    assert flags.video is not None
    seen = load_demonstration(flags.video, rate_hz=policy.embodiment.rate_hz, size=(SIDE, SIDE))
    return Shown(video=flags.video, instruction=flags.instruction, frames=seen.views[VIEW])


def _act(
    flags: Demo, policy: Policy, skill: Skill, chosen: Task, shown: Shown, execution: ExecutionConfig
) -> Performance:
    """The robot in its own scene, filmed larger than it sees."""
    from hostbot.bench.perform import perform
    from hostbot.sim.demonstrator import VIEW
    from hostbot.sim.env import EnvConfig, SimEnv
    from hostbot.sim.render import Painter

    env = SimEnv(chosen, EnvConfig(rate_hz=policy.embodiment.rate_hz, seconds=flags.seconds))
    env.reset(seed=flags.seed)
    assert env.world is not None
    world = env.world
    painter = Painter(world.model, SIDE)
    try:
        with _live(shown, int(env.config.seconds * env.config.rate_hz)) as watch:
            return perform(
                policy,
                skill,
                env,
                flags.seed,
                execution=execution,
                look=lambda: painter.draw(world.data, [VIEW])[VIEW],
                watch=watch,
            )
    finally:
        painter.close()
        env.close()


@contextmanager
def _live(shown: Shown, limit: int) -> Iterator[Watch]:
    """Where in the video the robot thinks it is, how sure, and what the person does there."""
    columns = (
        TextColumn("in the video"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[told]}"),
        TimeElapsedColumn(),
    )
    starts = [event.frame for event in shown.events]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line = bar.add_task("", total=1.0, told="")

        def watch(frame: int, decision: Decision) -> None:
            where = decision.progress if math.isfinite(decision.progress) else 0.0
            sure = f"confidence {decision.confidence:.2f}" if math.isfinite(decision.confidence) else ""
            place = bisect.bisect_right(starts, where * (len(shown.frames) - 1)) - 1
            stage = f"the person: {shown.events[place].name}" if place >= 0 else ""
            told = ", ".join(
                part for part in (f"step {frame} of {limit}", sure, stage, decision.held) if part
            )
            bar.update(line, completed=where, told=told)

        yield watch


def _leave(out: Path, policy: Policy, shown: Shown, done: Performance) -> None:
    from hostbot.bench.movie import moments, write_moments, write_sheet
    from hostbot.bench.recording import write_performance

    rate = policy.embodiment.rate_hz
    listed = list(moments(shown.frames, done.pictures, done.chunks, policy.imagine))
    write_moments(out / "demo.mp4", listed, rate, SIDE)
    write_sheet(out / "demo.png", listed)
    write_performance(out / "demo.rrd", listed, rate, shown.instruction)


def _say(out: Path, told: dict[str, object]) -> None:
    what = {
        "demo.mp4": "human video | robot | what the robot foresaw; the bar is where it thinks it is",
        "demo.png": "six moments of it",
        "demo.rrd": "recording to open with `rerun`",
        "demo.json": "the figures",
    }
    if (out / "human.mp4").exists():
        what = {"human.mp4": "the video it watched"} | what
    print()
    for name, text in what.items():
        print(f"  {out / name}".ljust(28) + text)
    verdict = "done" if told["success"] else "NOT done"
    print(
        f"\n{verdict} after {told['steps']} steps ({told['robot_s']} s of the robot's time, {told['seconds']} s by the "
        f"clock); the skill was acquired in {told['acquire_s']} s, and no weight changed"
    )

"""``hostbot demo``: what hostbot can do today, on this machine, in one command."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import arg

from hostbot.cli.show import progress
from hostbot.types import BadInput, EpisodeSource

if TYPE_CHECKING:
    from hostbot.sim.task import Task

_MARK = ".hostbot-demo"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Show a robot one human video of a task it never learned, and watch it do the task in the bench.

    Needs a trained policy (--policy). It leaves human.mp4, demo.mp4 (the human video where the robot thinks it is, the
    robot, what it foresees, and a bar), demo.rrd and demo.json. Without a policy, as long as no trained weights ship,
    people and the bench's scripted expert do a few novel tasks, and both go through the data layer.
    """

    out: Path = Path("demo")
    """A folder of its own; an earlier demo there is replaced."""
    policy: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """A policy's folder; by default the weights that ship, where they do."""
    task: Annotated[str | None, arg(metavar="TASK")] = None
    """With a policy: whose video is shown, in whose scene the robot acts, and who judges it (hostbot sim list)."""
    video: Annotated[Path | None, arg(metavar="VIDEO")] = None
    """With a policy: your own video of the task, any that a phone makes."""
    instruction: str = ""
    """With --video: the task, in words."""
    seconds: float = 14.0
    """With a policy: the robot's time, after which it has failed."""
    tasks: int = 4
    """Without a policy: how many of the novel tasks are shown."""
    episodes: int = 3
    """Without a policy: robot episodes a task."""
    seed: int = 0

    def run(self) -> None:
        """Make everything, then say where it lies."""
        policy = self.policy or shipped_policy()
        if policy is not None:
            from hostbot.cli.demo_policy import follow

            follow(self, policy, _fresh)
            return
        if self.task is not None or self.video is not None or self.instruction:
            raise BadInput(
                "no trained weights ship yet: name a policy that follows videos with --policy FOLDER"
            )
        self._show_bench()

    def _show_bench(self) -> None:
        from hostbot.config import record_run
        from hostbot.sim.catalogue import split, task

        if not 1 <= self.tasks <= 50 or not 2 <= self.episodes <= 100:
            raise BadInput(
                f"a demo has 1..50 tasks and 2..100 episodes, got {self.tasks} and {self.episodes}"
            )
        _fresh(self.out)
        rng = np.random.default_rng(self.seed)
        names = split().names("novel")
        chosen = [task(names[i]) for i in rng.permutation(len(names))[: self.tasks]]
        record_run(self.out, self, {"demo": self.seed})
        self._film_people(chosen)
        self._record_robot(chosen)
        self._prepare()
        self._show()

    def _film_people(self, tasks: list[Task]) -> None:
        from hostbot.data.convert import ConvertConfig, convert
        from hostbot.data.folder import VideoFolder
        from hostbot.sim.demonstrator import VIEW, DemonstratorConfig, demonstrate
        from hostbot.video import VideoWriter

        with progress("filming people", len(tasks)) as tick:
            for one in tasks:
                demo, _, _ = demonstrate(one, self.seed, DemonstratorConfig(size=256))
                assert demo is not None
                path = self.out / "videos" / one.name / "phone.mp4"
                path.parent.mkdir(parents=True)
                path.with_name("instruction.txt").write_text(one.instructions[0] + "\n")
                with VideoWriter(path, (256, 256), demo.fps) as writer:
                    for frame in demo.views[VIEW]:
                        writer.write(frame)
                tick()
        people = VideoFolder(self.out / "videos", rate_hz=16)
        convert(people, self.out / "human", ConvertConfig(size=(96, 96)))

    def _record_robot(self, tasks: list[Task]) -> None:
        from hostbot.data.stats import ACTION, STATE
        from hostbot.data.write import DatasetWriter
        from hostbot.sim.episode import robot_episode
        from hostbot.types import bimanual

        embodiment = bimanual(rate_hz=16)
        views = dict.fromkeys(embodiment.views, (96, 96))
        features = dict.fromkeys((STATE, ACTION), embodiment.dim)
        with (
            DatasetWriter(
                self.out / "robot", fps=16, features=features, views=views, embodiment=embodiment
            ) as writer,
            progress("recording the robot", len(tasks) * self.episodes) as tick,
        ):
            for number in range(len(tasks) * self.episodes):
                one = tasks[number % len(tasks)]
                made = robot_episode(one, self.seed + number).trajectory
                rows = {STATE: made.state, ACTION: made.action}
                writer.add_episode(rows, made.views, one.instructions[0], made.events)
                tick()

    def _prepare(self) -> None:
        from hostbot.data.pairs import SplitConfig, make_split, pairs, save_split
        from hostbot.data.stats import StatsConfig, compute_statistics, save_statistics, statistics_path
        from hostbot.data.store import open_dataset

        robot, human = open_dataset(self.out / "robot"), open_dataset(self.out / "human")
        statistics = compute_statistics(robot, StatsConfig())
        save_statistics(statistics, statistics_path(self.out / "robot"))
        split = make_split({"robot": robot, "human": human}, SplitConfig(seed=self.seed))
        save_split(split, self.out / "split.json")
        num_robot, num_human = (sum(1 for _ in pairs(split, "train", body)) for body in ("robot", "human"))
        removed = f"{statistics.num_removed} of {statistics.num_frames} frames static and left out"
        print(f"statistics of {statistics.num_episodes} episodes ({removed})")
        print(f"training pairs: {num_robot} robot-robot, {num_human} human-robot")

    def _show(self) -> None:
        from hostbot.data.recording import write_recording
        from hostbot.data.sheet import contact_sheet
        from hostbot.data.store import open_dataset

        robot, human = open_dataset(self.out / "robot"), open_dataset(self.out / "human")
        made = {"robot.png": robot, "human.png": human}
        for name, source in made.items():
            contact_sheet(source, list(range(min(4, len(source))))).save(self.out / name)
        write_recording(robot, [0, 1], self.out / "robot.rrd")
        side_by_side(self.out / "pair.mp4", human, robot)
        what = {
            "robot/": f"LeRobot v3.0 dataset: {len(robot)} episodes, {robot.num_frames} frames, three views",
            "human/": f"people's videos as a dataset: {len(human)} demonstrations, one view, no actions",
            "robot.png": "contact sheet of the robot's episodes",
            "human.png": "contact sheet of the people's videos",
            "pair.mp4": "one task by a person and by the robot, both on their own clock",
            "robot.rrd": "recording to open with `rerun`",
            "split.json": "the seeded split",
        }
        print()
        for name, text in what.items():
            print(f"  {self.out / name}".ljust(28) + text)
        print(
            "\nThe robot here is the bench's scripted expert: no trained weights ship yet. With some of your own,\n"
            "`hostbot demo --policy FOLDER` shows a robot one human video and lets it act."
        )


def shipped_policy() -> Path | None:
    """The trained policy inside the package, where there is one."""
    folder = Path(__file__).parents[1] / "weights" / "policy"
    return folder if (folder / "policy.json").is_file() else None


def _fresh(folder: Path) -> None:
    """An empty folder; one that holds something else than an earlier demo is left alone."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).exists():
            raise BadInput(f"{folder} is not empty and holds no earlier demo; name another with --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()


def side_by_side(path: Path, human: EpisodeSource, robot: EpisodeSource) -> None:
    """Play a demonstration and a robot episode of the same task beside each other, each on its own clock."""
    from hostbot.data.pairs import task_key
    from hostbot.video import VideoWriter

    side, bar = 256, 12
    task = task_key(human.episode(0).instruction)
    match = next(i for i in range(len(robot)) if task_key(robot.episode(i).instruction) == task)
    panels = [(human, 0, human.views[0]), (robot, match, "third_person")]
    lengths = [source.episode(index).length for source, index, _ in panels]
    with VideoWriter(path, (side + bar, 2 * side), human.fps) as writer:
        for frame in range(max(lengths)):
            canvas = np.full((side + bar, 2 * side, 3), 235, np.uint8)
            for place, ((source, index, view), length) in enumerate(zip(panels, lengths, strict=True)):
                shown = min(frame, length - 1)
                left = place * side
                canvas[:side, left : left + side] = source.frames(index, view, [shown], (side, side))[0]
                canvas[side:, left : left + round(side * (shown + 1) / length)] = (58, 104, 196)
            writer.write(canvas)


VERBS = (Demo,)

"""``hostbot demo``: one human video, and a robot that does the task, on this machine, in one command."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from hostbot.cli.policies import SHIPPED
from hostbot.types import BadInput

_MARK = ".hostbot-demo"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Show a robot one human video of a task it never learned, and watch it do the task in the bench.

    It leaves human.mp4, demo.mp4 (the human video where the robot thinks it is, the robot, what it foresees, and a
    bar), demo.png (a few moments of it), demo.rrd and demo.json. Nothing is trained: the weights are those that ship,
    or yours.
    """

    out: Path = Path("demo")
    """A folder of its own; an earlier demo there is replaced."""
    policy: Annotated[Path, arg(metavar="FOLDER")] = SHIPPED
    """A policy's folder; by default the weights that come with hostbot."""
    task: Annotated[str | None, arg(metavar="TASK")] = None
    """Whose video is shown, in whose scene the robot acts, and who judges it (hostbot sim list)."""
    video: Annotated[Path | None, arg(metavar="VIDEO")] = None
    """Your own video of the task, any that a phone makes."""
    instruction: str = ""
    """With --video: the task, in words."""
    execute: Annotated[int | None, arg(metavar="STEPS")] = None
    """Steps of each chunk before the robot looks again; as many as the policy does best with if not said."""
    seconds: float = 14.0
    """The robot's time, after which it has failed."""
    seed: int = 0

    def run(self) -> None:
        """Make everything, then say where it lies."""
        from hostbot.cli.demo_policy import follow

        follow(self, _fresh)


def _fresh(folder: Path) -> None:
    """An empty folder; one that holds something else than an earlier demo is left alone."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).exists():
            raise BadInput(f"{folder} is not empty and holds no earlier demo; name another with --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()


VERBS = (Demo,)

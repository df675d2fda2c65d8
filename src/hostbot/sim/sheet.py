"""A contact sheet of the bench: for each family a row of the human above a row of the robot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw

from hostbot.sim.catalogue import split, tasks
from hostbot.sim.demonstrator import VIEW, DemonstratorConfig, demonstrate
from hostbot.sim.env import EnvConfig
from hostbot.sim.episode import robot_episode
from hostbot.sim.task import Task
from hostbot.types import Frames, Image

LABEL = 15


def one_a_family() -> list[Task]:
    """A task of every family, one of the named ones where there is one."""
    named = set(split().mastered + split().comparison)
    chosen: dict[str, Task] = {}
    for task in tasks().values():
        if task.family not in chosen or (task.name in named and chosen[task.family].name not in named):
            chosen[task.family] = task
    return list(chosen.values())


def strip(frames: Frames, count: int) -> Image:
    """Evenly spaced frames side by side."""
    places = np.linspace(0, len(frames) - 1, count).astype(int)
    return np.concatenate(list(frames[places]), axis=1)


def family_rows(task: Task, size: int, count: int, seed: int) -> Image:
    """Human row above robot row, under a label."""
    demo, _, _ = demonstrate(task, seed, DemonstratorConfig(size=size))
    robot = robot_episode(task, seed, EnvConfig(size=size, views=(VIEW,)))
    assert demo is not None
    rows = np.concatenate([strip(demo.views[VIEW], count), strip(robot.trajectory.views[VIEW], count)])
    canvas = Pillow.new("RGB", (rows.shape[1], rows.shape[0] + LABEL), (255, 255, 255))
    text = f"{task.family} ({split().of(task.name)}): {task.instructions[0]}"
    ImageDraw.Draw(canvas).text((3, 2), text, fill=(0, 0, 0))
    canvas.paste(Pillow.fromarray(rows), (0, LABEL))
    return np.asarray(canvas)


def sheet(
    chosen: Sequence[Task],
    size: int = 96,
    count: int = 6,
    columns: int = 2,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> Image:
    """All families on one page."""
    blocks = []
    for task in chosen:
        blocks.append(family_rows(task, size, count, seed))
        tick()
    height, width = blocks[0].shape[:2]
    while len(blocks) % columns:
        blocks.append(np.full((height, width, 3), 255, np.uint8))
    gap = np.full((height, 6, 3), 255, np.uint8)
    rows = [
        np.concatenate([part for k in range(columns) for part in (blocks[i + k], gap)][:-1], axis=1)
        for i in range(0, len(blocks), columns)
    ]
    return np.concatenate(rows, axis=0)

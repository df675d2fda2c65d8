"""Small rollouts during training: does the video drive the robot, on training tasks in scenes never recorded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hostbot.bench.metrics import Result
    from hostbot.policy.policy import Policy

FIRST_SEED = 8000
"""Scenes of these rollouts: clear of recorded ones and of evaluations."""


def rollout_check(run: Path, num_tasks: int, size: int) -> Callable[[Policy, int], dict[str, float]]:
    """Success and right first touch with the task's own video; with another task's of the same scene, how often the
    scene's own task is done all the same and how often the one that was shown.

    Tasks are spread over the training split: novel ones must not help to choose a checkpoint.
    """
    from hostbot.sim.catalogue import split

    known = split().names("train")
    tasks = tuple(known[i * len(known) // num_tasks] for i in range(min(num_tasks, len(known))))

    def check(policy: Policy, step: int) -> dict[str, float]:
        folder = run / "rollouts" / f"step-{step:08d}"
        own, swapped = (_trials(policy, folder / how, tasks, how, size) for how in _SHOWN)
        return {
            "success": _share(r.success for r in own),
            "first_touch": _share(r.touched == r.meant for r in own if r.touched),
            "success_swapped": _share(r.success for r in swapped),
            "followed_swapped": _share(r.followed for r in swapped),
        }

    return check


_SHOWN: tuple[Literal["own", "swapped"], ...] = ("own", "swapped")


def _share(values: Iterable[bool]) -> float:
    listed = list(values)
    return sum(listed) / max(1, len(listed))


def _trials(
    policy: Policy, folder: Path, tasks: tuple[str, ...], shown: Literal["own", "swapped"], size: int
) -> list[Result]:
    from hostbot.bench.model import Model
    from hostbot.bench.results import RolloutConfig
    from hostbot.bench.rollout import Rollout
    from hostbot.bench.suites import SuiteConfig

    config = RolloutConfig(
        suite=SuiteConfig(tasks=tasks, trials=1, videos=1, first_seed=FIRST_SEED, shown=shown),
        wave=min(16, len(tasks)),
        size=size,
        rate_hz=policy.embodiment.rate_hz,
        workers=min(len(tasks), os.cpu_count() or 1),
    )
    shutil.rmtree(folder, ignore_errors=True)  # a resumed run may come by this step again
    rollout = Rollout(Model(policy, None), config, policy.spec.image_size)
    return [finished.result for finished in rollout.run(folder)]

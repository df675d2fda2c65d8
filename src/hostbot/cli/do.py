"""``hostbot do``: say a task; the robot in the bench does it if it has ever been shown, or asks for a video."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from hostbot.cli.embedding import Embedding, default_memory, opened
from hostbot.cli.policies import SHIPPED, Dtype, load_policy
from hostbot.cli.show import print_json, progress
from hostbot.types import BadInput, Image

if TYPE_CHECKING:
    from hostbot.memory import DemonstrationMemory, Entry
    from hostbot.policy.policy import Policy
    from hostbot.policy.skill import Skill
    from hostbot.sim.env import SimEnv


@dataclass(frozen=True, kw_only=True)
class Do:
    """Do a task by its words: find its demonstration in memory, or ask for a video, then act in the bench.

    For a real robot, `hostbot serve --memory` does the same for the prompt that the robot's computer sends.
    """

    instruction: Annotated[Positional[str], arg(metavar="INSTRUCTION")]
    """The task, in words."""
    policy: Annotated[Path, arg(metavar="FOLDER")] = SHIPPED
    """A policy's folder; by default the weights that come with hostbot."""
    task: str
    """Whose scene to act in, and who judges it (hostbot sim list)."""
    memory: str = field(default_factory=default_memory)
    """Where demonstrations are kept."""
    video: Annotated[Path | None, arg(metavar="VIDEO")] = None
    """Shown where the task is novel, and kept for the next time."""
    seed: int = 0
    """Of the scene."""
    out: Annotated[Path | None, arg(metavar="OUT.mp4")] = None
    """Film the robot."""
    device: str = "auto"
    """auto, cpu, cuda."""
    dtype: Dtype = "float32"
    embedding: Embedding = field(default_factory=Embedding)
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Find, acquire, act, judge."""
        from hostbot.sim.catalogue import task
        from hostbot.sim.env import SimEnv

        at = {"begun": time.time()}
        policy = load_policy(self.policy, self.device, self.dtype)
        at["loaded"] = time.time()
        env = SimEnv(task(self.task))
        env.reset(seed=self.seed)
        at["scene"] = time.time()
        with opened(self.memory, self.embedding, create=True) as memory:
            entry, found = self._entry(memory, env.pictures()["third_person"])
            at["remembered"] = time.time()
            begin = time.perf_counter()
            skill = policy.acquire(memory.video(entry), entry.instruction)
        told: dict[str, object] = {"demonstration": entry.label, "found": found}
        told["acquire_s"] = round(time.perf_counter() - begin, 3)
        at["acquired"] = time.time()
        told |= self._act(policy, skill, env, at) | {"unix_s": at}
        env.close()
        if self.json:
            print_json(told)
            return
        print(f"{found}; acquired in {told['acquire_s']} s")
        print(
            f"{'done' if told['success'] else 'not done'} after {told['steps']} steps ({told['seconds']} s)"
        )

    def _entry(self, memory: DemonstrationMemory, scene: Image) -> tuple[Entry, str]:
        """The demonstration to follow, and how it was come by."""
        from hostbot.memory import Ambiguous, Match, explain

        answer = memory.query(self.instruction, scene if memory.sees_scenes else None)
        if isinstance(answer, Match):
            return answer.best.entry, explain(answer)
        if isinstance(answer, Ambiguous):
            raise BadInput(explain(answer))
        video = self.video or _asked(explain(answer))
        return memory.add(video, self.instruction).entry, f"novel; learned from {video}"

    def _act(self, policy: Policy, skill: Skill, env: SimEnv, at: dict[str, float]) -> dict[str, object]:
        """Until the task is judged done or the time is over."""
        from hostbot.bench.perform import perform
        from hostbot.policy.execution import ExecutionConfig

        limit = int(env.config.seconds * env.config.rate_hz)
        with progress("acting", limit) as tick:
            done = perform(
                policy,
                skill,
                env,
                self.seed,
                execution=ExecutionConfig(execute=policy.spec.execute),
                look=None if self.out is None else env.render,
                watch=lambda frame, decision: tick(),
            )
        if self.out is not None:
            _film(self.out, done.pictures, env.config.rate_hz)
        at["first_action"] = done.first_action
        where = {} if done.progress is None else {"progress": round(done.progress, 3)}
        return {"success": done.success, "steps": done.steps, "seconds": round(done.seconds, 1), **where}


def _asked(why: str) -> Path:
    """A video from the person at the terminal; without one, the sentence that says what to do."""
    if not sys.stdin.isatty():
        raise BadInput(f"{why}: pass --video")
    print(why)
    return Path(input("a video of it (path): ").strip()).expanduser()


def _film(path: Path, pictures: Sequence[Image], rate_hz: float) -> None:
    from hostbot.video import VideoWriter

    with VideoWriter(path, pictures[0].shape[:2], rate_hz) as writer:
        for picture in pictures:
            writer.write(picture)


VERBS = (Do,)

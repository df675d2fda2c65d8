"""``hostbot acquire``: watch one video and keep what was learned."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from hostbot.cli.embedding import Embedding, opened
from hostbot.cli.policies import SHIPPED, Dtype, load_policy
from hostbot.cli.show import print_json
from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class Acquire:
    """Watch a video of a task and keep the skill: as a file, in memory, or both. No weight changes."""

    video: Annotated[Positional[Path], arg(metavar="VIDEO")]
    """Somebody doing the task: any video a phone makes."""
    policy: Annotated[Path, arg(metavar="FOLDER")] = SHIPPED
    """A policy's folder; by default the weights that come with hostbot."""
    instruction: str = ""
    """The task, in words."""
    memory: Annotated[str | None, arg(metavar="MEMORY")] = None
    """Keep the video here, to be found again by `hostbot do`."""
    out: Annotated[Path | None, arg(metavar="FILE.safetensors")] = None
    """Write the skill itself here."""
    pace: Annotated[float | None, arg(metavar="FACTOR")] = None
    """Follow the video so many times as fast as it was filmed."""
    device: str = "auto"
    """auto, cpu, cuda."""
    dtype: Dtype = "float32"
    embedding: Embedding = field(default_factory=Embedding)
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Acquire, keep, say how long it took."""
        if self.out is not None and self.out.exists():
            raise BadInput(f"{self.out} exists; name another file")
        if self.memory is not None and not self.instruction.strip():
            raise BadInput('a memory finds videos by their words: --instruction "stack the bowls"')
        policy = load_policy(self.policy, self.device, self.dtype)
        begin = time.perf_counter()
        skill = policy.acquire(self.video, self.instruction, pace=self.pace)
        told: dict[str, object] = {"skill": skill.id, "frames": skill.num_frames, "pace": skill.pace}
        told["seconds"] = round(time.perf_counter() - begin, 3)
        if self.out is not None:
            skill.save(self.out)
            told["file"] = str(self.out)
        if self.memory is not None:
            with opened(self.memory, self.embedding, create=True) as memory:
                told["remembered"] = memory.add(self.video, self.instruction).entry.label
        if self.json:
            print_json(told)
            return
        print(f"acquired in {told['seconds']} s: {skill.num_frames} control steps at pace {skill.pace:g}")
        for name in ("file", "remembered"):
            if name in told:
                print(f"  {name}: {told[name]}")


VERBS = (Acquire,)

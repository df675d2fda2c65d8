"""A policy that keeps the robot where it is: to try cameras, network, limits and the stop before anything moves.

Legend: D vector width, H steps.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hostbot.types import ActionChunk, BadInput, Embodiment, Observation
from hostbot.video import probe


@dataclass(eq=False)
class Standing:
    """A session of it."""

    instruction: str
    num_cycles: int = 0


class Rehearsal:
    """Answers every observation with the robot's own state, held for a whole chunk."""

    def __init__(self, embodiment: Embodiment, horizon: int = 32, seconds: float = 0.0) -> None:
        """``seconds`` is how long a pass pretends to think."""
        self.embodiment, self.horizon, self.seconds = embodiment, horizon, seconds

    def acquire(self, video: Path | None, instruction: str = "") -> str:
        """The instruction; the video is looked at, so that a broken one is refused here too."""
        if video is None and not instruction:
            raise BadInput("a skill needs a video, an instruction, or both")
        if video is not None:
            probe(video)
        return instruction

    def start(self, skill: str, seed: int = 0) -> Standing:
        """A new session."""
        return Standing(skill)

    def step_batch(
        self, sessions: Sequence[Standing], observations: Sequence[Observation]
    ) -> list[ActionChunk]:
        """Stay."""
        begin = time.monotonic()
        time.sleep(self.seconds)
        chunks = []
        for session, seen in zip(sessions, observations, strict=True):
            session.num_cycles += 1
            chunks.append(
                ActionChunk(
                    actions=np.tile(seen.state, (self.horizon, 1)).astype(np.float32),
                    embodiment=self.embodiment,
                    progress=0.0,
                    confidence=1.0,
                    timing_ms={"infer": 1e3 * (time.monotonic() - begin)},
                )
            )
        return chunks

"""Moves that do nothing to things: wait, go home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hostbot.sim.keys import Goal, Key
from hostbot.sim.moves.base import Stage


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Stay as you are."""

    seconds: float
    event: str = "hold"

    def keys(self, stage: Stage) -> Sequence[Key]:
        """One keyframe that only dwells."""
        return [Key(event=self.event, dwell=self.seconds)]

    def achieved(self, stage: Stage) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, kw_only=True)
class Home:
    """A limb goes back to where it waits."""

    role: str = "main"

    def keys(self, stage: Stage) -> Sequence[Key]:
        """Straight there."""
        return [Key(goals={self.role: Goal(frame="home")}, near=0.03)]

    def achieved(self, stage: Stage) -> bool:
        """Always."""
        return True

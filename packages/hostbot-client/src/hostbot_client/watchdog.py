"""When to hold and when to stop: a pure function of the clock, so that every case can be tested without waiting.

RUNNING: fresh actions are there. HOLDING: the next chunk is late by more than ``hold_s``; it goes on by itself when one
comes. STOPPED: late by more than ``stop_s``, or told to stop; only a person's ``reset`` ends it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.Enum):
    """What the robot is to do."""

    RUNNING = "running"
    HOLDING = "holding"
    STOPPED = "stopped"


@dataclass(frozen=True)
class WatchdogConfig:
    """How long the robot waits, in seconds past the instant at which it needed the next action."""

    hold_s: float = 0.5
    stop_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.hold_s <= self.stop_s:
            raise ValueError(f"hold_s must be in 0..stop_s, got {self.hold_s} and {self.stop_s}")


class Watchdog:
    """Told of every fresh chunk and asked at every tick."""

    def __init__(self, now: float, config: WatchdogConfig | None = None) -> None:
        self.config = config or WatchdogConfig()
        self.reason = ""
        self._due, self._stopped = now, False

    def fed(self, now: float, lasts_s: float) -> None:
        """A fresh chunk is there; its actions last this long. A stopped robot stays stopped."""
        self._due = now + max(0.0, lasts_s)

    def stop(self, reason: str) -> None:
        """Stop until a person resets."""
        if not self._stopped:
            self._stopped, self.reason = True, reason

    def reset(self, now: float) -> None:
        """A person has looked and says go on."""
        self._stopped, self.reason, self._due = False, "", now

    def check(self, now: float) -> State:
        """What to do now."""
        late = now - self._due
        if not self._stopped and late > self.config.stop_s:
            self.stop(f"no fresh action for {late:.2f} s past its time")
        if self._stopped:
            return State.STOPPED
        return State.HOLDING if late > self.config.hold_s else State.RUNNING

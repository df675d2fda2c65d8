"""The control loop: look, ask, check, move; hold when unsure, stop when lost.

``run_robot`` owns time: one action a tick, whatever the network does. Every chunk passes the guard before any of it
moves the robot. The emergency stop is the robot's own and does not pass through Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hostbot_client.broker import ChunkBroker
from hostbot_client.guard import Guard
from hostbot_client.watchdog import State, Watchdog

Array = np.ndarray


class Robot(Protocol):
    """What hostbot needs of a robot's driver."""

    def observe(self) -> Mapping[str, Any]:
        """``state`` (D,), ``images`` by camera (h, w, 3) bytes, and ``prompt``, all of this moment."""

    def state(self) -> Array:
        """The measured state (D,) of this moment, quickly: no pictures."""

    def command(self, action: Array) -> None:
        """Go to this (D,) within one tick. Must return at once."""

    def hold(self) -> None:
        """Stay where you are, by the robot's own means. Must return at once and may be called again and again."""


@dataclass
class Tick:
    """What happened in one tick, for displays and logs."""

    number: int
    state: State
    action: Array | None = None
    note: str = ""
    answer: Mapping[str, Any] | None = None


class ControlLoop:
    """One robot, one broker, one guard, one watchdog; ``tick`` is called at the control rate."""

    def __init__(
        self,
        robot: Robot,
        broker: ChunkBroker,
        guard: Guard,
        watchdog: Watchdog | None = None,
    ) -> None:
        if abs(guard.limits.rate_hz - broker.config.rate_hz) > 1e-9:
            raise ValueError(
                f"limits are for {guard.limits.rate_hz:g} Hz, but actions are sent at {broker.config.rate_hz:g} Hz"
            )
        self.robot, self.broker, self.guard = robot, broker, guard
        self.watchdog = watchdog or Watchdog(broker.clock())
        self.number = 0
        self._last: Array | None = None
        """What the robot was last told; None while it holds by its own means."""

    def tick(self) -> Tick:
        """One control period; never waits for the server."""
        self.number += 1
        state = self.watchdog.check(self.broker.clock())
        if state is State.STOPPED:
            self._hold()
            self.broker.clear()
            return Tick(self.number, state, note=self.watchdog.reason)
        note, answer = self._arrived()
        if self.broker.due:
            self.broker.observe(self.robot.observe())
        action = self.broker.next()
        if action is None:
            return self._wait(note or self.broker.error, answer)
        self.robot.command(action)
        self._last = action
        return Tick(self.number, State.RUNNING, action, note, answer)

    def _arrived(self) -> tuple[str, Mapping[str, Any] | None]:
        """Check a chunk that has arrived, before any of it is executed."""
        chunk = self.broker.take()
        if chunk is None:
            return "", None
        verdict = self.guard(chunk.actions, self.robot.state(), self._last)
        if verdict.actions is None:
            self.watchdog.stop(str(verdict.refusal))
            self.broker.clear()
            return str(verdict.refusal), chunk.answer
        # Steps that would only hold are not fed to the watchdog as progress: a policy that is refused again and again
        # must end in a stop, not in an endless hold.
        self.broker.replace(verdict.actions[: verdict.num_safe])
        if verdict.num_safe:
            self.watchdog.fed(self.broker.clock(), self.broker.seconds_left)
        return str(verdict.refusal or ""), chunk.answer

    def _wait(self, note: str, answer: Mapping[str, Any] | None) -> Tick:
        """Nothing new to do: repeat the last command for the little while that is normal, then hold."""
        state = self.watchdog.check(self.broker.clock())
        if state is State.RUNNING and self._last is not None:
            self.robot.command(self._last)
            return Tick(self.number, state, self._last, note, answer)
        self._hold()
        return Tick(self.number, state, note=note, answer=answer)

    def _hold(self) -> None:
        self.robot.hold()
        self._last = None


def run_robot(
    loop: ControlLoop,
    *,
    seconds: float,
    shown: Callable[[Tick], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> State:
    """Tick at the control rate for so long, or until stopped; the robot holds at the end, whatever ended it."""
    period, clock = 1 / loop.broker.config.rate_hz, loop.broker.clock
    begin = due = clock()
    state = State.RUNNING
    try:
        while clock() - begin < seconds and state is not State.STOPPED:
            done = loop.tick()
            state = done.state
            if shown is not None:
                shown(done)
            due = max(
                due + period, clock() - period
            )  # a late tick is not made up for by a burst of quick ones
            sleep(max(0.0, due - clock()))
    finally:
        loop.robot.hold()
        loop.broker.close()
    return state

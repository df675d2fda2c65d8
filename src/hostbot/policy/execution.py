"""From chunks to one action a control step: the whole chunk as in the paper, a part of it, or with no pause between.

Legend: A actions a chunk, a action width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from jaxtyping import Float32

from hostbot.types import ActionChunk, BadInput, Observation

Decide = Callable[[Observation], ActionChunk]


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """How much of a chunk is executed, and when the next one is thought of."""

    execute: int | None = None
    """Steps of each chunk; None is all of them, as in the paper."""
    lead: int = 0
    """The next cycle begins so many steps before these are over, while the arm moves; 0 lets it wait."""
    stir: float = 0.0
    """Metres by which a hand or its jaws must have been moved before the robot looks again, as far as a chunk goes: a
    robot that looks again while it waits as the demonstrator did sees what it saw, and may wait for ever."""

    def __post_init__(self) -> None:
        if not (0 <= self.stir < math.inf) or (self.stir and self.lead):
            raise BadInput(f"stir is 0 or more metres, and with it there is no lead; got {self}")
        if self.stir and self.execute is None:
            raise BadInput(
                "all steps of a chunk are executed: stir means something only with fewer (execute)"
            )
        if self.lead < 0 or (self.execute is not None and not self.lead < self.execute):
            raise BadInput(f"execute at least one step before the next cycle begins, got {self}")

    def steps(self, chunk: int) -> int:
        """Steps executed of a chunk that has so many."""
        execute = chunk if self.execute is None else self.execute
        if not self.lead < execute <= chunk:
            raise BadInput(
                f"a chunk has {chunk} steps; {execute} with a lead of {self.lead} cannot be executed"
            )
        return execute

    def steps_of(self, chunk: ActionChunk, state: Float32[np.ndarray, " a"]) -> int:
        """Steps executed of a chunk decided in a state: more than asked for where those would stir nothing.

        Hands are compared with where they are; jaws with what they are told first, since what holds something is told
        to close all the while.
        """
        execute, actions = self.steps(len(chunk)), np.asarray(chunk.actions)
        if not self.stir:
            return execute
        kinds = {part.kind for part in chunk.embodiment.parts}
        if "position" not in kinds or "joint" in kinds:
            raise BadInput(f"the way of {chunk.embodiment.name!r} is not told in metres: leave stir out")
        moved = np.zeros(len(actions))
        for part, place in chunk.embodiment.slices():
            if part.kind in ("position", "gripper"):
                begin = state[place] if part.kind == "position" else actions[0, place]
                moved = np.maximum(moved, np.linalg.norm(actions[:, place] - begin, axis=1))
        stirred = np.flatnonzero(moved[execute - 1 :] >= self.stir)
        return execute + int(stirred[0]) if len(stirred) else len(actions)


class Pilot:
    """Gives one action a control step for one robot; ``decide`` is only ever called from one thread.

    With a lead, the new chunk is entered as many steps in as have passed since the observation it was decided on. If it
    is not there in time the old chunk goes on, and when that is over its last action is held (``num_waits``
    counts such steps).
    """

    def __init__(self, decide: Decide, config: ExecutionConfig | None = None) -> None:
        self._decide, self._config = decide, config or ExecutionConfig()
        self._thread = ThreadPoolExecutor(1, "hostbot-policy")
        self._next: Future[ActionChunk] | None = None
        self._since = 0
        self._from: Float32[np.ndarray, " a"] = np.zeros(0, np.float32)
        """The state that was last looked at."""
        self.chunk: ActionChunk | None = None
        self._index = 0
        self.num_waits = 0

    def act(self, observe: Callable[[], Observation]) -> Float32[np.ndarray, " a"]:
        """The action for this control step; ``observe`` is called only when a cycle begins."""
        if self.chunk is None:
            self._enter(self._ask(observe).result(), 0)
        execute, lead = self._config.steps_of(self._present, self._from), self._config.lead
        if self._next is not None and self._index >= execute and self._next.done():
            self._enter(self._next.result(), self._since)
        if self._next is None and self._index >= execute - lead:
            self._next, self._since = self._ask(observe), 0
            if lead == 0:
                self._enter(self._next.result(), 0)
        chunk = self._present
        if self._index >= len(chunk):
            self.num_waits += 1
        action = chunk.actions[min(self._index, len(chunk) - 1)]
        self._index += 1
        self._since += 1
        return np.asarray(action)

    def _ask(self, observe: Callable[[], Observation]) -> Future[ActionChunk]:
        seen = observe()
        self._from = np.asarray(seen.state)
        return self._thread.submit(self._decide, seen)

    @property
    def _present(self) -> ActionChunk:
        assert self.chunk is not None
        return self.chunk

    def _enter(self, chunk: ActionChunk, consumed: int) -> None:
        # An answer later than a whole chunk is entered at its end: it holds there and asks anew at once.
        self.chunk, self._index, self._next = chunk, min(consumed, len(chunk)), None

    def close(self) -> None:
        """Wait for the cycle under way and let the thread go."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

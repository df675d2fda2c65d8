"""Actions one at a time from chunks that come many at a time, with the next chunk on its way before the last is spent.

The broker never blocks the control loop: a thread of its own asks the server. Answers are numbered; one that is older
than what is being executed, or older than a chunk's length, is dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray
Question = tuple[int, float, Mapping[str, Any]]
Infer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class BrokerConfig:
    """How chunks are executed."""

    rate_hz: float
    execute: int | None = None
    """Steps of a chunk to execute before the next takes over; None is all of them, as in the paper."""
    ahead: int = 0
    """Ask for the next chunk this many steps before it is needed, so that the arm does not wait; its first steps, which
    the old chunk covers meanwhile, are skipped. 0 is the paper's way: execute, then look, then decide."""
    max_age_s: float | None = None
    """Answers to what was seen longer ago are dropped; None is the length of the chunk."""
    retry_s: float = 0.2
    """Pause after a server that was lost or refused."""

    def __post_init__(self) -> None:
        if not self.rate_hz > 0 or (self.execute is not None and self.execute < 1) or self.ahead < 0:
            raise ValueError(
                f"rate above 0, execute at least 1, ahead at least 0: got {self.rate_hz}, {self.execute}, {self.ahead}"
            )


class Chunk(NamedTuple):
    """A chunk as it arrived."""

    number: int
    """Of the observation it answers; they only grow."""
    seen_at: float
    """When that observation was taken."""
    actions: Array
    answer: Mapping[str, Any]


class ChunkBroker:
    """Ask with :meth:`observe`, take one action a tick with :meth:`next`."""

    def __init__(
        self,
        infer: Infer,
        config: BrokerConfig,
        clock: Callable[[], float] = time.monotonic,
        threaded: bool = True,
    ) -> None:
        """Without a thread, whoever owns the broker takes each :meth:`question` and delivers its answer."""
        self.config, self.clock = config, clock
        self.error = ""
        """Why there was no answer last time; empty once there is one."""
        self.num_dropped = 0
        """Answers that came too late or out of order."""
        self._infer = infer
        self._wanted = threading.Condition()
        self._question: Question | None = None
        self._asked, self._asking, self._closed = 0, False, False
        self._chunk: Chunk | None = None
        self._fresh: Chunk | None = None
        self._place = 0
        if threaded:
            threading.Thread(target=self._work, name="hostbot-broker", daemon=True).start()

    # The control loop's side: never waits ------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether it is time to look and ask again."""
        with self._wanted:
            return not self._asking and self._fresh is None and self._left() <= self.config.ahead

    def observe(self, observation: Mapping[str, Any]) -> int:
        """Ask about what is seen now; the question's number."""
        with self._wanted:
            self._asked += 1
            self._question = (self._asked, self.clock(), observation)
            self._asking = True
            self._wanted.notify()
            return self._asked

    def take(self) -> Chunk | None:
        """A chunk that arrived and is now in force; None if there is none. Its actions are still to be checked.

        Only what is to be executed is left of it: steps that the old chunk covered meanwhile are gone.
        """
        with self._wanted:
            if self._fresh is None:
                return None
            chunk, self._fresh = self._fresh, None
            passed = round((self.clock() - chunk.seen_at) * self.config.rate_hz) if self.config.ahead else 0
            actions = chunk.actions[max(0, passed) : self.config.execute]
            if len(actions) == 0:
                self.num_dropped += 1
                return None
            self._chunk, self._place = chunk._replace(actions=actions), 0
            return self._chunk

    def replace(self, actions: Array) -> None:
        """Put checked actions in the place of those that arrived."""
        with self._wanted:
            if self._chunk is not None:
                self._chunk = self._chunk._replace(actions=np.asarray(actions, np.float32))

    def next(self) -> Array | None:
        """The action for this tick; None when the chunk is spent."""
        with self._wanted:
            if self._left() <= 0 or self._chunk is None:
                return None
            action = self._chunk.actions[self._place]
            self._place += 1
            return np.asarray(action)

    @property
    def seconds_left(self) -> float:
        """How long the actions in hand last."""
        with self._wanted:
            return max(0, self._left()) / self.config.rate_hz

    def _left(self) -> int:
        return 0 if self._chunk is None else len(self._chunk.actions) - self._place

    def clear(self) -> None:
        """Forget what is in hand and what is on its way: after a stop, nothing old may move the robot."""
        with self._wanted:
            self._chunk = self._fresh = self._question = None
            self._place, self._asking = 0, False
            self._asked += 1  # whatever is still on its way answers an older question

    def close(self) -> None:
        """End the thread; one that waits for a server ends when that does."""
        with self._wanted:
            self._closed = True
            self._wanted.notify()

    def question(self) -> Question | None:
        """What was asked and nobody has taken yet: number, time and observation."""
        with self._wanted:
            question, self._question = self._question, None
            return question

    # The thread's side --------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._wanted:
                while self._question is None and not self._closed:
                    self._wanted.wait()
                if self._closed:
                    return
                question, self._question = self._question, None
            assert question is not None
            self.deliver(question, self._answer(question))

    def _answer(self, question: Question) -> Mapping[str, Any] | None:
        number, _, observation = question
        host = observation.get("host")
        numbered = {**observation, "host": {**(host if isinstance(host, Mapping) else {}), "seq": number}}
        try:
            return self._infer(numbered)
        except Exception as reason:  # the thread must live to say what went wrong, whatever it was
            self.error = f"{type(reason).__name__}: {reason}"
            time.sleep(self.config.retry_s)
            return None

    def deliver(self, question: Question, answer: Mapping[str, Any] | None) -> bool:
        """Take an answer in, unless it is late, out of order or answers another question; whether it was taken."""
        number, seen_at, _ = question
        with self._wanted:
            current = number == self._asked and self._asking
            if current:
                self._asking = False
            if answer is None:
                return False
            actions = answer.get("actions")
            host = answer.get("host")
            echoed = host.get("seq", number) if isinstance(host, Mapping) else number
            length = len(actions) if isinstance(actions, np.ndarray) and actions.ndim == 2 else 0
            oldest = self.config.max_age_s or length / self.config.rate_hz
            if not current or echoed != number or (length and self.clock() - seen_at > oldest):
                self.num_dropped += 1
                return False
            if not length:
                self.error = "the server's answer has no actions"
                return False
            assert isinstance(actions, np.ndarray)
            self._fresh, self.error = Chunk(number, seen_at, actions, answer), ""
            return True

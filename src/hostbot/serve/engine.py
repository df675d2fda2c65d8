"""One thread does all the thinking; robots that ask at the same time think together.

The event loop never computes, so that health checks, pings and other robots are answered while a pass runs.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hostbot.serve.contract import Policy
from hostbot.types import ActionChunk, BadInput, Observation

T = TypeVar("T")
log = logging.getLogger(__name__)


class Late(BadInput):
    """The answer would come after its deadline."""


class PolicyFailed(RuntimeError):
    """The policy itself broke down: nothing of its doing may be sent."""


@dataclass(eq=False)
class _Step:
    session: Any
    observation: Observation
    deadline: float
    queued: float
    done: Callable[[Any, BaseException | None], None]
    abandoned: Callable[[], bool]


@dataclass(eq=False)
class _Call:
    work: Callable[[], Any]
    done: Callable[[Any, BaseException | None], None]
    abandoned: Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class Thought:
    """A chunk, and how it came about."""

    chunk: ActionChunk
    queue_ms: float
    infer_ms: float
    batch: int


class Engine:
    """The inference thread: steps of several robots share a pass, other work runs between passes, a piece at a time."""

    def __init__(self, policy: Policy, max_batch: int, gather_ms: float) -> None:
        self.policy, self.max_batch, self.gather_s = policy, max_batch, gather_ms / 1e3
        self.num_robots = 0
        """Robots at work: a pass that has all of them waits for nobody."""
        self.num_passes = self.num_steps = 0
        self._served: list[Any] = []
        """Sessions of the last pass, whose robots now move."""
        self._warned = False
        self._steps: collections.deque[_Step] = collections.deque()
        self._calls: collections.deque[_Call] = collections.deque()
        self._news, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="hostbot-inference", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether there is still somebody to ask."""
        return self._thread.is_alive() and not self._closed

    async def step(self, session: Any, observation: Observation, deadline: float = float("inf")) -> Thought:
        """One cycle of a session; ``deadline`` is on the monotonic clock."""
        future, done = _promise()
        step = _Step(session, observation, deadline, time.monotonic(), done, future.cancelled)
        self._put(self._steps, step)
        thought: Thought = await future
        return thought

    async def run(self, work: Callable[[], T]) -> T:
        """Any other work with the policy: acquiring, starting."""
        future, done = _promise()
        self._put(self._calls, _Call(work, done, future.cancelled))
        result: T = await future
        return result

    def _put(self, queue: collections.deque[Any], item: Any) -> None:
        with self._news:
            if not self.alive:
                raise PolicyFailed("the server is shutting down")
            queue.append(item)
            self._news.notify()

    def close(self) -> None:
        """End after the pass that runs; who still waits is told."""
        with self._news:
            self._closed = True
            waiting: list[_Step | _Call] = [*self._steps, *self._calls]
            self._steps.clear()
            self._calls.clear()
            self._news.notify()
        for item in waiting:
            item.done(None, PolicyFailed("the server is shutting down"))
        self._thread.join(timeout=2.0)

    # The thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._news:
                while not (self._steps or self._calls or self._closed):
                    self._news.wait()
                if self._closed:
                    return
                steps = self._gather()
                call = self._calls.popleft() if self._calls else None
            if steps:
                self._think(steps)
            if call is not None and not call.abandoned():
                self._settle(call, call.work)
            self._prepare()

    def _prepare(self) -> None:
        """While all robots move, and nobody waits, do what their next step can be spared.

        Where another robot is about to ask, what is prepared for these would only be in its way.
        """
        sessions, self._served = self._served, []
        prepare = getattr(self.policy, "prepare", None)
        if prepare is None or not sessions or len(sessions) < self.num_robots:
            return
        if self._steps or self._calls or self._closed:
            return
        try:
            prepare(sessions)
        except Exception as reason:  # the next step does the same again, and whoever asks for it is told
            if not self._warned:
                log.warning("preparing the next step failed; this is told once", exc_info=reason)
            self._warned = True

    def _gather(self) -> list[_Step]:
        """Everyone who asks within the gathering time; called with the lock, which waiting gives back."""
        if not self._steps:
            return []
        until = time.monotonic() + self.gather_s
        while len(self._steps) < min(self.max_batch, self.num_robots) and not self._closed:
            left = until - time.monotonic()
            if left <= 0 or not self._news.wait(left):
                break
        return [self._steps.popleft() for _ in range(min(self.max_batch, len(self._steps)))]

    def _think(self, steps: list[_Step]) -> None:
        now, ready = time.monotonic(), []
        for step in steps:
            if step.abandoned():
                continue
            if now > step.deadline:
                late = 1e3 * (now - step.deadline)
                step.done(None, Late(f"the deadline passed {late:.0f} ms before the policy was free"))
            else:
                ready.append(step)
        if ready:
            self._pass(ready)

    def _pass(self, steps: list[_Step]) -> None:
        begin = time.monotonic()
        try:
            chunks = list(self.policy.step_batch([s.session for s in steps], [s.observation for s in steps]))
            if len(chunks) != len(steps):
                raise RuntimeError(f"{len(steps)} robots asked and {len(chunks)} chunks came back")
        except BadInput as mistake:
            if len(steps) == 1:
                steps[0].done(None, mistake)
                return
            for step in steps:
                self._pass([step])
            return
        except Exception as reason:
            for step in steps:
                step.done(
                    None,
                    PolicyFailed(f"{type(reason).__name__}: {reason}").with_traceback(reason.__traceback__),
                )
            return
        spent = 1e3 * (time.monotonic() - begin)
        self._served = [step.session for step in steps]
        self.num_passes, self.num_steps = self.num_passes + 1, self.num_steps + len(steps)
        for step, chunk in zip(steps, chunks, strict=True):
            queued = 1e3 * (begin - step.queued)
            step.done(Thought(chunk=chunk, queue_ms=queued, infer_ms=spent, batch=len(steps)), None)

    @staticmethod
    def _settle(call: _Call, work: Callable[[], Any]) -> None:
        try:
            result = work()
        except BadInput as mistake:
            call.done(None, mistake)
        except Exception as reason:
            call.done(
                None, PolicyFailed(f"{type(reason).__name__}: {reason}").with_traceback(reason.__traceback__)
            )
        else:
            call.done(result, None)


def _promise() -> tuple[asyncio.Future[Any], Callable[[Any, BaseException | None], None]]:
    """A future of this event loop, and what another thread keeps it with."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def keep(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def done(result: Any, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile: nobody waits any more
            loop.call_soon_threadsafe(keep, result, error)

    return future, done

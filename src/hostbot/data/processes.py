"""Processes that share the work of making samples; Ctrl-C ends all of them at once, and only this one has a say."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, get_all_start_methods, get_context, resource_tracker
from multiprocessing.connection import wait
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_PATIENCE_S = 5.0
"""How long processes may take to end what was interrupted."""
_NEEDED = ["hostbot.data.fill", "hostbot.data.plan", "hostbot.train.labels"]


def _context() -> Any:
    """Processes are made from one that has imported everything: torch takes seconds, and would take them in each."""
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(_NEEDED)
    return context


def get_ready(workers: int) -> None:
    """Begin to import what the processes need, while something else is done."""
    if not workers or _context().get_start_method() != "forkserver":
        return
    resource_tracker.ensure_running()  # which would lift the mask
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)


class Pool(ProcessPoolExecutor):
    """Processes that each begin with ``start(*given)`` and compute in one thread."""

    def __init__(self, workers: int, start: Callable[..., None], *given: object) -> None:
        get_ready(workers)
        super().__init__(workers, _context(), _begin, (start, given))

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Have something done by the next process that is free; this is where processes are started."""
        with _undisturbed():
            return super().submit(_work, fn, *args, **kwargs)

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> bool | None:
        """Wait for what is being done; after an error or Ctrl-C not for long, and who does not come home is ended."""
        if kind is not None:
            left = {process.sentinel: process for process in list((self._processes or {}).values())}
            self.shutdown(wait=False, cancel_futures=True)
            deadline = time.monotonic() + _PATIENCE_S
            while left and (now := time.monotonic()) < deadline:
                for ended in wait(list(left), deadline - now):
                    del left[ended]  # type: ignore[arg-type]
            for process in left.values():
                process.kill()
        return super().__exit__(kind, *rest)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits: a process whose start was interrupted would complain that nobody is there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        signal.raise_signal(signal.SIGINT)


@dataclass
class _Process:
    """What a process is at."""

    busy: bool = False
    stopped: bool = False


_THIS = _Process()


def _begin(start: Callable[..., None], given: tuple[object, ...]) -> None:
    import torch

    signal.signal(signal.SIGINT, _stop)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    torch.set_num_threads(1)
    start(*given)


def _stop(number: int, frame: object) -> None:
    """Ctrl-C interrupts what is being done; a process that waits is sent home by the one that made it."""
    _THIS.stopped = True
    if _THIS.busy:
        raise KeyboardInterrupt


def _work(fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    _THIS.busy = True
    try:
        if _THIS.stopped:
            raise KeyboardInterrupt
        return fn(*args, **kwargs)
    finally:
        _THIS.busy = False

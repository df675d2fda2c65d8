"""hostbot's own commands one after the other, with their logs and seconds; what is done is not done again."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from hostbot.types import BadInput

_TAIL = 1500
_PATIENCE = 10.0
"""Seconds in which a group of processes may end by itself."""


class Terminated(KeyboardInterrupt):
    """This process was told to end, and nobody else was."""


@contextmanager
def told_to_end() -> Iterator[None]:
    """SIGTERM and a closed terminal end what was begun, too, instead of leaving it alone."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated

    names = [n for n in ("SIGTERM", "SIGHUP") if hasattr(signal, n)]
    before = {getattr(signal, name): signal.signal(getattr(signal, name), end) for name in names}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_all(leader: subprocess.Popen[bytes]) -> None:
    """End a group of processes as Ctrl-C would, by which recordings keep what they have; then less kindly."""
    # Behind a script's & nobody hears SIGINT, nor do those that were started from there.
    deaf = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    ways = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    for number in ways[1:] if deaf else ways:
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, number)
        with suppress(subprocess.TimeoutExpired):
            leader.wait(timeout=_PATIENCE)
            break
    with suppress(ProcessLookupError):  # whoever led has waited for those that had something to keep
        os.killpg(leader.pid, signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Started:
    """A command that runs."""

    name: str
    words: list[str]
    log: Path
    since: float
    process: subprocess.Popen[bytes]
    behind: bool = False
    """It yields to the others, and leads a group of processes of its own."""


@dataclass
class Steps:
    """Commands of one piece of work, in a folder of its own."""

    folder: Path
    minutes: float
    """Of the whole piece."""
    begun: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._done = self.folder / "steps.json"
        self.commands: dict[str, dict[str, Any]] = {}
        self._beside: dict[str, Started] = {}
        if self._done.exists():
            self.commands = json.loads(self._done.read_text())

    @property
    def seconds(self) -> float:
        """Since this process took the piece up."""
        return time.monotonic() - self.begun

    def left(self, keep: float = 0.0) -> float:
        """Minutes that remain, less those to be kept; an error where there are none."""
        left = self.minutes - self.seconds / 60 - keep
        if left <= 0.05:
            raise BadInput(
                f"after {self.seconds / 60:.1f} minutes none of {self.minutes:g} is left to train; the same command "
                "goes on, and what is done is not done again"
            )
        return round(left, 3)

    def do(self, name: str, *words: object) -> None:
        """One command; its output goes to a file, whose end is shown if it fails."""
        if name not in self.commands:
            self.finish(self.start(name, *words))

    def begin(self, name: str, *words: object) -> None:
        """A command that runs beside the next ones, until :meth:`end`; one that runs already is left alone."""
        if name not in self.commands and name not in self._beside:
            self._beside[name] = self.start(name, *words)

    def end(self, name: str) -> None:
        """Wait for a command that was begun."""
        if name in self._beside:
            self.finish(self._beside.pop(name))

    def aside(self, name: str, *words: object) -> None:
        """A command that makes use of what the others leave of the machine, until :meth:`drop`; nobody needs it."""
        self._beside[name] = self.start(name, *words, behind=True)

    def drop(self) -> None:
        """Stop what still runs beside: nobody will wait for it."""
        for one in self._beside.values():
            if one.behind:
                _stop_all(one.process)
            else:
                one.process.terminate()
                one.process.wait()
        self._beside.clear()

    def start(self, name: str, *words: object, behind: bool = False) -> Started:
        """Begin a command, for those that run side by side; one that is behind yields to the others."""
        listed = [str(word) for word in words]
        print(f"[{self.seconds:5.0f} s] {name}: hostbot {shlex.join(listed)}", flush=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [
                    *(["nice"] if behind and shutil.which("nice") else []),
                    sys.executable,
                    "-m",
                    "hostbot",
                    *listed,
                ],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=behind,
            )
        return Started(name=name, words=listed, log=log, since=self.seconds, process=process, behind=behind)

    def finish(self, one: Started) -> None:
        """Wait for a command, and note that it is done."""
        try:
            code = one.process.wait()
        except Terminated:
            one.process.terminate()
            one.process.wait()
            raise
        except KeyboardInterrupt:
            one.process.wait()  # it was told, too, and saves what it has
            raise
        taken = self.seconds - one.since
        if code != 0:
            tail = one.log.read_text(errors="replace")[-_TAIL:]
            raise BadInput(f"{one.name} failed after {taken:.0f} s ({one.log}):\n{tail}")
        self.commands[one.name] = {"hostbot": shlex.join(one.words), "seconds": round(taken, 1)}
        aside = self._done.with_suffix(".tmp")
        aside.write_text(json.dumps(self.commands, indent=1) + "\n")
        os.replace(aside, self._done)

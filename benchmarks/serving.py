"""A server as a process of its own, and what is measured of it from outside: memory and how quickly health answers."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

VIEWS = ("left_wrist", "right_wrist", "third_person")


class Rehearsing:
    """``hostbot serve --rehearse``, watched once in a while."""

    def __init__(self, *flags: str, every_s: float = 0.05) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hostbot", "serve", "--rehearse", "--port", "0", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        said = [self.process.stdout.readline() for _ in range(2)]
        found = re.search(r"ws://([^:]+):(\d+)", said[1])
        assert found, "the server did not start"
        self.url, self.port = found.group(), int(found[2])
        self.rss_mb: list[tuple[float, float]] = []
        # In a process of its own: among the clients' threads it would measure how long Python makes it wait.
        self._prober = subprocess.Popen(
            [sys.executable, __file__, str(self.port), str(every_s), str(self.process.pid)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.probed: list[list[float]] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._watch), threading.Thread(target=self._listen)]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        assert self._prober.stdout is not None
        for line in self._prober.stdout:
            if line.endswith("\n"):
                self.probed.append([float(word) for word in line.split()])

    def _watch(self) -> None:
        begin = time.monotonic()
        while not self._end.wait(0.5):
            self.rss_mb.append((time.monotonic() - begin, self.rss()))

    def rss(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def close(self) -> None:
        self._end.set()
        self._prober.terminate()
        for thread in self._threads:
            thread.join()
        assert self.process.poll() is None, "the server ended on its own"
        self.process.terminate()
        assert self.process.wait(20) == 0

    def memory(self) -> dict[str, float]:
        """After a tenth of the time, when every buffer has been used once, and at the end (medians of a tenth each)."""
        times, sizes = np.array(self.rss_mb).T
        part = times / times[-1]
        early = float(np.median(sizes[(part >= 0.1) & (part <= 0.2)]))
        late = float(np.median(sizes[part >= 0.9]))
        return {
            "early_mb": round(early, 1), "late_mb": round(late, 1), "largest_mb": round(float(sizes.max()), 1),
            "growth_percent": round(100 * (late / early - 1), 2),
        }  # fmt: skip

    def health(self) -> dict[str, float]:
        found, lag, queued = np.array(self.probed).T
        slowest = int(found.argmax())
        return {
            "asked": len(found), "p50_ms": round(float(np.median(found)), 2),
            "p99_ms": round(float(np.quantile(found, 0.99)), 2), "largest_ms": round(float(found.max()), 2),
            "over_100_ms": int((found > 100).sum()),
            "slowest_waited_for_a_core_ms": round(float(queued[slowest]), 2),
            "largest_ms_besides_waiting_for_a_core": round(float((found - queued).max()), 2),
            "a_sleep_overshoots_by_at_most_ms": round(float(lag.max()), 2), "load_average": os.getloadavg()[2],
        }  # fmt: skip


def observation(number: float, size: int, rng: np.random.Generator) -> dict[str, object]:
    picture = rng.integers(0, 255, (size, size, 3), np.uint8)
    state = np.full(20, number, np.float32)
    return {"state": state, "images": dict.fromkeys(VIEWS, picture), "prompt": f"task {int(number) % 7}"}


def waited(pid: int) -> float:
    """Milliseconds that the server's event loop was ready to run and no core was free, since it began."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e6


def probe(port: int, every_s: float, pid: int) -> None:
    """Ask for health for ever; print in ms each answer's time, how late a sleep is, how long the server had no core."""
    while True:
        mark = time.perf_counter()
        time.sleep(every_s)
        lag = time.perf_counter() - mark - every_s  # what the machine alone makes anybody wait
        before, mark = waited(pid), time.perf_counter()
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        line.request("GET", "/healthz")
        assert line.getresponse().status == 200
        spent = 1e3 * (time.perf_counter() - mark)
        line.close()
        print(spent, 1e3 * lag, waited(pid) - before, flush=True)


if __name__ == "__main__":
    probe(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))

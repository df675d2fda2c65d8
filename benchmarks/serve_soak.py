"""Eight robots at once on one server with a policy that costs nothing, among clients that misbehave.

Each robot's state names it and its message, and the answer must name both: cross-talk would be seen at once. Meanwhile
clients connect and vanish, send half a message, or never read.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import threading
import time
from pathlib import Path

import numpy as np
import torch
from measure import commit, hardware, save
from serving import Rehearsing, observation

from hostbot_client import PolicyClient, ServerLost, pack

HELLO = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Robot(threading.Thread):
    def __init__(self, url: str, number: int, rate_hz: float, size: int, end: threading.Event) -> None:
        super().__init__()
        self.url, self.number, self.rate_hz, self.size, self.end = url, number, rate_hz, size, end
        self.cycles, self.wrong, self.lost, self.times = 0, 0, 0, []

    def run(self) -> None:
        rng = np.random.default_rng(self.number)
        with PolicyClient(self.url) as client:
            while not self.end.wait(max(0.0, 1 / self.rate_hz - (self.times[-1] if self.times else 0) / 1e3)):
                name = float(self.number * 100_000 + self.cycles)
                mark = time.perf_counter()
                try:
                    answer = client.infer(observation(name, self.size, rng))
                except ServerLost:
                    self.lost += 1
                    continue
                self.times.append(1e3 * (time.perf_counter() - mark))
                self.cycles += 1
                self.wrong += not (answer["actions"] == name).all()


def misbehave(port: int, end: threading.Event, counts: dict[str, int]) -> None:
    """Vanish, send halves, never read: one after the other for as long as it lasts."""
    rng = np.random.default_rng(7)
    frame = pack(observation(1.0, 96, rng))
    head = b"\x82\xff" + len(frame).to_bytes(8, "big") + bytes(4)
    while not end.wait(0.5):
        kind = str(rng.choice(["vanish", "half", "deaf", "scan"]))
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=3) as line:
            line.sendall(b"GET /nothing HTTP/1.0\r\n\r\n" if kind == "scan" else HELLO)
            if kind == "half":
                line.sendall(head + frame[: len(frame) // 2])
            if kind == "deaf":
                for _ in range(20):
                    line.sendall(head + frame)
            end.wait(2.0 if kind in ("half", "deaf") else 0.0)
        counts[kind] = counts.get(kind, 0) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--robots", type=int, default=8)
    parser.add_argument("--rate", type=float, default=8.0, help="chunks a second and robot")
    parser.add_argument("--size", type=int, default=96)
    arguments = parser.parse_args()
    server, end, counts = Rehearsing(), threading.Event(), {}
    robots = [Robot(server.url, n, arguments.rate, arguments.size, end) for n in range(arguments.robots)]
    villain = threading.Thread(target=misbehave, args=(server.port, end, counts))
    for thread in (*robots, villain):
        thread.start()
    time.sleep(60 * arguments.minutes)
    end.set()
    for thread in (*robots, villain):
        thread.join()
    server.close()
    times = np.concatenate([robot.times for robot in robots])
    result = {
        "hardware": hardware(torch.device("cpu")), "commit": commit(), "minutes": arguments.minutes,
        "robots": arguments.robots, "size": arguments.size,
        "cycles": sum(r.cycles for r in robots), "answers_to_another_robot_or_message": sum(r.wrong for r in robots),
        "connections_lost": sum(r.lost for r in robots), "misbehaving_clients": counts,
        "round_trip_ms": {"p50": round(float(np.median(times)), 2), "p99": round(float(np.quantile(times, 0.99)), 2)},
        "server_memory": server.memory(), "healthz": server.health(),
    }  # fmt: skip
    save(arguments.out, "serve_soak", result)


if __name__ == "__main__":
    main()

"""A million frames that are wrong in every way there is: none may crash the server or be believed.

Frames are real observations with bytes changed, cut, repeated or reordered, msgpack of random shape, arrays that claim
a dangerous dtype or shape, and operations with nonsense in them. Every frame must be answered: by a sentence, or by
actions if it happened to remain an observation; one that claims a forbidden dtype always by a sentence.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from pathlib import Path

import msgpack
import numpy as np
import torch
from measure import commit, hardware, save
from serving import Rehearsing, observation
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from hostbot_client import pack, unpack

FORBIDDEN = [
    "|O",
    "O",
    "O8",
    "|V8",
    "<c8",
    "<U4",
    "|S3",
    "<M8[s]",
    "<m8[s]",
    "f4,f4",
    "(2,)f4",
    "i4,O",
    "object",
    "V",
    "x",
]
OPS = ["step", "acquire", "start", "reset", "query", "skills", "resume", "upload", "", "_step", "handle"]


class Mutator:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.good = pack(observation(1.0, 8, self.rng))

    def frame(self) -> tuple[bytes, bool]:
        """A frame, and whether it must be refused."""
        makers = [
            self._flip,
            self._flip,
            self._cut,
            self._noise,
            self._nested,
            self._forbidden,
            self._op,
            self._whole,
        ]
        return makers[self.rng.integers(len(makers))]()

    def _flip(self) -> tuple[bytes, bool]:
        data = bytearray(self.good)
        for place in self.rng.integers(0, len(data), int(self.rng.integers(1, 12))):
            data[place] = self.rng.integers(256)
        return bytes(data), False

    def _cut(self) -> tuple[bytes, bool]:
        a, b = sorted(self.rng.integers(0, len(self.good), 2))
        joined = self.good[:a] + self.good[b:] if self.rng.random() < 0.5 else self.good[:b] + self.good[a:]
        return joined, False

    def _noise(self) -> tuple[bytes, bool]:
        return self.rng.bytes(int(self.rng.integers(1, 300))), False

    def _nested(self) -> tuple[bytes, bool]:
        return pack(self._value(4)), False

    def _value(self, depth: int) -> object:
        kind = self.rng.integers(7 if depth else 4)
        if kind >= 4:
            pairs = range(int(self.rng.integers(0, 5)))
            return (
                [self._value(depth - 1) for _ in pairs]
                if kind == 4
                else {self._key(): self._value(depth - 1) for _ in pairs}
            )
        return [None, int(self.rng.integers(-(2**40), 2**40)), float(self.rng.normal()), self.rng.bytes(6)][
            kind
        ]

    def _key(self) -> object:
        return self.rng.choice(
            ["state", "images", "prompt", "host", "op", "reset", "third_person", "__ndarray__", "data"]
        )

    def _forbidden(self) -> tuple[bytes, bool]:
        """An array whose dtype is a pointer, text, a date or a record, where a state or picture should be."""
        array = {
            b"__ndarray__": True, b"data": self.rng.bytes(160), b"dtype": str(self.rng.choice(FORBIDDEN)),
            b"shape": [int(n) for n in self.rng.integers(-2, 30, int(self.rng.integers(0, 4)))],
        }  # fmt: skip
        scalar = {
            b"__npgeneric__": True,
            b"data": self.rng.bytes(8),
            b"dtype": str(self.rng.choice(FORBIDDEN)),
        }
        inside = array if self.rng.random() < 0.8 else scalar
        message = {"state": inside, "images": {"third_person": inside}, "prompt": "x", "more": [inside]}
        return msgpack.packb(message), True

    def _op(self) -> tuple[bytes, bool]:
        fields = {
            str(k): self._value(1)
            for k in ("skill", "video", "data", "instruction", "session", "name", "suffix")
        }
        op = str(self.rng.choice(OPS)) if self.rng.random() < 0.8 else self._value(1)
        return pack({"host": {"op": op, **fields}}), False

    def _whole(self) -> tuple[bytes, bool]:
        return self.good, False


class Fuzzer(threading.Thread):
    def __init__(self, url: str, seed: int, count: int, burst: int = 16) -> None:
        super().__init__()
        self.url, self.count, self.burst, self.mutator = url, count, burst, Mutator(seed)
        self.refused = self.answered = self.believed = self.connections = self.tracebacks = 0
        self.failure = ""

    def run(self) -> None:
        try:
            while self.refused + self.answered < self.count:
                self.connections += 1
                with (
                    contextlib.suppress(ConnectionClosed),
                    connect(self.url, compression=None, max_size=None) as line,
                ):
                    line.recv(timeout=30)
                    while self.refused + self.answered < self.count:
                        self._burst(line)
        except Exception as reason:
            self.failure = repr(reason)

    def _burst(self, line) -> None:
        made = [self.mutator.frame() for _ in range(self.burst)]
        for data, _ in made:
            line.send(data)
        for _, forbidden in made:
            answer = line.recv(timeout=30)
            if isinstance(answer, str):
                self.refused += 1
                self.tracebacks += "Traceback" in answer
            else:
                self.answered += 1
                assert "host" in unpack(answer)
                self.believed += forbidden


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=4)
    arguments = parser.parse_args()
    server, begin = Rehearsing(), time.monotonic()
    fuzzers = [
        Fuzzer(server.url, n, arguments.frames // arguments.connections) for n in range(arguments.connections)
    ]
    for fuzzer in fuzzers:
        fuzzer.start()
    for fuzzer in fuzzers:
        fuzzer.join()
    spent = time.monotonic() - begin
    server.close()
    totals = {
        name: sum(getattr(f, name) for f in fuzzers)
        for name in ("refused", "answered", "believed", "tracebacks", "connections")
    }
    result = {
        "hardware": hardware(torch.device("cpu")), "commit": commit(), "seconds": round(spent, 1),
        "frames": totals["refused"] + totals["answered"], **totals,
        "failures": [f.failure for f in fuzzers if f.failure],
        "server_memory": server.memory(), "healthz": server.health(),
    }  # fmt: skip
    save(arguments.out, "serve_fuzz", result)


if __name__ == "__main__":
    main()

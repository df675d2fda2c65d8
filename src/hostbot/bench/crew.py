"""The processes that simulate, and the memory they share with the one that thinks.

Legend: S slots, V views, h w pixels.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

import numpy as np
from jaxtyping import UInt8

from hostbot.bench.films import Filmed
from hostbot.bench.worker import Seen, WorkerConfig, work
from hostbot.types import BadInput


class Crew:
    """Workers with pipes; orders go out at once and are done in turn, answers are taken as they come."""

    def __init__(self, num_workers: int, config: WorkerConfig) -> None:
        if num_workers < 1:
            raise BadInput(f"an evaluation needs at least one worker, got {num_workers}")
        context = multiprocessing.get_context("spawn")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        shape = (config.slots, len(config.env.views), *config.image_size, 3)
        self.pictures: list[UInt8[np.ndarray, "S V h w 3"]] = []
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for number in range(num_workers):
            memory = context.RawArray("B", int(np.prod(shape)))
            ours, theirs = context.Pipe()
            process = context.Process(
                target=work,
                args=(theirs, config, memory, shape[1]),
                daemon=True,
                name=f"hostbot-sim-{number}",
            )
            process.start()
            theirs.close()
            self.pictures.append(np.frombuffer(memory, np.uint8).reshape(shape))
            self._pipes.append(ours)
            self._processes.append(process)

    def __len__(self) -> int:
        return len(self._pipes)

    def order(self, worker: int, order: object) -> None:
        """Give a worker something to do after what it has to do already."""
        self._pipes[worker].send(order)

    def answers(self) -> Iterator[tuple[int, Seen | Filmed]]:
        """Wait until somebody has something to say, and give all that is there."""
        for pipe in wait(self._pipes):
            assert isinstance(pipe, Connection)
            worker = self._pipes.index(pipe)
            try:
                answer = pipe.recv()
            except EOFError:
                code = self._processes[worker].exitcode
                raise BadInput(
                    f"simulation process {worker} ended (code {code}); run the same command again to go on"
                ) from None
            if isinstance(answer, str):
                raise BadInput(f"simulation process {worker} failed; run the same command again\n{answer}")
            yield worker, answer

    def close(self) -> None:
        """Send everybody home; who is busy is stopped."""
        for process in self._processes:
            if process.is_alive():
                process.terminate()
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.join()
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

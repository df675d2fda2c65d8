"""One stage of the cascade as a unit of execution: eager on a CPU, a graph on CUDA, timed on both."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable

import torch


class Stage:
    """A function over static buffers that, on CUDA, becomes a graph after its first run."""

    def __init__(self, name: str, fn: Callable[[], None], graph: bool) -> None:
        self.name, self._fn, self._wanted = name, fn, graph
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run, capturing first if that is still to be done."""
        if self._graph is not None:
            self._graph.replay()
        elif self._wanted:
            self._capture()
        else:
            self._fn()

    def _capture(self) -> None:
        # Compilation, autotuning and lazy library handles must happen before, and outside, the capture.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._fn()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._fn()
        self._graph.replay()


def elapsed_ms(a: torch.cuda.Event | float, b: torch.cuda.Event | float) -> float:
    """Milliseconds between two marks."""
    if isinstance(a, float) or isinstance(b, float):
        assert isinstance(a, float) and isinstance(b, float)  # noqa: PT018
        return 1e3 * (b - a)
    b.synchronize()
    return float(a.elapsed_time(b))

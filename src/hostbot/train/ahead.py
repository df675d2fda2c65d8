"""The next batch, drawn while this one is learned from."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

B = TypeVar("B")


class Ahead(Generic[B]):
    """Draws the next micro-batch in a thread while this one is learned from; a batch is a function of its numbers."""

    def __init__(self, draw: Callable[[int, int], B], micros: range, device: torch.device) -> None:
        self._draw, self._micros = draw, micros
        ready = (lambda: torch.cuda.set_device(device)) if device.type == "cuda" else (lambda: None)
        self._pool = ThreadPoolExecutor(1, "batches", ready)
        self._coming: tuple[tuple[int, int], Future[B]] | None = None

    def get(self, step: int, micro: int) -> B:
        """The batch of this number; the one after it is begun."""
        key = (step, micro)
        if self._coming is None or self._coming[0] != key:
            self._coming = key, self._pool.submit(self._draw, *key)
        coming = self._coming[1]
        place = self._micros.index(micro) + 1
        after = (step, self._micros[place]) if place < len(self._micros) else (step + 1, self._micros[0])
        self._coming = after, self._pool.submit(self._draw, *after)
        return coming.result()

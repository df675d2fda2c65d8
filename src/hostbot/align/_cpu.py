"""Smooth DTW of a batch on a CPU: compiled sweeps, the pairs shared out over torch's threads.

Legend: B pairs, T N padded lengths, n m the true ones, ``kept`` the derivatives a backward pass needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hostbot.align._compile import compiled
from hostbot.align._sweep import SPARE, sweep, unsweep

WORTH_A_THREAD = 60_000
"""Cells below which waking a thread costs more than it brings."""


@compiled
def _part(table: Any, n: int, m: int, reverse: bool) -> Any:
    """The valid part of a padded table, read from its other end where E is wanted."""
    part = table[:n, :m]
    return part[::-1, ::-1] if reverse else part[::1, ::1]


@compiled
def _paths(cost: Any, n: Any, m: Any, gamma: Any, last: Any, grad: Any) -> None:
    """R(n,m) and, unless ``grad`` is empty, its gradient at once: the derivatives never leave the cache."""
    kept = np.empty((2, cost.shape[1] * cost.shape[2] + SPARE), cost.dtype)
    up, left = kept[0], kept[1]
    one, nothing = cost.dtype.type(1), np.empty((0, 0), cost.dtype)[::1, ::1]
    for b in range(len(cost)):
        last[b] = sweep(_part(cost[b], n[b], m[b], False), gamma, nothing, up, left)
        if grad.size:
            unsweep(nothing, one, up, left, _part(grad[b], n[b], m[b], False))


@compiled
def _tables(cost: Any, n: Any, m: Any, gamma: Any, R: Any, E: Any, kept: Any) -> None:
    for b in range(len(cost)):
        k, h, w = kept[b], n[b], m[b]
        sweep(_part(cost[b], h, w, False), gamma, _part(R[b], h, w, False), k[0], k[1])
        sweep(_part(cost[b], h, w, True), gamma, _part(E[b], h, w, True), k[2], k[3])


@compiled
def _untables(R: Any, E: Any, n: Any, m: Any, kept: Any, grad: Any) -> None:
    other, zero = np.empty(grad.shape[1:], grad.dtype), grad.dtype.type(0)
    for b in range(len(grad)):
        k, h, w = kept[b], n[b], m[b]
        unsweep(_part(R[b], h, w, False), zero, k[0], k[1], _part(grad[b], h, w, False))
        unsweep(_part(E[b], h, w, True), zero, k[2], k[3], _part(other, h, w, True))
        for i in range(h):
            for j in range(w):
                grad[b, i, j] += other[i, j]


@compiled
def _scores(cost: Any, n: Any, m: Any, gamma: Any, own: Any, z: Any, last: Any, kept: Any) -> None:
    """(own c - R - E) / gamma and R(n,m); R and E themselves stay in the cache."""
    rows, columns = cost.shape[1:]
    R, spare = np.empty((rows, columns), cost.dtype), np.empty((4, kept.shape[2]), cost.dtype)
    rate = cost.dtype.type(1) / gamma
    for b in range(len(cost)):
        k, h, w = kept[b] if len(kept) else spare, n[b], m[b]
        last[b] = sweep(_part(cost[b], h, w, False), gamma, _part(R, h, w, False), k[0], k[1])
        sweep(_part(cost[b], h, w, True), gamma, _part(z[b], h, w, True), k[2], k[3])
        for i in range(h):
            c, r, e = cost[b, i], R[i], z[b, i]
            for j in range(w):
                e[j] = (own * c[j] - r[j] - e[j]) * rate


@compiled
def _unscores(seed: Any, last: Any, n: Any, m: Any, gamma: Any, own: Any, kept: Any, grad: Any) -> None:
    other = np.empty(grad.shape[1:], grad.dtype)
    zero, rate = grad.dtype.type(0), grad.dtype.type(1) / gamma
    for b in range(len(grad)):
        k, h, w = kept[b], n[b], m[b]
        unsweep(_part(seed[b], h, w, False), -gamma * last[b], k[0], k[1], _part(grad[b], h, w, False))
        unsweep(_part(seed[b], h, w, True), zero, k[2], k[3], _part(other, h, w, True))
        for i in range(h):
            s, g, o = seed[b, i], grad[b, i], other[i]
            for j in range(w):
                g[j] = (own * s[j] - g[j] - o[j]) * rate


class Workers:
    """Threads that live as long as the process and are made again after a fork."""

    pool: ThreadPoolExecutor | None = None

    @classmethod
    def forget(cls) -> None:
        """Threads do not survive a fork."""
        cls.pool = None

    @classmethod
    def share(cls, kernel: Callable[..., None], cells: int, *arguments: Any) -> None:
        """Call a kernel on shares of the batch (tensors are cut along it), as many at once as torch has threads."""
        arrays = [x.detach().numpy() if isinstance(x, Tensor) else x for x in arguments]
        batch = len(arrays[0])
        num = max(1, min(batch, torch.get_num_threads(), cells // WORTH_A_THREAD))
        cuts = [slice(batch * k // num, batch * (k + 1) // num) for k in range(num)]
        shares = [[x[cut] if isinstance(x, np.ndarray) else x for x in arrays] for cut in cuts]
        if num > 1 and cls.pool is None:
            cls.pool = ThreadPoolExecutor(os.cpu_count() or 1, "hostbot-dtw")
        others = [cls.pool.submit(kernel, *share) for share in shares[1:]] if cls.pool else []
        kernel(*shares[0])
        for other in others:
            other.result()


os.register_at_fork(after_in_child=Workers.forget)


def _number(like: Tensor, value: float) -> Any:
    """A scalar of the tensor's own type, so that a kernel is compiled once a type."""
    return np.float32(value) if like.dtype == torch.float32 else np.float64(value)


def _room(cost: Tensor) -> Tensor:
    """Place for the derivatives of R and of E."""
    return cost.new_empty((len(cost), 4, cost.shape[1] * cost.shape[2] + SPARE))


def paths(cost: Tensor, n: Tensor, m: Tensor, gamma: float, grad: bool) -> tuple[Tensor, Tensor]:
    """R(n,m) of each pair and, where asked, its gradient (else an empty tensor)."""
    cost = cost.contiguous()
    last, unit = (
        cost.new_empty(len(cost)),
        torch.zeros_like(cost) if grad else cost.new_empty(len(cost), 0, 0),
    )
    Workers.share(_paths, cost.numel(), cost, n, m, _number(cost, gamma), last, unit)
    return last, unit


def unpaths(last: Tensor, n: Tensor, m: Tensor, gamma: float, unit: Tensor, shape: torch.Size) -> Tensor:
    """The cost's gradient from that of R(n,m), which the forward pass has made ready."""
    return unit * last[:, None, None]


def tables(cost: Tensor, n: Tensor, m: Tensor, gamma: float, grad: bool) -> tuple[Tensor, Tensor, Tensor]:
    """R, E, and what their gradients need."""
    cost = cost.contiguous()
    R, E, kept = torch.zeros_like(cost), torch.zeros_like(cost), _room(cost)
    Workers.share(_tables, 2 * cost.numel(), cost, n, m, _number(cost, gamma), R, E, kept)
    return R, E, kept if grad else kept[:0]


def untables(R: Tensor, E: Tensor, n: Tensor, m: Tensor, gamma: float, kept: Tensor) -> Tensor:
    """The cost's gradient from those of R and E."""
    grad = torch.zeros_like(R, memory_format=torch.contiguous_format)
    Workers.share(_untables, 2 * grad.numel(), R.contiguous(), E.contiguous(), n, m, kept, grad)
    return grad


def scores(
    cost: Tensor, n: Tensor, m: Tensor, gamma: float, own: float, grad: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(own c - R - E) / gamma, R(n,m), and what the gradient needs (an empty tensor where none is)."""
    cost = cost.contiguous()
    z, last, kept = torch.zeros_like(cost), cost.new_empty(len(cost)), _room(cost if grad else cost[:0])
    numbers = _number(cost, gamma), _number(cost, own)
    Workers.share(_scores, 2 * cost.numel(), cost, n, m, *numbers, z, last, kept)
    return z, last, kept


def unscores(
    seed: Tensor, last: Tensor, n: Tensor, m: Tensor, gamma: float, own: float, kept: Tensor
) -> Tensor:
    """The cost's gradient from those of the scores and of R(n,m)."""
    grad = torch.zeros_like(seed, memory_format=torch.contiguous_format)
    numbers = _number(grad, gamma), _number(grad, own)
    shared = seed.contiguous(), last.contiguous(), n, m, *numbers, kept, grad
    Workers.share(_unscores, 2 * grad.numel(), *shared)
    return grad

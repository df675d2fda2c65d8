"""What all kernels share: how each starts while the one before it still runs, and fetches what a later one will read.

A kernel of some microseconds spends as long on starting. So each lets the next one start at once
(``griddepcontrol.launch_dependents``); that one reads what never changes and only then waits for its inputs
(``griddepcontrol.wait``: all of the kernel before is done and written). And since the card's memory would be idle
while small kernels run, each kernel asks for what the product or attention after it will read ("ahead").
"""

# mypy: allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait, num_threads

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Kernels run as Python on a CPU: slow, and a way to test them without a card."""
overlap = not INTERPRETED
"""Whether kernels overlap as described; a benchmark may turn it off to see what it brings."""
MOST_AHEAD = 24 * 2**20
"""Bytes fetched ahead at most: what the second-level cache keeps until they are read."""


def options(ahead: Sequence[Tensor] = ()) -> dict[str, Any]:
    """Launch options of this moment; ``ahead``: at most two contiguous tensors a later kernel will read."""
    first, second = (*ahead, None, None)[:2] if overlap else (None, None)
    room = MOST_AHEAD // max(1, len(ahead))
    found = {"ahead": first, "ahead_bytes": _bytes(first, room), "also": second, "also_bytes": _bytes(second, room)}
    return found | {"OVERLAP": overlap} | ({"launch_pdl": True} if overlap else {})


def _bytes(tensor: Tensor | None, most: int) -> int:
    return 0 if tensor is None else min(most, tensor.numel() * tensor.element_size()) // 16 * 16


@triton.jit
def begin():
    """Let the next kernel start; to be followed by ``ready`` before anything that may change is read or written."""
    gdc_launch_dependents()


@triton.jit
def ready():
    """Wait until all of the kernel before is done."""
    gdc_wait()


@triton.jit
def fetch(ahead, ahead_bytes, also, also_bytes, index, count):
    """Ask for program ``index``'s share, of ``count``, of two regions, without waiting for them to come."""
    if ahead is not None:
        _fetch(ahead, ahead_bytes, index, count)
    if also is not None:
        _fetch(also, also_bytes, index, count)


@triton.jit
def _fetch(start, num_bytes, index, count):
    lanes: tl.constexpr = num_threads()
    piece = tl.cdiv(num_bytes, count * lanes * 16) * 16
    first = (index * lanes + tl.arange(0, lanes)) * piece
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.gt.s32 p, $2, 0; @p cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0; }",
        "=r,l,r",
        [start.to(tl.int64) + first, tl.minimum(piece, num_bytes - first)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )

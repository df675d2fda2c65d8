"""What all kernels share: each starts while the one before it still runs, and reads ahead what that one cannot change.

A kernel of some microseconds spends as long on starting. So each lets the next one start at once
(``griddepcontrol.launch_dependents``); that one reads weights and old keys and only then waits for its inputs
(``griddepcontrol.wait``: all of the kernel before is done and written).
"""

# mypy: allow-untyped-decorators, allow-untyped-calls, allow-untyped-defs, allow-incomplete-defs
# (what Triton compiles carries no Python types)

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from hostbot.model.kernels import cuts

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Kernels run as Python on a CPU: slow, and a way to test them without a card."""
overlap = not INTERPRETED
"""Whether kernels overlap as described; a benchmark may turn it off to see what it brings."""
fetches = bool(cuts.read()["fetches"])
"""Whether kernels ask for what a later product will read."""
FEW_ROWS = 160
"""Beyond this many rows kernels are long, and gain nothing from an early start."""


def options(rows: int) -> dict[str, bool]:
    """Launch options for a kernel over so many rows."""
    early = overlap and rows <= FEW_ROWS
    return {"OVERLAP": early} | ({"launch_pdl": True} if early else {})


@triton.jit
def begin():
    """Let the next kernel start; to be followed by ``ready`` before anything that may change is read or written."""
    gdc_launch_dependents()


@triton.jit
def ready():
    """Wait until all of the kernel before is done."""
    gdc_wait()


def region(ahead: Tensor | None) -> tuple[Tensor | None, int]:
    """A contiguous tensor to be fetched for a later kernel, and its bytes; none where nothing is fetched."""
    if ahead is None or not fetches or INTERPRETED:
        return None, 0
    return ahead, ahead.numel() * ahead.element_size() // 16 * 16


@triton.jit
def fetch(start, num_bytes, index, count):
    """Ask for program ``index``'s share, of ``count``, of a region, without waiting for it to come.

    One thread asks for all of it at once: many small requests would hold up the kernel that makes them.
    """
    piece = tl.cdiv(num_bytes, count * 16) * 16
    length = tl.minimum(piece, num_bytes - index * piece)
    tl.inline_asm_elementwise(
        "{ .reg .pred p, q; .reg .u32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; setp.gt.and.s32 q, $2, 0, p; "
        "@q cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0; }",
        "=r,l,r",
        [start.to(tl.int64) + index * piece, length],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )

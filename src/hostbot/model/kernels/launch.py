"""What all kernels share: how each starts while the one before it still runs, and fetches what that one cannot change.

A kernel of some microseconds spends as long on starting. So each lets the next one start at once
(``griddepcontrol.launch_dependents``); the next asks for its weights and only then waits for its inputs
(``griddepcontrol.wait``: all of the kernel before is done and written).
"""

# mypy: allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Kernels run as Python on a CPU: slow, and a way to test them without a card."""
overlap = not INTERPRETED
"""Whether kernels overlap as described; a benchmark may turn it off to see what it brings."""


def options() -> dict[str, bool]:
    """Launch options of this moment."""
    return {"OVERLAP": overlap} | ({"launch_pdl": True} if overlap else {})


@triton.jit
def begin():
    """Let the next kernel start; to be followed by ``ready`` before anything is read or written."""
    gdc_launch_dependents()


@triton.jit
def ready():
    """Wait until all of the kernel before is done."""
    gdc_wait()


@triton.jit
def fetch(pointers, num_bytes):
    """Bring ``num_bytes`` (a multiple of 16) from each pointer into the second-level cache, without waiting."""
    addresses = pointers.to(tl.int64)
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [addresses, num_bytes],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )

"""What all kernels share: each starts while the one before it still runs, and reads ahead what that one cannot change.

A kernel of some microseconds spends as long on starting. So each lets the next one start at once
(``griddepcontrol.launch_dependents``); that one reads weights and old keys and only then waits for its inputs
(``griddepcontrol.wait``: all of the kernel before is done and written).
"""

# mypy: allow-untyped-decorators, allow-untyped-calls, allow-untyped-defs, allow-incomplete-defs
# (what Triton compiles carries no Python types)

from __future__ import annotations

import triton
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Kernels run as Python on a CPU: slow, and a way to test them without a card."""
overlap = not INTERPRETED
"""Whether kernels overlap as described; a benchmark may turn it off to see what it brings."""
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

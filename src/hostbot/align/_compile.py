"""How the CPU kernels are compiled, and an exponential the compiler can turn into vector instructions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic, overload

F = TypeVar("F", bound=Callable[..., Any])
LOG2E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.693145751953125, 1.428606765330187e-06
ROUND = 12582912.0
"""1.5 * 2**23: adding it to a small float32 leaves the nearest whole number in the low bits."""
LEAST = -36.0
"""Below it the float32 exponential is 0: 2e-16 beside 1 is nothing, and what is left makes no denormal numbers, which
many processors are slow with."""


def _sources() -> str:
    """Names the text of all kernels: numba looks at one file for a change and would keep what it took from others."""
    files = (Path(__file__).with_name(name) for name in ("_compile.py", "_sweep.py", "_cpu.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


SOURCES = _sources()


def compiled(fn: F) -> F:
    """Compile at the first call, without the GIL; fused multiply-adds are the only liberty taken."""
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
    fn.__qualname__ += f"_{SOURCES}"  # names the file in __pycache__ that keeps compiled code
    try:
        return numba.njit(cache=True, **options)(fn)
    except RuntimeError:  # no folder to keep compiled code in
        return numba.njit(**options)(fn)


@intrinsic
def _bits(context: Any, x: Any) -> Any:
    """The bits of a float32 as an int32."""
    return types.int32(types.float32), lambda c, b, s, a: b.bitcast(a[0], c.get_value_type(types.int32))


@intrinsic
def _float(context: Any, x: Any) -> Any:
    """The float32 with these bits."""
    return types.float32(types.int32), lambda c, b, s, a: b.bitcast(a[0], c.get_value_type(types.float32))


def exp(x: float) -> float:
    """exp(x) for x <= 0, to a unit in the last place in float32 and by the C library in float64."""
    return math.exp(x)


@overload(exp)
def _exp_of(x: Any) -> Any:
    def library(x: Any) -> Any:
        return math.exp(x)

    def polynomial(x: Any) -> Any:  # minimax for factors of sqrt(2) either way: 3e-9
        shifted = x * np.float32(LOG2E) + np.float32(ROUND)
        n = shifted - np.float32(ROUND)
        f = (x - n * np.float32(LN2_HIGH)) - n * np.float32(LN2_LOW)
        y = f * np.float32(0.00138145988) + np.float32(0.00836871658)
        y = y * f + np.float32(0.0416683890)
        y = y * f + np.float32(0.166665211)
        y = y * f + np.float32(0.499999940)
        y = y * f + np.float32(1.0)
        y = y * f + np.float32(1.0)
        power = _float(np.int32(_bits(y) + (_bits(shifted) << np.int32(23))))
        return power if x > np.float32(LEAST) else np.float32(0.0)

    return polynomial if x == types.float32 else library

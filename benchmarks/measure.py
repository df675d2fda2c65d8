"""What every benchmark needs: the machine, its ceilings, percentiles, and a result file with its commit."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn


def hardware(device: torch.device) -> dict[str, Any]:
    """What the numbers were measured on."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu_threads": torch.get_num_threads(),
        "cpu_cores": os.cpu_count(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"device": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1)}
    else:
        found["device"] = platform.processor() or platform.machine()
    return found


def commit() -> str:
    """The commit the code was at; ``HOSTBOT_COMMIT`` where the tree travelled without its history."""
    named = os.environ.get("HOSTBOT_COMMIT", "")
    asked = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return named or asked.stdout.strip() or "unknown"


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    values = torch.tensor(samples, dtype=torch.float64)
    return {"p50": round(values.quantile(0.5).item(), 3), "p99": round(values.quantile(0.99).item(), 3)}


def wall_ms(fn: Callable[[], object], device: torch.device) -> float:
    """Milliseconds until a call's work is done, host and device."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    fn()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def ceilings(device: torch.device) -> dict[str, float]:
    """Measured copy bandwidth (TB/s, read and write) and matrix rate (TFLOP/s) on random data."""
    cuda = device.type == "cuda"
    dtype = torch.bfloat16 if cuda else torch.float32
    size = 8192 if cuda else 1024
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    source = torch.randn(2**31 if cuda else 2**25, device=device, dtype=torch.bfloat16)
    target = torch.empty_like(source)
    for fn in (lambda: a @ b, lambda: target.copy_(source)):
        for _ in range(3):
            fn()
    product = min(wall_ms(lambda: [a @ b for _ in range(10)], device) / 10 for _ in range(3))
    copy = min(wall_ms(lambda: [target.copy_(source) for _ in range(5)], device) / 5 for _ in range(3))
    return {
        "tflops": round(2 * size**3 / product / 1e9, 2),
        "tbytes_per_s": round(2 * source.nbytes / copy / 1e9, 3),
    }


def random_weights(model: nn.Module, seed: int = 0) -> None:
    """Weights that keep activations at unit scale: speed does not depend on them, overflow would."""
    device = next(model.parameters()).device
    g = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.fill_(1.0)
            elif parameter.ndim > 1:
                parameter.normal_(0, parameter.shape[-1] ** -0.5, generator=g)
            else:
                parameter.normal_(0, 0.02, generator=g)


def save(out: Path, name: str, result: Mapping[str, Any], quiet: bool = False) -> None:
    """Keep a result as JSON and, unless ``quiet``, print it."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=2)
    (out / f"{name}.json").write_text(text + "\n")
    if not quiet:
        print(text)

"""The fastest cuts that were measured, as data beside the kernels; ``benchmarks/kernel_choice.py`` writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("h200.json")


def read() -> Mapping[str, Any]:
    """What the file holds: where it was measured, ``products`` and ``attentions``."""
    found: Mapping[str, Any] = json.loads(PATH.read_text())
    return found

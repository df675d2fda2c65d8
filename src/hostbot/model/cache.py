"""Tensors on disk by the hash of what they were made from: latents and text embeddings, made once."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor


def cached(folder: Path, content: Iterable[bytes], make: Callable[[], Tensor]) -> Tensor:
    """A tensor kept under the hash of what it was made from, moved into place whole; damage is redone."""
    digest = hashlib.sha256()
    for part in content:
        digest.update(len(part).to_bytes(8, "little") + part)
    path = folder / digest.hexdigest()[:2] / f"{digest.hexdigest()}.safetensors"
    try:
        return load_file(path)["value"]
    except (FileNotFoundError, SafetensorError):
        value = make().contiguous()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=".", dir=path.parent)
    os.close(handle)
    try:
        save_file({"value": value}, aside)
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    return value

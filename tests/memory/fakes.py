"""An embedder whose every number is known, and videos that differ in one byte."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from tests.clips import encode

_CLIPS: dict[Path, bytes] = {}


class FakeEmbedder:
    """Vectors written down beforehand, or drawn from a hash; a scene is known by its first pixel."""

    def __init__(self, texts=None, scenes=None, width=8, identity="fake-1"):
        self.texts, self.scenes, self.width, self.identity = texts or {}, scenes or {}, width, identity

    def embed_text(self, texts):
        return np.stack([np.asarray(self.texts.get(t, self._drawn(t)), float) for t in texts])

    def embed_scene(self, images):
        keys = [int(image[0, 0, 0]) for image in images]
        return np.stack([np.asarray(self.scenes.get(k, self._drawn(f"scene {k // 8}")), float) for k in keys])

    def _drawn(self, text):
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
        return np.random.default_rng(seed).normal(size=self.width)


def scene(value: int) -> np.ndarray:
    return np.full((4, 4, 3), value, np.uint8)


def clip(path: Path, salt: bytes | None = None) -> Path:
    """A valid mp4 of three frames; ``salt`` in a box that every reader skips makes its content another."""
    if not _CLIPS:
        encode(path, "libx264", num_frames=3, size=(32, 32))
        _CLIPS[path] = path.read_bytes()
    salt = os.urandom(16) if salt is None else salt
    box = (8 + len(salt)).to_bytes(4, "big") + b"free" + salt
    path.write_bytes(next(iter(_CLIPS.values())) + box)
    return path

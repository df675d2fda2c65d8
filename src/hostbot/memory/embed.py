"""What turns instructions and scenes into vectors: an argument of every memory.

Legend: B items, d width. At paper scale one encoder does both (Qwen3-VL-Embedding); on a CPU a text and a scene
encoder make a pair, and their widths may differ, since eq:retrieval_score compares text with text and scene with scene.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float, Float32

from hostbot.types import BadInput, Image


class TextEmbedder(Protocol):
    """Instructions to vectors of any length."""

    @property
    def identity(self) -> str:
        """Names encoder and version: vectors of two identities are never compared."""

    def embed_text(self, texts: Sequence[str]) -> Float[np.ndarray, "B d"]:
        """One vector an instruction."""


class SceneEmbedder(Protocol):
    """Pictures of any size to vectors of any length."""

    @property
    def identity(self) -> str:
        """Names encoder and version: vectors of two identities are never compared."""

    def embed_scene(self, images: Sequence[Image]) -> Float[np.ndarray, "B d"]:
        """One vector a picture."""


class Embedder(TextEmbedder, SceneEmbedder, Protocol):
    """Both: what a memory is opened with."""


@dataclass(frozen=True)
class Pair:
    """Two encoders as one embedder."""

    text: TextEmbedder
    scene: SceneEmbedder

    @property
    def identity(self) -> str:
        """Both names."""
        return f"{self.text.identity}+{self.scene.identity}"

    def embed_text(self, texts: Sequence[str]) -> Float[np.ndarray, "B d"]:
        """The text encoder's."""
        return self.text.embed_text(texts)

    def embed_scene(self, images: Sequence[Image]) -> Float[np.ndarray, "B d"]:
        """The scene encoder's."""
        return self.scene.embed_scene(images)


@dataclass(frozen=True)
class TextOnly:
    """An embedder that sees no scenes: eq:retrieval_score with ω = 1, for as long as no scene encoder is at hand."""

    text: TextEmbedder

    @property
    def identity(self) -> str:
        """The text encoder's name, and that there is no other."""
        return f"{self.text.identity}+no-scene"

    def embed_text(self, texts: Sequence[str]) -> Float[np.ndarray, "B d"]:
        """The text encoder's."""
        return self.text.embed_text(texts)

    def embed_scene(self, images: Sequence[Image]) -> Float[np.ndarray, "B 0"]:
        """Vectors of no width, which no query is compared with."""
        return np.zeros((len(images), 0))


def unit_text(embedder: TextEmbedder, text: str) -> Float32[np.ndarray, " d"]:
    """e^text of eq:memory_embed."""
    if not text.strip():
        raise BadInput("an instruction is needed, and this one is empty")
    return _unit(embedder.embed_text([text]), f"instruction {text!r}", embedder.identity)


def unit_scene(embedder: SceneEmbedder, image: Image) -> Float32[np.ndarray, " d"]:
    """e^img of eq:memory_embed; of no width where the embedder sees no scenes."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        raise BadInput(f"a scene is a picture of (h, w, 3) bytes, got {image.shape} of {image.dtype}")
    return _unit(embedder.embed_scene([image]), "scene", embedder.identity)


def _unit(rows: Float[np.ndarray, "1 d"], what: str, identity: str) -> Float32[np.ndarray, " d"]:
    vector = np.asarray(rows, np.float64)
    if vector.ndim != 2 or len(vector) != 1:
        raise ValueError(f"{identity} must give one row for the {what}, got shape {vector.shape}")
    if vector.shape[1] == 0:
        return np.zeros(0, np.float32)
    length = float(np.linalg.norm(vector))
    if not (np.isfinite(length) and length > 0):
        raise BadInput(f"{identity} gives no direction for the {what} (length {length:g}); say it otherwise")
    return (vector[0] / length).astype(np.float32)

"""Instructions to context tokens: UMT5 at paper scale, hashed words where there are no weights to load.

Legend: B instructions, L tokens (zero-padded), t token width.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# (transformers has few types)

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from hostbot.model.cache import cached
from hostbot.types import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, UMT5EncoderModel


class TextEncoder(Protocol):
    """Whatever turns instructions into context tokens."""

    @property
    def identity(self) -> str:
        """Names the encoder and its version: a cache key, and what a checkpoint was trained with."""

    def encode(self, texts: Sequence[str]) -> Float32[Tensor, "B L t"]:
        """Context tokens of instructions, zero where an instruction has ended."""


class HashedWords:
    """One token a word, its vector drawn from the hashes of the word and its three-letter pieces.

    For the tiny preset: no weights, no download, no vocabulary; the same on every machine. Words that share
    letters share direction (plurals, typing errors), and what a word means is learned by the model's own
    two-layer text embedding, which is trained. A frozen UMT5 of random weights would give less and cost more,
    and a trained one of useful size would not fit the weights that are shipped.
    """

    def __init__(self, dim: int = 256, length: int = 24) -> None:
        if dim % 8:
            raise BadInput(f"hashed words need a width in whole bytes, got {dim}")
        self.dim, self.length = dim, length

    @property
    def identity(self) -> str:
        """Changes whenever the vectors would."""
        return f"hashed-words-1-{self.dim}-{self.length}"

    def encode(self, texts: Sequence[str]) -> Float32[Tensor, "B L t"]:
        """Words in order, with where they stand; an instruction too long is refused, not cut."""
        out = torch.zeros(len(texts), self.length, self.dim)
        for row, text in zip(out, texts, strict=True):
            words = re.findall(r"\w+|[^\w\s]", text.lower())
            if len(words) > self.length:
                raise BadInput(f"an instruction has at most {self.length} words, got {len(words)}: {text!r}")
            for place, word in enumerate(words):
                row[place] = torch.from_numpy(self._vector(word) + 0.5 * _signs(f"#{place}", self.dim))
        return out

    def _vector(self, word: str) -> Float32[np.ndarray, " t"]:
        framed = f"<{word}>"
        pieces = [framed] + [framed[i : i + 3] for i in range(len(framed) - 2)]
        total = np.sum([_signs(piece, self.dim) for piece in pieces], axis=0)
        return (total / np.sqrt(np.mean(total**2))).astype(np.float32)


def _signs(text: str, dim: int) -> Float32[np.ndarray, " t"]:
    """A random vector of plus and minus ones that is a function of the text."""
    digest = hashlib.shake_256(text.encode()).digest(dim // 8)
    return np.unpackbits(np.frombuffer(digest, np.uint8)).astype(np.float32) * 2 - 1


class Umt5:
    """A frozen UMT5 encoder, as Wan uses it: embeddings of the tokens there are, zeros up to the length."""

    def __init__(
        self, model: UMT5EncoderModel, tokenizer: PreTrainedTokenizerBase, length: int, identity: str
    ) -> None:
        self.model, self.tokenizer, self.length = model.eval().requires_grad_(False), tokenizer, length
        self._identity = identity

    @property
    def identity(self) -> str:
        """The folder's name and the length."""
        return f"umt5-{self._identity}-{self.length}"

    @torch.no_grad()
    def encode(self, texts: Sequence[str]) -> Float32[Tensor, "B L t"]:
        """Last hidden states, padding zeroed; what exceeds the length is refused, not cut."""
        clean = [" ".join(text.split()) for text in texts]
        tokens = self.tokenizer(clean, padding="max_length", max_length=self.length, return_tensors="pt")
        ids, mask = tokens["input_ids"], tokens["attention_mask"]
        if ids.shape[1] > self.length:
            raise BadInput(
                f"an instruction takes {int(mask.sum(1).max())} tokens; the model reads {self.length}"
            )
        device = self.model.device
        hidden: Float[Tensor, "B L t"] = self.model(ids.to(device), mask.to(device)).last_hidden_state
        return (hidden.float() * mask.to(device)[..., None]).cpu()


def load_umt5(folder: Path, length: int = 512, dtype: torch.dtype = torch.bfloat16) -> Umt5:
    """UMT5 from a diffusers folder (``text_encoder`` and ``tokenizer`` inside), from this disk only."""
    for part in ("text_encoder", "tokenizer"):
        if not (folder / part).is_dir():
            raise BadInput(
                f"{folder} has no {part}: give the folder of Wan-AI/Wan2.2-TI2V-5B-Diffusers as downloaded"
            )
    from transformers import AutoTokenizer, UMT5EncoderModel

    model = UMT5EncoderModel.from_pretrained(
        folder / "text_encoder", local_files_only=True, use_safetensors=True, dtype=dtype
    )
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer", local_files_only=True)
    return Umt5(model, tokenizer, length, folder.name)


class CachedText:
    """Embeddings on disk by encoder and text; with ``encoder=None`` only what is there can be had."""

    def __init__(self, folder: Path, identity: str, encoder: TextEncoder | None = None) -> None:
        if encoder is not None and encoder.identity != identity:
            raise BadInput(f"the text cache is of {identity} but the encoder is {encoder.identity}")
        self.folder, self.identity, self.encoder = folder, identity, encoder

    def encode(self, texts: Sequence[str]) -> Float32[Tensor, "B L t"]:
        """As the encoder's, one file a text."""
        return torch.stack([self._one(text) for text in texts])

    def _one(self, text: str) -> Float32[Tensor, "L t"]:
        def make() -> Tensor:
            if self.encoder is None:
                raise BadInput(
                    f"{self.folder} has no embedding of {text!r}: embed it where {self.identity} is"
                )
            return self.encoder.encode([text])[0]

        return cached(self.folder, [self.identity.encode(), text.encode()], make)

"""A text encoder for machines without a GPU: the static word vectors that the ``wordllama`` wheel ships.

Legend: B texts, d width. The wheel's two files (a tokenizer and 32,000 vectors, MIT licence) are read as data; its own
loader looks for a download where the wheel has the file.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from hostbot.types import BadInput

# Words that an instruction has whatever the task is.
_COMMON = frozenset(
    re.findall(r"\w+", "a an and at from in into is it of on onto over so that the to up with you your")
)


class WordVectors:
    """The mean of an instruction's word vectors, common words left out: synonyms are near, word order is not seen."""

    def __init__(self) -> None:
        folder = _wheel()
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        weights = load_file(folder / "weights" / "l2_supercat_256.safetensors")
        self._vectors: Float32[np.ndarray, "V d"] = weights["embedding.weight"].astype(np.float32)
        self._tokens: Any = Tokenizer.from_file(
            str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
        )
        self._middle: Float32[np.ndarray, " d"] = self._vectors.mean(axis=0)
        self.wheel = f"wordllama-{metadata.version('wordllama')}"

    @property
    def identity(self) -> str:
        """The wheel's version and our rule."""
        return f"{self.wheel}-content-1"

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self._vectors.shape[1])

    def direction(self, word: str) -> Float32[np.ndarray, " d"]:
        """Where a word lies from the middle of all words, as a unit vector."""
        ids = self._tokens.encode(word, add_special_tokens=False).ids
        if not ids:
            raise BadInput(f"{word!r} is no word")
        offset = (self._vectors[ids] - self._middle).mean(axis=0)
        return np.asarray(offset / np.linalg.norm(offset))

    def embed_text(self, texts: Sequence[str]) -> Float32[np.ndarray, "B d"]:
        """One vector a text."""
        return np.stack([self._one(text) for text in texts])

    def _one(self, text: str) -> Float32[np.ndarray, " d"]:
        words = re.findall(r"\w+", text.lower())
        content = [word for word in words if word not in _COMMON] or words
        ids = self._tokens.encode(" ".join(content), add_special_tokens=False).ids
        if not ids:
            raise BadInput(f"the instruction {text!r} has no words")
        return self._vectors[ids].mean(axis=0)


def _wheel() -> Path:
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise BadInput("the offline text encoder needs `pip install 'hostbot[memory]'` (wordllama, 19 MB)")
    return Path(next(iter(found.submodule_search_locations)))

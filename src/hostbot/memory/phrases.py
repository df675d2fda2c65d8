"""Instructions as vectors that keep things, colours, roles and directions apart, whatever the wording.

A mean of word vectors puts `the red block` beside `the blue block` and `drop it in` far from `place it inside`. Here
every part of a reading (grammar.py) becomes a wave e^{iφ}: a word's phase is a random projection of its word vector, so
that the product of two waves is a Gaussian kernel of the words; a thing's wave is the product of its words' waves, and
two things are alike only if all their words are. The instruction is a weighted sum of the waves of

- its things, each by itself; all of them together; each with the next, in the order of their roles;
- its directions, opposites with opposite signs;
- its other words.

Legend: D waves, d width of the word vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from jaxtyping import Complex, Float32, Float64

from hostbot.memory.grammar import COLOURS, Reading, Thing, read
from hostbot.memory.words import WordVectors
from hostbot.types import BadInput

Phase: TypeAlias = Float64[np.ndarray, " D"]
Wave: TypeAlias = Complex[np.ndarray, " D"]


@dataclass(frozen=True, kw_only=True)
class PhraseConfig:
    """Weights of the parts, as shares of the squared length; chosen on training tasks (docs/memory.md)."""

    waves: int = 128
    """The vector has twice as many numbers; cosines of unrelated instructions are within about 1/sqrt of that."""
    things: float = 0.35
    together: float = 0.2
    pairs: float = 0.25
    acts: float = 0.12
    directions: MappingProxyType[str, float] = field(
        default_factory=lambda: MappingProxyType(
            {"side": 0.25, "depth": 0.25, "shut": 0.25, "power": 0.25, "height": 0.05, "source": 0.05}
        )
    )
    unqualified: float = 0.3
    """Of a thing nothing is said about (`the table`, `a push`), beside one with a colour or another word."""
    sharp_things: float = 1.0
    sharp_acts: float = 1.2
    """Inverse widths of the kernels: the larger, the less a similar word counts."""


class PhraseVectors:
    """The CPU text encoder: `wordllama`'s word vectors, put together by what the words do."""

    def __init__(self, words: WordVectors | None = None, config: PhraseConfig | None = None) -> None:
        self.words, self.config = words or WordVectors(), config or PhraseConfig()
        self._matrix = {
            kind: _normal(kind, self.config.waves, self.words.width) for kind in ("head", "modifier", "act")
        }
        self._turned = np.argsort(_uniform("turn", self.config.waves))
        self._phase = lru_cache(4096)(self._phase_of)

    @property
    def identity(self) -> str:
        """The word vectors' and our rule's; a number more where the rule is not the usual one."""
        usual = "" if self.config == PhraseConfig() else f"-{_digest(repr(self.config))[:8]}"
        return f"{self.words.wheel}-phrases-1{usual}"

    def embed_text(self, texts: Sequence[str]) -> Float32[np.ndarray, "B 2*D"]:
        """One vector a text."""
        return np.stack([self._one(text) for text in texts])

    def _one(self, text: str) -> Float32[np.ndarray, " 2*D"]:
        reading = read(text)
        if not (reading.things or reading.acts or reading.directions):
            raise BadInput(f"the instruction {text!r} names nothing to do")
        wave = self._things(reading) + self._directions(reading) + self._acts(reading)
        return np.concatenate([wave.real, wave.imag]).astype(np.float32)

    def _things(self, reading: Reading) -> Wave:
        c, phases = self.config, [self._thing(thing) for thing in reading.things]
        if not phases:
            return np.zeros(c.waves, complex)
        shares = [1.0 if thing.modifiers else c.unqualified for thing in reading.things]
        none = np.zeros(c.waves, complex)
        alone = sum((s * np.exp(1j * phase) for s, phase in zip(shares, phases, strict=True)), none)
        chief = [p for p, thing in zip(phases, reading.things, strict=True) if thing.modifiers] or phases
        turned = [phase[self._turned] for phase in chief]
        follows = chief[1:] or [np.zeros(c.waves)]
        pairs = sum((np.exp(1j * (a + b)) for a, b in zip(turned, follows, strict=False)), none)
        return (
            _length(alone, c.things)
            + _length(np.exp(1j * (sum(chief) + self._own("together"))), c.together)
            + _length(pairs * np.exp(1j * self._own("pair")), c.pairs)
        )

    def _thing(self, thing: Thing) -> Phase:
        modifiers = (
            self._own(COLOURS[word]) if word in COLOURS else self._phase(word, "modifier")
            for word in thing.modifiers
        )
        return self._phase(thing.head, "head") + sum(modifiers, np.zeros(self.config.waves))

    def _directions(self, reading: Reading) -> Wave:
        c = self.config
        waves = (
            sign * _length(np.exp(1j * self._own(axis)), c.directions[axis])
            for axis, sign in reading.directions
        )
        return sum(waves, np.zeros(c.waves, complex))

    def _acts(self, reading: Reading) -> Wave:
        waves = (np.exp(1j * self._phase(word, "act")) for word in reading.acts)
        return _length(sum(waves, np.zeros(self.config.waves, complex)), self.config.acts)

    def _phase_of(self, word: str, kind: str) -> Phase:
        sharp = self.config.sharp_acts if kind == "act" else self.config.sharp_things
        return np.asarray(sharp * (self._matrix[kind] @ self.words.direction(word)))

    def _own(self, name: str) -> Phase:
        """A phase like no other: colours and directions are the same or not, never similar."""
        return 2 * np.pi * _uniform(name, self.config.waves)


def _length(wave: Wave, share: float) -> Wave:
    """A wave of squared length ``share``; of none where there is nothing."""
    length = np.linalg.norm(wave)
    return wave * (np.sqrt(share) / length) if length > 0 else wave


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(256)
def _uniform(name: str, count: int) -> Float64[np.ndarray, " N"]:
    """Numbers in (0, 1) that a name always gives: a memory is read for years, and generators change."""
    raw = np.frombuffer(hashlib.shake_256(name.encode()).digest(4 * count), "<u4")
    return (raw + 0.5) / 2**32


def _normal(name: str, rows: int, columns: int) -> Float64[np.ndarray, "R C"]:
    a, b = (_uniform(f"{name} {part}", rows * columns) for part in "ab")
    return (np.sqrt(-2 * np.log(a)) * np.cos(2 * np.pi * b)).reshape(rows, columns)

"""What a memory holds and what it answers.

Legend: t text width, i scene width.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32

from hostbot.types import BadInput

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One demonstration that is remembered; its video lies in the store under its hash."""

    id: str
    """Unique in all memories: what export and import recognise it by."""
    name: str
    """The skill; entries of one name are its versions, and the highest is in force."""
    version: int
    instruction: str
    sha256: str
    suffix: str
    num_bytes: int
    num_frames: int
    duration_s: float
    created: str
    """UTC, ISO 8601."""
    note: str = ""

    @property
    def label(self) -> str:
        """How a person names it: ``stack-the-bowls@2``."""
        return f"{self.name}@{self.version}"

    @property
    def age(self) -> tuple[int, str, str]:
        """Orders the versions of a name.

        Writers that share no lock may give one version twice: the later one counts, for every reader alike.
        """
        return self.version, self.created, self.id


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """An entry with its two unit vectors, eq:memory_embed."""

    entry: Entry
    text: Float32[np.ndarray, " t"]
    scene: Float32[np.ndarray, " i"]


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """How eq:retrieval_score is weighed and when it counts.

    The paper gives no values. δ is near where recall and novelty meet on training tasks of the bench, for
    ``PhraseVectors`` with the shipped scene encoder (docs/memory.md); another embedder needs its own.
    """

    omega: float = 0.8
    """Weight of the instruction; the scene has the rest."""
    delta: float = 0.75
    """Scores below are a novel task."""
    margin: float = 0.02
    """Another skill whose score is this close to the best cannot be told from it."""

    def __post_init__(self) -> None:
        if not 0 <= self.omega <= 1 or not -1 <= self.delta <= 1 or not 0 <= self.margin <= 2:
            raise BadInput(
                "omega is in 0..1, delta in -1..1 and margin in 0..2, "
                f"got {self.omega:g}, {self.delta:g} and {self.margin:g}"
            )


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A stored skill with the scores that explain it, eq:retrieval_score."""

    entry: Entry
    score: float
    text: float | None
    """Cosine of the instructions; None where the query had none."""
    scene: float | None
    """Cosine of the scenes; None where the query had none."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """A recurring task: this is its demonstration."""

    best: Candidate
    others: tuple[Candidate, ...]
    omega: float
    delta: float


@dataclass(frozen=True, kw_only=True)
class Ambiguous:
    """Beyond the paper: several stored skills are too alike to tell by instruction and scene."""

    candidates: tuple[Candidate, ...]
    omega: float
    delta: float
    margin: float


@dataclass(frozen=True, kw_only=True)
class Novel:
    """Nothing stored scores as high as δ: a person is to show the task."""

    nearest: tuple[Candidate, ...]
    omega: float
    delta: float


Answer: TypeAlias = Match | Ambiguous | Novel


def explain(answer: Answer) -> str:
    """An answer as one sentence for people and logs."""
    if isinstance(answer, Match):
        return f"{answer.best.entry.label} matches: {_scores(answer.best)}, at least {answer.delta:g}"
    if isinstance(answer, Ambiguous):
        names = " and ".join(f"{c.entry.label} ({c.score:.3f})" for c in answer.candidates)
        return f"{names} are within {answer.margin:g} of each other; say which by name"
    if not answer.nearest:
        return "nothing is stored yet: show the task once on video and add it"
    near = answer.nearest[0]
    return (
        f"this task is novel: the nearest, {near.entry.label}, has {_scores(near)}, below {answer.delta:g}; "
        "show it once on video and add it"
    )


def _scores(candidate: Candidate) -> str:
    parts = {"instruction": candidate.text, "scene": candidate.scene}
    told = ", ".join(f"{name} {value:.3f}" for name, value in parts.items() if value is not None)
    return f"score {candidate.score:.3f} ({told})"


def check_name(name: str) -> str:
    """A skill's name as given, or one sentence."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} is no name: use up to 80 small letters, digits, '.', '_' and '-', e.g. stack-the-bowls"
        )
    return name


def name_of(instruction: str) -> str:
    """A name made from an instruction, so that the same words give the same skill."""
    words = "-".join(re.findall(r"[a-z0-9]+", instruction.lower()))
    if not words:
        raise BadInput(f"no name can be made from {instruction!r}; give one")
    return words[:80].rstrip("-")


def as_json(answer: Answer) -> Mapping[str, object]:
    """An answer as plain JSON values, for the command line and the wire."""
    kinds = {Match: "match", Ambiguous: "ambiguous", Novel: "novel"}
    if isinstance(answer, Match):
        found = (answer.best, *answer.others)
    else:
        found = answer.candidates if isinstance(answer, Ambiguous) else answer.nearest
    return {
        "answer": kinds[type(answer)],
        "sentence": explain(answer),
        "omega": answer.omega,
        "delta": answer.delta,
        "candidates": [
            {
                "skill": c.entry.label,
                "instruction": c.entry.instruction,
                "score": c.score,
                "text": c.text,
                "scene": c.scene,
            }
            for c in found
        ],
    }

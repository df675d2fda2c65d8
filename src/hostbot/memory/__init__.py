"""Keep every demonstration and find it again: eq:memory_embed, eq:retrieval_score."""

from hostbot.memory.embed import Embedder, Pair, SceneEmbedder, TextEmbedder, TextOnly
from hostbot.memory.entry import (
    Ambiguous,
    Answer,
    Candidate,
    Entry,
    Match,
    Novel,
    Retrieval,
    as_json,
    explain,
)
from hostbot.memory.memory import Added, DemonstrationMemory
from hostbot.memory.urls import open_memory, open_store

__all__ = [
    "Added",
    "Ambiguous",
    "Answer",
    "Candidate",
    "DemonstrationMemory",
    "Embedder",
    "Entry",
    "Match",
    "Novel",
    "Pair",
    "Retrieval",
    "SceneEmbedder",
    "TextEmbedder",
    "TextOnly",
    "as_json",
    "explain",
    "open_memory",
    "open_store",
]

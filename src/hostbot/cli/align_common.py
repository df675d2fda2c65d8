"""What the verbs of ``hostbot align`` share: flags, datasets, weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from hostbot.types import EpisodeSource

if TYPE_CHECKING:
    from hostbot.align.aligner import Aligner

Weights = Annotated[
    Path | None,
    arg(metavar="FILE.json", help="Trained weights (align.json of a run); those shipped by default."),
]
Device = Annotated[
    str | None, arg(metavar="NAME", help="cpu, cuda or cuda:N; for training a GPU where there is one.")
]


def aligner_at(weights: Path | None, device: str | None = None) -> Aligner:
    """Trained weights on a device."""
    from hostbot.align.aligner import load_aligner

    return load_aligner(weights, device or "cpu")


def dataset_at(path: Path) -> EpisodeSource:
    """A dataset that says its own frame rate."""
    from hostbot.data.sources import open_source

    return open_source(path)


def by_task(source: EpisodeSource) -> dict[str, list[int]]:
    """Task -> episodes."""
    from hostbot.data.pairs import task_key

    found: dict[str, list[int]] = {}
    for index in range(len(source)):
        found.setdefault(task_key(source.episode(index).instruction), []).append(index)
    return found

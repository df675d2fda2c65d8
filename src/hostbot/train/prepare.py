"""From datasets, labels and a VAE to a store of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from hostbot.align.labels import Labels as AlignmentLabels
from hostbot.data.fill import Piece, fill, pieces_of
from hostbot.data.pairs import Body, Pair
from hostbot.data.plan import Labels, Planner
from hostbot.data.samples import Origin, Store, create_store
from hostbot.data.sampling import SampleConfig
from hostbot.data.stats import Statistics, fingerprint
from hostbot.data.wordings import Wordings
from hostbot.model.text import TextEncoder
from hostbot.train.labels import ByAlignment, ByClock, ByEvents
from hostbot.train.latents import ClipEncoder
from hostbot.types import BadInput, Camera, DataError, EpisodeSource

_TEXT = "text.safetensors"


def labels_of(kind: str, sources: Mapping[Body, EpisodeSource], demo_body: Body) -> tuple[Labels, str]:
    """Where correspondences come from: recorded events, elapsed time, or a folder that `hostbot align label` wrote."""
    if kind == "events":
        return ByEvents(sources), "events"
    if kind == "clock":
        return ByClock(sources), "clock"
    folder = Path(kind)
    if not folder.is_dir():
        raise BadInput(f"{kind!r} are no labels: give a folder of `hostbot align label`, or events, or clock")
    found = AlignmentLabels(folder)
    name = sources[demo_body].name
    if found.demo_name != name:
        raise DataError(f"{folder} holds labels of demonstrations of {found.demo_name!r}, not of {name!r}")
    return ByAlignment(found), f"alignment:{folder.name}"


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Everything a store is made from."""

    sources: Mapping[Body, EpisodeSource]
    pairs: Sequence[Pair]
    labels: Labels
    labels_name: str
    statistics: Statistics
    config: SampleConfig
    encoder: ClipEncoder
    text: TextEncoder
    part: str
    split: str
    cameras: Sequence[Camera] = ()
    wordings: Wordings = field(default_factory=dict)

    def begin(
        self,
        folder: Path,
        tick: Callable[[int], None] = lambda pairs: None,
        clips: int | None = None,
        workers: int = 0,
    ) -> tuple[Store, list[Piece]]:
        """Plan the samples and make the store, or open the one that was begun; ``clips`` are encoded together."""
        planner = Planner(self.sources, self.statistics, self.config, self.cameras, self.wordings)
        plan = planner.plan(self.pairs, self.labels, tick, workers)
        num_views, num_frames = len(self.config.embodiment.views), plan.rows.frames.shape[1]
        pieces = pieces_of(plan, clips or self.encoder.piece(num_views, num_frames, self.config.image_size))
        origin = Origin(
            fingerprints={body: fingerprint(source) for body, source in self.sources.items()},
            latents=self.encoder.codec.identity,
            labels=self.labels_name,
            part=self.part,
            split=self.split,
        )
        latent = self.encoder.latent_shape(len(self.config.embodiment.views), self.config.image_size)
        store = create_store(folder, plan, self.config, origin, self.statistics, latent, len(pieces))
        write_texts(store, self.text)
        return store, pieces

    def go_on(
        self, store: Store, pieces: Sequence[Piece], workers: int, shard: tuple[int, int]
    ) -> Iterator[int]:
        """Encode what is missing; yields the clips of each piece."""
        yield from fill(store, pieces, self.sources, self.encoder, workers=workers, shard=shard)


def write_texts(store: Store, encoder: TextEncoder) -> None:
    """Embed the store's instructions once, so that training needs no text encoder."""
    path = store.folder / _TEXT
    if not path.exists():
        value = encoder.encode(store.info.texts)
        if value.nbytes > 2**26:
            value = value.to(torch.bfloat16)
        aside = path.with_suffix(".tmp")
        save_file({"value": value.contiguous()}, aside, metadata={"identity": encoder.identity})
        aside.rename(path)


def read_texts(store: Store) -> tuple[Tensor, str]:
    """Embeddings of the store's instructions, and who made them."""
    path = store.folder / _TEXT
    if not path.is_file():
        raise DataError(f"{store.folder} has no {_TEXT}: run `hostbot train samples` again")
    with safe_open(path, framework="pt") as file:
        return file.get_tensor("value"), file.metadata()["identity"]

"""A folder of training samples: latents encoded once in two mapped arrays, and the plan that says what they are of.

``store.json`` is what the store was made from, ``plan.safetensors`` its rows and takes, ``demo.npy`` the latents of
all demonstrations one after the other, ``clip.npy`` the latents of every row's present and future, ``done.npy`` a
mark for each piece of work that is finished, so that an interrupted filling goes on where it stopped.

Legend: R rows, A takes, F latents of all demonstrations, K+1 latents of a clip, C H W one latent frame.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float16
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from hostbot.config import from_dict, read_json, to_dict, write_json
from hostbot.data.plan import Plan, Rows, Takes
from hostbot.data.sampling import SampleConfig
from hostbot.data.stats import Statistics
from hostbot.types import DataError

FORMAT = 1
_DEMO, _CLIP, _DONE, _PLAN, MANIFEST = "demo.npy", "clip.npy", "done.npy", "plan.safetensors", "store.json"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a store was made from; another origin is another store."""

    fingerprints: Mapping[str, str]
    """Of the datasets, by body."""
    latents: str
    """Identity of the VAE."""
    labels: str
    """Where correspondences came from."""
    part: str
    """Which part of the split."""
    split: str = ""
    """The split's digest."""


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """``store.json``."""

    format: int
    origin: Origin
    config: SampleConfig
    latent: tuple[int, int, int]
    """C, H, W of one latent frame, all views stacked by height."""
    statistics: Statistics
    """What actions and states were normalised by."""
    texts: tuple[str, ...]
    num_pairs: int
    num_refused: int


class Store:
    """Samples on disk, whole or being filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / MANIFEST).is_file():
            raise DataError(f"{folder} holds no samples: make them with `hostbot train samples`")
        values = read_json(folder / MANIFEST, DataError)
        if values.get("format") != FORMAT:
            raise DataError(
                f"{folder} has format {values.get('format')}, this version reads {FORMAT}: make it again"
            )
        self.info = from_dict(StoreInfo, values, str(folder / MANIFEST))
        self.takes, self.rows = _read_plan(folder / _PLAN)
        self.demo = _mapped(folder / _DEMO)
        self.clip = _mapped(folder / _CLIP)
        self.done = _mapped(folder / _DONE)

    @property
    def config(self) -> SampleConfig:
        """How the samples were made."""
        return self.info.config

    def whole(self) -> Store:
        """This store, refused unless all of it is there."""
        left = int((self.done == 0).sum())
        if left:
            raise DataError(
                f"{self.folder} is not complete: {left} of {len(self.done)} pieces are missing; run the same "
                "`hostbot train samples` again to go on"
            )
        return self


def is_whole(folder: Path) -> bool:
    """Whether nothing of a store is missing, without reading it."""
    return bool(np.all(_mapped(folder / _DONE)))


def _read_plan(path: Path) -> tuple[Takes, Rows]:
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} cannot be read: {error}; make the samples again") from error
    return (
        Takes(**{f.name: arrays[f"takes.{f.name}"] for f in fields(Takes)}),
        Rows(**{f.name: arrays[f"rows.{f.name}"] for f in fields(Rows)}),
    )


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r+", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}; make the samples again") from error


def create_store(
    folder: Path,
    plan: Plan,
    config: SampleConfig,
    origin: Origin,
    statistics: Statistics,
    latent: tuple[int, int, int],
    pieces: int,
) -> Store:
    """A new, empty store, written aside and moved into place; one of the same origin is gone on with."""
    info = StoreInfo(
        format=FORMAT,
        origin=origin,
        config=config,
        latent=latent,
        statistics=statistics,
        texts=plan.texts,
        num_pairs=plan.num_pairs,
        num_refused=plan.num_refused,
    )
    if folder.exists():
        return _same_store(folder, info)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        arrays = {f"takes.{f.name}": np.ascontiguousarray(getattr(plan.takes, f.name)) for f in fields(Takes)}
        arrays |= {f"rows.{f.name}": np.ascontiguousarray(getattr(plan.rows, f.name)) for f in fields(Rows)}
        save_file(arrays, aside / _PLAN)
        clip = 1 + config.couple.horizon // config.couple.unit
        _allocate(aside / _DEMO, (int(plan.takes.latents.sum()), *latent), np.float16)
        _allocate(aside / _CLIP, (len(plan.rows), clip, *latent), np.float16)
        _allocate(aside / _DONE, (pieces,), np.uint8)
        write_json(aside / MANIFEST, to_dict(info))
        aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return Store(folder)


def _same_store(folder: Path, info: StoreInfo) -> Store:
    store = Store(folder)
    if to_dict(store.info) != to_dict(info):
        raise DataError(
            f"{folder} holds samples made from other data or with other settings; give another folder"
        )
    return store


def _allocate(path: Path, shape: tuple[int, ...], dtype: Any) -> None:
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    needed, free = array.nbytes, shutil.disk_usage(path.parent).free
    del array
    if needed > free:
        raise DataError(
            f"{path.parent} needs {needed / 2**30:.1f} GiB for {path.name} but the disk has {free / 2**30:.1f} left"
        )


def put_views(
    into: Float16[np.ndarray, "B F C H W"], latents: Float16[np.ndarray, "B F C H2 W"], columns: list[int]
) -> None:
    """Latents of the views that are there, at those views' places; the others stay zero."""
    height = latents.shape[3] // len(columns)
    for place, column in enumerate(columns):
        into[..., column * height : (column + 1) * height, :] = latents[
            ..., place * height : (place + 1) * height, :
        ]

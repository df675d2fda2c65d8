"""Decode, alter and encode what a store's plan asks for, piece by piece, decoding in as many processes as there are.

Legend: B clips of a piece, V views that are there, T frames a clip, h w pixels, F latents, C H W one latent frame.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float16, Int, UInt8

from hostbot.couple import grid_frames
from hostbot.data.mirror import other_side
from hostbot.data.pairs import Body
from hostbot.data.plan import BODIES, Plan, Rows, Takes
from hostbot.data.processes import Pool
from hostbot.data.samples import Store, put_views
from hostbot.data.sampling import SampleConfig, demo_length, view_columns
from hostbot.data.takes import Take, altered, make_take
from hostbot.types import EpisodeSource

Encode = Callable[[UInt8[np.ndarray, "B V T h w 3"]], Float16[np.ndarray, "B F C H W"]]
"""What turns clips into latents, views stacked by height."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Takes of demonstrations of one length, or rows of a few robot takes: encoded in one call."""

    takes: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()


def pieces_of(plan: Plan, clips: int) -> list[Piece]:
    """The work of a plan, in an order that depends on the plan alone; at most ``clips`` clips a piece."""
    takes, rows = plan.takes, plan.rows
    alike: dict[tuple[int, int], list[int]] = {}
    for index, (body, latents) in enumerate(zip(takes.body, takes.latents, strict=True)):
        alike.setdefault((int(body), int(latents)), []).append(index)
    share = {key: max(1, clips // (key[1] - 1)) for key in alike}
    pieces = [
        Piece(takes=tuple(group[i : i + share[key]]))
        for key, group in sorted(alike.items())
        for i in range(0, len(group), share[key])
    ]
    order = np.lexsort((rows.version, rows.episode))
    pieces += [Piece(rows=tuple(order[i : i + clips].tolist())) for i in range(0, len(order), clips)]
    return pieces


@dataclass(frozen=True, kw_only=True)
class _Decoded:
    frames: UInt8[np.ndarray, "B V T h w 3"]
    columns: list[int]


class Decoder:
    """Reads a piece's pictures; one a process."""

    def __init__(
        self, sources: Mapping[Body, EpisodeSource], config: SampleConfig, takes: Takes, rows: Rows
    ) -> None:
        self.sources, self.config = sources, config
        self.takes, self.rows = takes, rows

    def decode(self, piece: Piece) -> _Decoded:
        """All clips of a piece, altered as their takes say."""
        return self._demos(piece.takes) if piece.takes else self._clips(np.array(piece.rows))

    def _take(self, body: Body, episode: int, version: int, length: int | None) -> Take:
        return make_take(
            self.sources[body],
            body,
            episode,
            version,
            self.config.take,
            embodiment=self.config.embodiment,
            length=length,
        )

    def _frames(self, take: Take, view: str, wanted: Int[np.ndarray, " T"]) -> UInt8[np.ndarray, "T h w 3"]:
        unique, inverse = np.unique(wanted, return_inverse=True)
        body: Body = "human" if take.body == "human" else "robot"
        source = self.sources[body]
        if take.mirrored and other_side(view) in source.views:  # what the other wrist has seen
            view = other_side(view)
        frames = source.frames(take.episode, view, unique.tolist(), self.config.image_size)
        return altered(frames, take)[inverse]

    def _demos(self, indices: Sequence[int]) -> _Decoded:
        takes, clips = self.takes, []
        body = BODIES[int(takes.body[indices[0]])]
        columns, _ = view_columns(self.sources[body], self.config)
        for index in indices:
            episode, version = int(takes.episode[index]), int(takes.version[index])
            take = self._take(body, episode, version, demo_length(self.config.couple))
            wanted = take.frames[grid_frames(len(take), self.config.couple)]
            clips.append(np.stack([self._frames(take, view, wanted) for view in columns]))
        return _Decoded(frames=np.stack(clips), columns=list(columns.values()))

    def _clips(self, indices: Int[np.ndarray, " B"]) -> _Decoded:
        rows = self.rows
        columns, _ = view_columns(self.sources["robot"], self.config)
        keys = np.stack([rows.episode[indices], rows.version[indices]])
        runs = np.split(indices, np.flatnonzero(np.diff(keys).any(0)) + 1)
        clips = [self._take_clips(run, tuple(columns)) for run in runs]
        return _Decoded(frames=np.concatenate(clips), columns=list(columns.values()))

    def _take_clips(
        self, indices: Int[np.ndarray, " B"], views: Sequence[str]
    ) -> UInt8[np.ndarray, "B V T h w 3"]:
        rows = self.rows
        take = self._take("robot", int(rows.episode[indices[0]]), int(rows.version[indices[0]]), None)
        wanted = rows.frames[indices]
        shape = (*wanted.shape, *self.config.image_size, 3)
        return np.stack([self._frames(take, view, wanted.ravel()).reshape(shape) for view in views], axis=1)


def fill(
    store: Store,
    pieces: Sequence[Piece],
    sources: Mapping[Body, EpisodeSource],
    encode: Encode,
    *,
    workers: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> Iterator[int]:
    """Do the pieces that are missing (of one shard); yields the clips of each. Stop and call again at will."""
    mine = [i for i in range(shard[0], len(pieces), shard[1]) if not store.done[i]]
    decoder = Decoder(sources, store.config, store.takes, store.rows)
    for index, decoded in _decoded(decoder, pieces, mine, workers):
        latents = encode(decoded.frames)
        _put(store, pieces[index], latents, decoded.columns)
        store.done[index] = 1
        yield len(decoded.frames)
    for array in (store.demo, store.clip, store.done):
        array.flush()  # type: ignore[attr-defined]


def _put(store: Store, piece: Piece, latents: Float16[np.ndarray, "B F C H W"], columns: list[int]) -> None:
    whole = np.zeros((*latents.shape[:3], store.info.latent[1], latents.shape[4]), np.float16)
    put_views(whole, latents, columns)
    if not piece.takes:
        store.clip[np.array(piece.rows)] = whole
        return
    for take, values in zip(piece.takes, whole, strict=True):
        first = int(store.takes.first[take])
        store.demo[first : first + len(values)] = values


_DECODER: list[Decoder] = []


@dataclass(frozen=True, kw_only=True)
class _Left:
    """Where a process left a piece's frames: in a file in memory, since a pipe would copy them three times."""

    path: Path
    shape: tuple[int, ...]
    columns: list[int]

    def take(self) -> _Decoded:
        """The frames; their file is gone, the memory stays as long as they do."""
        frames = np.memmap(self.path, np.uint8, "r+", shape=self.shape)
        self.path.unlink()
        return _Decoded(frames=frames, columns=self.columns)


def _start(decoder: Decoder) -> None:
    _DECODER.append(decoder)


def _decode(piece: Piece, path: Path) -> _Left:
    decoded = _DECODER[0].decode(piece)
    with path.open("wb") as file:
        file.write(np.ascontiguousarray(decoded.frames).data)
    return _Left(path=path, shape=decoded.frames.shape, columns=decoded.columns)


def _decoded(
    decoder: Decoder, pieces: Sequence[Piece], wanted: Sequence[int], workers: int
) -> Iterator[tuple[int, _Decoded]]:
    if workers == 0:
        for index in wanted:
            yield index, decoder.decode(pieces[index])
        return
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(
            prefix="hostbot-", dir=memory if os.access(memory, os.W_OK) else None
        ) as folder,
        Pool(workers, _start, decoder) as pool,
    ):
        ahead: deque[tuple[int, Future[_Left]]] = deque()
        try:
            for index in wanted:
                ahead.append((index, pool.submit(_decode, pieces[index], Path(folder, str(index)))))
                if len(ahead) > 2 * workers:
                    number, future = ahead.popleft()
                    yield number, future.result().take()
            while ahead:
                number, future = ahead.popleft()
                yield number, future.result().take()
        finally:
            for _, future in ahead:
                future.cancel()

"""Statistics of a dataset's numbers, in bounded memory, and the file that keeps them.

Three passes over the numbers: minimum, maximum, mean and deviation come from the first; quantiles are exact, found
by counting the leading, middle and last bits of float32 numbers in turn, so neither the length of the dataset nor a
wild value matters. LeRobot's own ``stats.json`` is never used: its quantiles are averages of per-episode quantiles
and its image deviations overflow in many datasets.

Legend: N frames, D vector width, H action steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, UInt32

from hostbot.config import from_dict, read_json, to_dict, write_json
from hostbot.data.clean import CleanConfig, moving_frames
from hostbot.geometry import to_relative
from hostbot.types import BadInput, DataError, Embodiment, EpisodeSource

QUANTILES = (0.01, 0.10, 0.50, 0.90, 0.99)
STATE, ACTION, RELATIVE = "observation.state", "action", "action.relative"
_BITS = (11, 11, 10)
"""Bits of a number that each pass fixes."""
_CHUNKS_A_BLOCK = 1024
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class FeatureStats:
    """What one feature's numbers look like, dimension by dimension."""

    min: tuple[float, ...]
    max: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    q01: tuple[float, ...]
    q10: tuple[float, ...]
    q50: tuple[float, ...]
    q90: tuple[float, ...]
    q99: tuple[float, ...]
    count: int


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """All features' statistics with what they were made from, so that a stale file is noticed."""

    format: int
    fingerprint: str
    """Of the whole dataset, whichever of its episodes were used."""
    num_episodes: int
    """Episodes used."""
    num_frames: int
    num_removed: int
    """Static frames left out."""
    horizon: int
    embodiment: Embodiment | None
    features: Mapping[str, FeatureStats]


@dataclass(frozen=True, kw_only=True)
class StatsConfig:
    """What statistics are made of."""

    horizon: int = 32
    """Steps of an action chunk; relative actions reach this far from their reference."""
    clean: CleanConfig | None = field(default_factory=CleanConfig)
    """Static frames are left out, as they are in training; None keeps them."""


def any_rotation(statistics: Statistics) -> Statistics:
    """The same, but rotations are bounded by what any rotation has: six numbers from -1 to 1.

    By recordings in which no hand leans, a policy is bound never to lean one.
    """
    if statistics.embodiment is None:
        raise BadInput("statistics that do not say what their numbers mean have no rotations to be widened")
    places = [where for part, where in statistics.embodiment.slices() if part.kind == "rot6d"]

    def widened(bounds: tuple[float, ...], to: float) -> tuple[float, ...]:
        values = list(bounds)
        for where in places:
            values[where] = [to] * 6
        return tuple(values)

    features = {
        name: replace(
            found,
            min=widened(found.min, -1.0),
            max=widened(found.max, 1.0),
            q01=widened(found.q01, -1.0),
            q99=widened(found.q99, 1.0),
        )
        for name, found in statistics.features.items()
    }
    return replace(statistics, features=features)


def fingerprint(source: EpisodeSource) -> str:
    """A hash of which episodes a dataset has: their number, length and task."""
    digest = hashlib.sha256()
    for index in range(len(source)):
        info = source.episode(index)
        digest.update(f"{info.index}\0{info.length}\0{info.instruction}\n".encode())
    return digest.hexdigest()[:16]


def compute_statistics(
    source: EpisodeSource,
    config: StatsConfig,
    *,
    episodes: Sequence[int] | None = None,
    embodiment: Embodiment | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Statistics:
    """Statistics of state and action and, where the embodiment is known, of chunk-relative actions.

    ``tick`` is called once an episode and pass, for a progress display.
    """
    chosen = range(len(source)) if episodes is None else episodes
    if not len(chosen):
        raise DataError(f"{source.name} has no episodes: there is nothing to make statistics of")
    embodiment = embodiment or source.embodiment
    names = [name for name in (STATE, ACTION) if name in source.widths]
    if not names:
        raise DataError(f"{source.name} has neither {STATE!r} nor {ACTION!r}: there is nothing to normalise")
    _check_embodiment(source, embodiment, names)

    removed = [0]

    def blocks() -> Iterator[Mapping[str, np.ndarray]]:
        removed[0] = 0
        for index in chosen:
            rows, num_removed = _episode_rows(source, index, names, config, embodiment)
            removed[0] += num_removed
            yield rows
            if embodiment is not None and len(rows) == 2:
                yield from _relative_blocks(rows[STATE], rows[ACTION], config.horizon, embodiment)
            tick()

    features = _passes(blocks)
    return Statistics(
        format=_FORMAT,
        fingerprint=fingerprint(source),
        num_episodes=len(chosen),
        num_frames=sum(source.episode(i).length for i in chosen),
        num_removed=removed[0],
        horizon=config.horizon,
        embodiment=embodiment,
        features=features,
    )


def _check_embodiment(source: EpisodeSource, embodiment: Embodiment | None, names: list[str]) -> None:
    if embodiment is None:
        return
    for name in names:
        if source.widths[name] != embodiment.dim:
            raise DataError(
                f"{source.name}: {name} is {source.widths[name]} wide but the embodiment "
                f"{embodiment.name!r} has {embodiment.dim} numbers; name the right one with --embodiment"
            )


def _episode_rows(
    source: EpisodeSource, index: int, names: list[str], config: StatsConfig, embodiment: Embodiment | None
) -> tuple[dict[str, np.ndarray], int]:
    rows = dict(source.rows(index, names))
    removed = 0
    if config.clean is not None and embodiment is not None:
        cleaned = moving_frames(tuple(rows.values()), embodiment, config.clean)
        rows = {name: values[cleaned.kept] for name, values in rows.items()}
        removed = cleaned.num_removed
    return rows, removed


def _relative_blocks(
    state: Float[np.ndarray, "N D"], action: Float[np.ndarray, "N D"], horizon: int, embodiment: Embodiment
) -> Iterator[Mapping[str, np.ndarray]]:
    """Every action of every chunk relative to the state at its start; the last chunks hold the end."""
    for first in range(0, len(state), _CHUNKS_A_BLOCK):
        starts = np.arange(first, min(first + _CHUNKS_A_BLOCK, len(state)))
        steps = np.minimum(starts[:, None] + np.arange(horizon), len(state) - 1)
        chunks = to_relative(action[steps], state[starts], embodiment)
        yield {RELATIVE: chunks.reshape(-1, embodiment.dim)}


def _passes(blocks: Callable[[], Iterator[Mapping[str, np.ndarray]]]) -> dict[str, FeatureStats]:
    moments: dict[str, _Moments] = {}
    quantiles: dict[str, _Quantiles] = {}
    for level in range(len(_BITS)):
        for rows in blocks():
            for name, values in rows.items():
                if level == 0:
                    moments.setdefault(name, _Moments(values.shape[1])).add(values)
                quantiles.setdefault(name, _Quantiles(values.shape[1])).add(values)
        for found in quantiles.values():
            found.descend()
    return {name: found.finish(quantiles[name]) for name, found in moments.items()}


class _Moments:
    """Minimum, maximum, mean and squared deviation, merged block by block without cancellation."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        self.mean, self.squares = np.zeros(width), np.zeros(width)

    def add(self, values: Float[np.ndarray, "N D"]) -> None:
        values = values.astype(np.float64)
        total = self.count + len(values)
        shift = values.mean(0) - self.mean
        self.squares += ((values - values.mean(0)) ** 2).sum(0) + shift**2 * self.count * len(values) / total
        self.mean += shift * len(values) / total
        self.low, self.high = np.minimum(self.low, values.min(0)), np.maximum(self.high, values.max(0))
        self.count = total

    def finish(self, quantiles: _Quantiles) -> FeatureStats:
        def numbers(values: np.ndarray) -> tuple[float, ...]:
            return tuple(float(v) for v in values)

        q01, q10, q50, q90, q99 = (numbers(row.clip(self.low, self.high)) for row in quantiles.finish())
        return FeatureStats(
            min=numbers(self.low),
            max=numbers(self.high),
            mean=numbers(self.mean),
            std=numbers(np.sqrt(self.squares / self.count)),
            q01=q01,
            q10=q10,
            q50=q50,
            q90=q90,
            q99=q99,
            count=self.count,
        )


class _Quantiles:
    """Exact order statistics of float32 numbers: each pass fixes the next bits of those at the wanted ranks.

    A float32's bits, with the sign handled, order as the numbers do. For each quantile the two ranks around it are
    followed, so that the result is numpy's, linear between them.
    """

    def __init__(self, width: int) -> None:
        self.width, self.level, self.count = width, 0, 0
        self.share = np.zeros(len(QUANTILES))
        self.ranks = np.zeros((width, 2 * len(QUANTILES)), np.int64)
        self.inverse = np.zeros_like(self.ranks)
        self.prefix = [np.zeros(1, np.uint32) for _ in range(width)]
        """For each dimension the distinct bits found so far; ``inverse`` says which are each rank's."""
        self._start()

    def _start(self) -> None:
        self.tallies = [np.zeros((len(row), 1 << _BITS[self.level]), np.int64) for row in self.prefix]

    def add(self, values: Float[np.ndarray, "N D"]) -> None:
        """Count the next bits of the numbers that share the bits found so far."""
        self.count += len(values) if self.level == 0 else 0
        bits = _BITS[self.level]
        shift = 32 - sum(_BITS[: self.level + 1])
        keys = _ordered_bits(values.astype(np.float32))
        for mine, prefixes, tally in zip(keys.T, self.prefix, self.tallies, strict=True):
            for prefix, row in zip(prefixes, tally, strict=True):
                same = mine[mine >> np.uint32(shift + bits) == prefix] if self.level else mine
                row += np.bincount(
                    (same >> np.uint32(shift)) & np.uint32((1 << bits) - 1), minlength=len(row)
                )

    def descend(self) -> None:
        """Choose for every rank the digit its number has, and make the next level's prefixes."""
        if self.level == 0:
            position = np.array(QUANTILES) * (self.count - 1)
            self.share = position - np.floor(position)
            self.ranks[:] = np.concatenate([np.floor(position), np.ceil(position)])
        found = np.zeros(self.ranks.shape, np.uint32)
        for d, tally in enumerate(self.tallies):
            below = np.cumsum(tally, axis=1)
            for r, place in enumerate(self.inverse[d]):
                digit = int(np.searchsorted(below[place], self.ranks[d, r], side="right"))
                self.ranks[d, r] -= below[place, digit - 1] if digit else 0
                found[d, r] = (int(self.prefix[d][place]) << _BITS[self.level]) | digit
        split = [np.unique(row, return_inverse=True) for row in found]
        self.prefix = [unique for unique, _ in split]
        self.inverse = np.stack([inverse for _, inverse in split])
        self.level += 1
        if self.level < len(_BITS):
            self._start()

    def finish(self) -> Float[np.ndarray, "Q D"]:
        """The quantiles, once all bits are known."""
        bits = np.stack([row[place] for row, place in zip(self.prefix, self.inverse, strict=True)], axis=1)
        low, high = _numbers(bits).astype(np.float64).reshape(2, len(QUANTILES), self.width)
        return low + (high - low) * self.share[:, None]


def _ordered_bits(values: Float32[np.ndarray, "*B"]) -> UInt32[np.ndarray, "*B"]:
    """Integers that order as the float32 numbers do."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return np.where(bits >> np.uint32(31), ~bits, bits | np.uint32(1 << 31))


def _numbers(keys: UInt32[np.ndarray, "*B"]) -> Float32[np.ndarray, "*B"]:
    """The inverse of :func:`_ordered_bits`."""
    bits = np.where(keys >> np.uint32(31), keys & np.uint32((1 << 31) - 1), ~keys)
    return np.ascontiguousarray(bits).view(np.float32)


def statistics_path(root: Path) -> Path:
    """Where a dataset keeps its statistics."""
    return root / "meta" / "hostbot" / "statistics.json"


def save_statistics(statistics: Statistics, path: Path, *, overwrite: bool = False) -> None:
    """Write statistics once; a second time only if told to."""
    if path.exists() and not overwrite:
        raise DataError(f"{path} exists; statistics are written once, pass --overwrite to replace them")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, to_dict(statistics))


def load_statistics(path: Path, source: EpisodeSource | None = None) -> Statistics:
    """Statistics from a file; refused when missing, unreadable, or made from other data than ``source``."""
    if not path.exists():
        raise DataError(f"{path} is missing: statistics are required, write them with `hostbot data stats`")
    statistics = from_dict(Statistics, read_json(path, DataError), str(path))
    if statistics.format != _FORMAT:
        raise DataError(
            f"{path} has format {statistics.format}, this version reads {_FORMAT}: write it again"
        )
    for name, feature in statistics.features.items():
        numbers = [v for key, v in to_dict(feature).items() if key != "count"]
        sound = len({len(row) for row in numbers}) == 1 and np.isfinite(np.array(numbers)).all()
        if not sound or (np.array(feature.min) > feature.max).any():
            raise DataError(f"{path}: the numbers of {name!r} are not statistics; write them again")
    if source is not None:
        _check_fresh(path, statistics, source)
    return statistics


def _check_fresh(path: Path, statistics: Statistics, source: EpisodeSource) -> None:
    for name, feature in statistics.features.items():
        width = source.widths.get(ACTION if name == RELATIVE else name)
        if width != len(feature.min):
            raise DataError(
                f"{path}: {name!r} has {len(feature.min)} dimensions, but {source.name} has {width}: "
                "these statistics are another dataset's"
            )
    found = fingerprint(source)
    if found != statistics.fingerprint:
        raise DataError(
            f"{path} was made when {source.name} had other episodes "
            f"({statistics.fingerprint}, now {found}): run `hostbot data stats --overwrite`"
        )

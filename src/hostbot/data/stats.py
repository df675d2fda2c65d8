"""Statistics of a dataset's numbers, in bounded memory, and the file that keeps them.

Two passes: the first finds minimum, maximum, mean and deviation; the second fills a histogram of 65,536
bins between minimum and maximum, so a quantile is right to 1/65,536 of the range however long the
dataset is. LeRobot's own ``stats.json`` is never used: its quantiles are averages of per-episode
quantiles and its image deviations overflow in many datasets.

Legend: N frames, D vector width, H action steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float

from hostbot.config import from_dict, read_json, to_dict, write_json
from hostbot.data.clean import CleanConfig, moving_frames
from hostbot.geometry import to_relative
from hostbot.types import DataError, Embodiment, EpisodeSource

QUANTILES = (0.01, 0.10, 0.50, 0.90, 0.99)
STATE, ACTION, RELATIVE = "observation.state", "action", "action.relative"
_BINS = 1 << 16
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
    num_episodes: int
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


def fingerprint(source: EpisodeSource, episodes: Sequence[int]) -> str:
    """A hash of which episodes there are: their number, length and task."""
    digest = hashlib.sha256()
    for index in episodes:
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

    features = _two_passes(blocks)
    return Statistics(
        format=_FORMAT,
        fingerprint=fingerprint(source, chosen),
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


def _two_passes(blocks: Callable[[], Iterator[Mapping[str, np.ndarray]]]) -> dict[str, FeatureStats]:
    moments: dict[str, _Moments] = {}
    for rows in blocks():
        for name, values in rows.items():
            moments.setdefault(name, _Moments(values.shape[1])).add(values)
    histograms = {name: _Histogram(found.low, found.high) for name, found in moments.items()}
    for rows in blocks():
        for name, values in rows.items():
            histograms[name].add(values)
    return {name: found.finish(histograms[name]) for name, found in moments.items()}


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

    def finish(self, histogram: _Histogram) -> FeatureStats:
        def numbers(values: np.ndarray) -> tuple[float, ...]:
            return tuple(float(v) for v in values)

        q01, q10, q50, q90, q99 = (numbers(histogram.quantile(q)) for q in QUANTILES)
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


class _Histogram:
    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        self.low, self.width = low, np.where(high > low, high - low, 1.0)
        self.counts = np.zeros((len(low), _BINS), np.int64)

    def add(self, values: Float[np.ndarray, "N D"]) -> None:
        bins = ((values.astype(np.float64) - self.low) / self.width * _BINS).astype(np.int64)
        bins = bins.clip(0, _BINS - 1) + np.arange(len(self.low)) * _BINS
        self.counts += np.bincount(bins.ravel(), minlength=self.counts.size).reshape(self.counts.shape)

    def quantile(self, q: float) -> Float[np.ndarray, " D"]:
        """Linear within the bin that holds the q-th value; never outside the values seen."""
        below = np.cumsum(self.counts, axis=1)
        rank = q * (below[:, -1] - 1) + 0.5
        found = (below < rank[:, None]).sum(1).clip(max=_BINS - 1)
        places = np.arange(len(found))
        inside = self.counts[places, found]
        share = (rank - (below[places, found] - inside)) / np.maximum(inside, 1)
        constant = inside == below[:, -1]
        return self.low + np.where(constant, 0, (found + share.clip(0, 1)) / _BINS * self.width)


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
        widths = {
            len(values) for values in (feature.min, feature.max, feature.q01, feature.q99, feature.mean)
        }
        numbers = (
            np.array([feature.min, feature.max, feature.q01, feature.q99]) if len(widths) == 1 else np.nan
        )
        if not np.isfinite(numbers).all() or (np.array(feature.min) > feature.max).any():
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
    if statistics.num_episodes == len(source):
        found = fingerprint(source, range(len(source)))
        if found != statistics.fingerprint:
            raise DataError(
                f"{path} was made from other episodes than {source.name} has now "
                f"({statistics.fingerprint} and {found}): run `hostbot data stats --overwrite`"
            )

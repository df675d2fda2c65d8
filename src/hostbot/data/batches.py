"""Batches out of stores of samples: drawn from (seed, step, micro-batch) alone, gathered where the latents lie.

Everything random in a batch is a function of the seed, the step and the micro-batch's number in the step. So the
order of data needs no state: a resumed run draws what the interrupted one would have, on any number of ranks.

Legend: B samples of a micro-batch, G samples that share a window, R rows, A takes, V views, C H W a latent frame,
n latents of a window, H action steps, D action width, L text tokens, t text width.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor

from hostbot import couple
from hostbot.data.samples import Store
from hostbot.types import BadInput

_MICROS, _STEPS = 1 << 12, 1 << 40


@dataclass(frozen=True, kw_only=True)
class DrawConfig:
    """How samples are drawn from stores."""

    micro: int
    """Samples B of a micro-batch."""
    shared: int = 1
    """Samples G that share one window of one demonstration."""
    decisions: float = 0.5
    """Share of samples drawn from decision points."""
    demo_dropout: float = 0.5
    """How often a micro-batch has no demonstration."""
    text_dropout: float = 0.0
    """How often a micro-batch that has a demonstration has no instruction."""
    misled: float = 0.0
    """How often one that has a demonstration has instructions of samples drawn at random, so that the demonstration is
    what counts."""
    one_view: float = 0.3
    """How often only one view of the demonstrations is shown (a phone's video has one)."""
    exchange: bool = False
    """Any robot with any demonstration that has the same instruction, whichever was planned with which: many more
    pairs than rows. For stores with one state an episode, where all states of an instruction are at the same point."""

    shift: int = 0
    """Latents by which what a robot sees, and apart from it what its demonstration shows, is moved at most, across and
    down: pictures are not learned by heart as easily. The next contact is moved with it, actions are not; for
    matching."""

    def __post_init__(self) -> None:
        for name in ("demo_dropout", "text_dropout", "misled", "one_view"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(f"{name} is a share of batches, 0 to 1, got {getattr(self, name):g}")
        if self.text_dropout + self.misled > 1:
            raise BadInput(
                f"no instruction in {self.text_dropout:g} of batches and others' in {self.misled:g}: together they are "
                "0 to 1"
            )
        if self.shift < 0:
            raise BadInput(f"pictures are moved by 0 latents or more, got {self.shift}")
        if self.micro < 1 or self.shared < 1 or self.micro % self.shared:
            raise BadInput(
                f"a micro-batch of {self.micro} samples cannot be cut into windows of {self.shared}: give a multiple"
            )


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One micro-batch on its device; latents are float16 as stored."""

    observation: Float[Tensor, "B C 1 H W"]
    future: Float[Tensor, "B C K H W"]
    demo: Float[Tensor, "B/G C n H W"] | None
    """One for every G samples, in order."""
    views: tuple[int, ...] | None
    proprio: Float32[Tensor, "B D"]
    action: Float32[Tensor, "B H D"]
    text: Float32[Tensor, "B L t"]
    p: Float32[Tensor, " B"]
    """Localisation in [-1, 1]."""
    point: Float32[Tensor, "B V 2"]
    seen: Bool[Tensor, "B V"]
    decision: Bool[Tensor, " B"]
    rows: Int64[Tensor, " B"]
    drill: bool = False
    """Only where to point is learned from it."""


def generator_for(seed: int, step: int, micro: int, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator of one micro-batch of one step, the same on every machine and number of ranks."""
    if not (0 <= micro < _MICROS and 0 <= step < _STEPS):
        raise BadInput(f"step {step} or micro-batch {micro} is out of range")
    mixed = np.random.SeedSequence([seed, step, micro]).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(mixed >> np.uint64(1)))


def moved(
    latents: Float[Tensor, "B C F H W"], by: Int64[Tensor, "B 2"], num_views: int
) -> Float[Tensor, "B C F H W"]:
    """Every view moved across and down; what comes in at an edge is what was last there."""
    views = latents.unflatten(3, (num_views, -1))
    height, width = views.shape[4:]
    rows, columns = (
        (torch.arange(side, device=by.device) - by[:, k : k + 1]).clamp(0, side - 1)
        for k, side in ((1, height), (0, width))
    )
    places = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)
    flat = views.flatten(4)
    out: Tensor = flat.gather(4, places[:, None, None, None].expand(flat.shape))
    return out.unflatten(4, (height, width)).flatten(3, 4)


class Pool:
    """One store made ready to be drawn from, on a device or mapped from the disk."""

    def __init__(
        self, store: Store, texts: Float32[Tensor, "I L t"], device: torch.device, resident: bool
    ) -> None:
        if len(texts) != len(store.info.texts):
            raise BadInput(f"{store.folder} has {len(store.info.texts)} instructions, got {len(texts)}")
        store.whole()
        self.store, self.device, self.resident = store, device, resident
        self.couple = store.config.couple
        rows, takes = store.rows, store.takes
        where = device if resident else torch.device("cpu")
        self._demo, self._clip = (_tensor(a, where, resident) for a in (store.demo, store.clip))
        self._state, self._action, self._point, self._seen = (
            torch.from_numpy(a).to(where) for a in (rows.state, rows.action, rows.point, rows.seen)
        )
        self._text = texts.to(where)
        self._row_text = torch.from_numpy(rows.text).long()
        self._take, self._q = torch.from_numpy(rows.take).long(), torch.from_numpy(rows.q).long()
        self._decision = torch.from_numpy(rows.decision)
        self._first = torch.from_numpy(takes.first)
        self._latents = torch.from_numpy(takes.latents).long()
        self._span = int(rows.q.max()) + self.couple.window + 2
        self._keys = self._take * self._span + self._q
        self._groups = [
            _Group(
                low,
                high,
                tuple(np.flatnonzero(takes.present[rows.take[low]]).tolist()),
                self._decision,
                self._row_text,
            )
            for low, high in _runs(np.packbits(takes.present, axis=1)[:, 0][rows.take])
        ]
        self._sizes = torch.tensor([float(g.high - g.low) for g in self._groups])
        self._side = int(self._clip.shape[-1])

    def __len__(self) -> int:
        return len(self.store.rows)

    def draw(self, config: DrawConfig, g: torch.Generator) -> Batch:
        """One micro-batch."""
        if config.shift > self._side // 2:
            raise BadInput(
                f"pictures of {self._side} latents cannot be moved by {config.shift}: half of it at most"
            )
        group = self._groups[int(torch.multinomial(self._sizes, 1, generator=g))]
        coins = torch.rand(3, generator=g).tolist()
        has_demo = coins[0] >= config.demo_dropout
        has_text = not has_demo or coins[1] >= config.text_dropout
        view = int(torch.randint(len(group.views), (1,), generator=g))
        views = (group.views[view],) if coins[2] < config.one_view else group.views
        rows, leads, f0 = self._draw_rows(group, config, g)
        told = rows
        if has_demo and 0 <= coins[1] - config.text_dropout < config.misled:
            others = torch.randint(len(self), (config.micro // config.shared,), generator=g)
            told = others.repeat_interleave(config.shared)
        batch = self._gather(rows, leads, f0, told, views if has_demo else None, has_text, config)
        return self._moved(batch, config.shift, g) if config.shift else batch

    def _moved(self, batch: Batch, most: int, g: torch.Generator) -> Batch:
        """A batch whose pictures are a little elsewhere, and what is pointed at with them."""
        num_views, (height, width) = batch.point.shape[1], batch.observation.shape[3:]
        own, theirs = (
            self._to_device(torch.randint(-most, most + 1, (count, 2), generator=g))
            for count in (len(batch.point), 0 if batch.demo is None else len(batch.demo))
        )
        sides = torch.stack(
            [torch.full_like(own[:, 0], side) for side in (width, height // num_views)], dim=1
        )
        point = batch.point + (own / sides)[:, None]
        return replace(
            batch,
            observation=moved(batch.observation, own, num_views),
            future=moved(batch.future, own, num_views),
            demo=None if batch.demo is None else moved(batch.demo, theirs, num_views),
            point=point,
            seen=batch.seen & (point >= 0).all(-1) & (point < 1).all(-1),
        )

    def _draw_rows(
        self, group: _Group, config: DrawConfig, g: torch.Generator
    ) -> tuple[Int64[Tensor, " B"], Int64[Tensor, " B"], Int64[Tensor, " B"]]:
        """Rows that robots are taken of, rows that their demonstrations are taken of, and where windows begin."""
        windows = config.micro // config.shared
        low, high = (torch.full((windows,), end) for end in (group.low, group.high))
        anchor = self._pick(group, low, high, config, g)
        offset, loose = torch.rand(2, windows, generator=g)
        take, q = self._take[anchor], self._q[anchor]
        f0 = couple.draw_window(q, self._latents[take], offset, loose, self.couple)
        if config.exchange:
            leads = anchor.repeat_interleave(config.shared)
            return self._alike(group, leads, g), leads, f0.repeat_interleave(config.shared)
        if config.shared == 1:
            return anchor, anchor, f0
        # Rows are sorted by (take, q), so those inside one window are a run.
        keys = self._keys[group.low : group.high]
        at_end = f0 == self._latents[take] - self.couple.latents
        reach = self.couple.window - torch.where(at_end, 0, self.couple.horizon)
        first = take * self._span + self.couple.unit * f0
        last = torch.maximum(first + reach, take * self._span + q)
        low = group.low + torch.searchsorted(keys, first)
        high = group.low + torch.searchsorted(keys, last, right=True)
        spread = [x.repeat_interleave(config.shared - 1) for x in (low, high)]
        others = self._pick(group, spread[0], spread[1], config, g).reshape(windows, -1)
        rows = torch.cat([anchor[:, None], others], dim=1).flatten()
        return rows, rows, f0.repeat_interleave(config.shared)

    @cached_property
    def single(self) -> bool:
        """Whether no episode has states at different points."""
        rows = self.store.rows
        states = np.unique(np.stack([rows.episode, rows.version, rows.frames[:, 0]]), axis=1)
        return bool(states.shape[1] == np.unique(states[:2], axis=1).shape[1])

    def _alike(self, group: _Group, rows: Int64[Tensor, " B"], g: torch.Generator) -> Int64[Tensor, " B"]:
        """For each row any one of the same instruction."""
        if not self.single:
            raise BadInput(
                f"{self.store.folder} has several states of an episode, which are not at the same point of a task: "
                "make it with --states 1 to exchange its robots"
            )
        texts = self._row_text[rows]
        sorted_texts, by_text = group.by_text
        first = torch.searchsorted(sorted_texts, texts)
        count = torch.searchsorted(sorted_texts, texts, right=True) - first
        where = torch.rand(len(rows), generator=g, dtype=torch.float64)
        return by_text[first + (where * count).long()]

    def _pick(
        self,
        group: _Group,
        low: Int64[Tensor, " W"],
        high: Int64[Tensor, " W"],
        config: DrawConfig,
        g: torch.Generator,
    ) -> Int64[Tensor, " W"]:
        """A row of each range, as often a decision point as the config says, where the range has any."""
        coin, where = torch.rand(2, len(low), generator=g, dtype=torch.float64)
        any_row = low + (where * (high - low)).long()
        if len(group.decisions) == 0:
            return any_row
        first = torch.searchsorted(group.decisions, low)
        count = torch.searchsorted(group.decisions, high) - first
        at = (first + (where * count).long()).clamp(max=len(group.decisions) - 1)
        return torch.where((coin < config.decisions) & (count > 0), group.decisions[at], any_row)

    def _gather(
        self,
        rows: Int64[Tensor, " B"],
        leads: Int64[Tensor, " B"],
        f0: Int64[Tensor, " B"],
        told: Int64[Tensor, " B"],
        views: tuple[int, ...] | None,
        has_text: bool,
        config: DrawConfig,
    ) -> Batch:
        at = self._beside(self._clip, rows)
        clip = self._to_device(self._clip[at]).transpose(1, 2)
        demo = None
        if views is not None:
            lead, start = leads[:: config.shared], f0[:: config.shared]
            places = (self._first[self._take[lead]] + start)[:, None] + torch.arange(self.couple.latents)
            demo = self._to_device(self._demo[self._beside(self._demo, places)]).transpose(1, 2)
        text = self._to_device(self._text[self._beside(self._text, self._row_text[told])])
        return Batch(
            observation=clip[:, :, :1],
            future=clip[:, :, 1:],
            demo=demo,
            views=None if views is None or len(views) == self._point.shape[1] else views,
            proprio=self._to_device(self._state[at]),
            action=self._to_device(self._action[at]),
            text=text if has_text else torch.zeros_like(text),
            p=self._to_device(2 * couple.progress(self._q[leads], f0, self.couple) - 1),
            point=self._to_device(self._point[at]),
            seen=self._to_device(self._seen[at]),
            decision=self._to_device(self._decision[rows]),
            rows=rows,
        )

    def _beside(self, latents: Tensor, places: Int64[Tensor, "*B"]) -> Int64[Tensor, "*B"]:
        """Places where the latents lie. Nobody waits for them: a plain copy would wait for the step under way."""
        return self._to_device(places) if latents.device.type == "cuda" else places

    def _to_device(self, x: Tensor) -> Tensor:
        if self.device.type == "cuda" and x.device.type == "cpu":
            return x.pin_memory().to(self.device, non_blocking=True)
        return x.to(self.device)


class _Group:
    """Rows whose demonstrations have the same views."""

    def __init__(
        self,
        low: int,
        high: int,
        views: tuple[int, ...],
        decision: Bool[Tensor, " R"],
        text: Int64[Tensor, " R"],
    ) -> None:
        self.low, self.high, self.views = low, high, views
        self.decisions = low + torch.nonzero(decision[low:high])[:, 0]
        self._text = text

    @cached_property
    def by_text(self) -> tuple[Int64[Tensor, " R"], Int64[Tensor, " R"]]:
        """Instructions in order, and the rows they are of."""
        texts, order = torch.sort(self._text[self.low : self.high], stable=True)
        return texts, self.low + order


def _runs(values: np.ndarray) -> list[tuple[int, int]]:
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return list(itertools.pairwise(edges))


def _tensor(array: np.ndarray, device: torch.device, resident: bool) -> Tensor:
    """The array in memory, or a view of its file that is read as it is asked for."""
    return torch.from_numpy(np.array(array) if resident else array).to(device)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Several pools, each drawn as often as its weight says."""

    pools: Sequence[Pool]
    weights: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.pools) != len(self.weights) or not self.pools or min(self.weights) <= 0:
            raise BadInput(
                f"{len(self.pools)} stores of samples need as many weights above 0, got {list(self.weights)}"
            )

    def draw(self, config: DrawConfig, seed: int, step: int, micro: int) -> Batch:
        """The micro-batch of this number."""
        g = generator_for(seed, step, micro)
        chosen = int(torch.multinomial(torch.tensor(self.weights), 1, generator=g))
        return self.pools[chosen].draw(config, g)

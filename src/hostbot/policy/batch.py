"""Many robots in one pass: rows of equal layout share a cascade, filled up to one of a few batch sizes.

Legend: B rows, C latent channels, F latent frames of a window, V views, H W latents, a state width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from hostbot.model.host import HostModel
from hostbot.policy.cascade import Cascade
from hostbot.policy.contract import CascadeConfig, CascadeOutput, Noise
from hostbot.policy.skill import Skill
from hostbot.types import BadInput

P = TypeVar("P", bound="Place")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where in which demonstration a robot is."""

    skill: Skill
    first: int
    """Latent frame at which its window starts."""
    views: tuple[int, ...]
    """Views of its demonstration; empty without one."""


@dataclass(frozen=True, kw_only=True)
class Row(Place):
    """What one robot brings to a pass."""

    observation: Float32[Tensor, "C 1 H W"]
    proprio: Float32[Tensor, " a"]
    generator: torch.Generator
    expected: tuple[float, float] = (-math.inf, math.inf)
    """Between which values its place in the window can be expected, as the model tells it, -1 to 1."""


class Rigs:
    """Cascades of the batch sizes that were needed so far, each remembering what it was last told and shown."""

    def __init__(self, model: HostModel, config: CascadeConfig, batch_sizes: Sequence[int]) -> None:
        if not batch_sizes or min(batch_sizes) < 1:
            raise BadInput(f"batch sizes are whole numbers from 1 up, got {tuple(batch_sizes)}")
        self._model, self._config, self._sizes = model, config, sorted(set(batch_sizes))
        self._rigs: dict[int, _Rig] = {}

    def act(self, rows: Sequence[Row]) -> list[CascadeOutput]:
        """One cycle for every row, in the rows' order; each output is a batch of one."""
        out: dict[int, CascadeOutput] = {}
        for layout in dict.fromkeys(row.views for row in rows):
            places = [i for i, row in enumerate(rows) if row.views == layout]
            for begin in range(0, len(places), self._sizes[-1]):
                part = places[begin : begin + self._sizes[-1]]
                results = self._rig(len(part)).act([rows[i] for i in part])
                out |= dict(zip(part, results, strict=True))
        return [out[i] for i in range(len(rows))]

    def prepare(self, places: Sequence[Place]) -> None:
        """Watch what the next cycle of these robots needs, if one pass will serve them."""
        if 0 < len(places) <= self._sizes[-1] and len({place.views for place in places}) == 1:
            self._rig(len(places)).prepare(places)

    def _rig(self, count: int) -> _Rig:
        size = next(size for size in self._sizes if size >= count)
        if size not in self._rigs:
            self._rigs[size] = _Rig(Cascade(self._model, self._config, batch=size))
        return self._rigs[size]


class _Rig:
    """One cascade; the instruction and the window are given again only when a row's have changed."""

    def __init__(self, cascade: Cascade) -> None:
        self.cascade = cascade
        self._told: list[Skill] = []
        self._shown: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def act(self, rows: Sequence[Row]) -> list[CascadeOutput]:
        count, size = len(rows), self.cascade.batch
        filled = self._filled(rows)
        watch_ms = self.prepare(rows)
        noise = [self._draw(row.generator) for row in rows]
        noise += noise[:1] * (size - count)
        out = self.cascade.act(
            torch.stack([row.observation for row in filled]),
            torch.stack([row.proprio for row in filled]).to(self.cascade.device),
            Noise(
                p=torch.stack([one.p for one in noise]),
                o=torch.stack([one.o for one in noise]),
                a=torch.stack([one.a for one in noise]),
            ),
            timed=True,
            expected=(
                torch.tensor([row.expected[0] for row in filled]),
                torch.tensor([row.expected[1] for row in filled]),
            ),
        )
        timing = {"demo": watch_ms, **out.timing_ms}
        p, samples, confidence, a = out.p.cpu(), out.p_samples.cpu(), out.confidence.cpu(), out.a.cpu()
        return [
            CascadeOutput(
                p=p[i : i + 1],
                p_samples=samples[i : i + 1],
                confidence=confidence[i : i + 1],
                o=None if out.o is None else out.o[i : i + 1],
                a=a[i : i + 1],
                timing_ms=timing,
            )
            for i in range(count)
        ]

    def _filled(self, rows: Sequence[P]) -> list[P]:
        return [*rows, *[rows[0]] * (self.cascade.batch - len(rows))]

    def prepare(self, places: Sequence[Place]) -> float:
        """Instruct and watch where something changed; milliseconds of watching."""
        rows = self._filled(places)
        skills = [row.skill for row in rows]
        if len(self._told) != len(skills) or any(a is not b for a, b in zip(self._told, skills, strict=True)):
            self._told, self._shown = [], None  # what fails half way is done again
            self.cascade.instruct(torch.from_numpy(np.stack([skill.text for skill in skills])))
            self._told = skills
        shown = (rows[0].views, tuple(row.first for row in rows))
        if shown == self._shown:
            return 0.0
        self._shown = None
        demo = None if not rows[0].views else torch.stack([self._slice(row) for row in rows])
        spent = self.cascade.watch(demo, rows[0].views or None, timed=True)
        self._shown = shown
        return spent

    def _slice(self, row: Place) -> Float32[Tensor, "C F H W"]:
        """A window of a demonstration on the whole grid of views; those it has not are zero and never looked at."""
        grid, latents = self.cascade.model.config.grid, row.skill.latents
        assert latents is not None
        whole = torch.zeros(grid.latents(grid.demo_latents))
        window = torch.from_numpy(latents[:, row.first : row.first + grid.demo_latents])
        rows = grid.view_height
        for place, view in enumerate(row.views):
            whole[:, :, view * rows : (view + 1) * rows] = window[:, :, place * rows : (place + 1) * rows]
        return whole

    def _draw(self, generator: torch.Generator) -> Noise:
        """A row's noise from its own generator, so that it does not depend on who else is in the batch."""
        config, grid = self.cascade.model.config, self.cascade.model.config.grid
        return Noise(
            p=torch.randn(self.cascade.config.num_localisations, generator=generator),
            o=torch.randn(grid.latents(grid.future_latents), generator=generator),
            a=torch.randn(config.horizon, config.action_dim, generator=generator),
        )

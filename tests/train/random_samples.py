"""Batches of random numbers in a model's shapes, for tests that need no data."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hostbot.data.batches import Batch, DrawConfig, generator_for
from hostbot.model.host import HostConfig


@dataclass(frozen=True, kw_only=True)
class RandomSamples:
    """What ``data.batches.Mixture`` is to a stage."""

    config: HostConfig
    shared: int
    demo: bool
    device: torch.device

    def draw_config(self, micro: int) -> DrawConfig:
        return DrawConfig(micro=micro, shared=self.shared)

    def draw(self, config: DrawConfig, seed: int, step: int, micro: int) -> Batch:
        g, size, model = generator_for(seed, step, micro), config.micro, self.config
        grid = model.grid

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=g).to(self.device)

        windows = size // config.shared
        return Batch(
            observation=normal(size, *grid.latents(1)),
            future=normal(size, *grid.latents(grid.future_latents)),
            demo=normal(windows, *grid.latents(grid.demo_latents)) if self.demo else None,
            views=None,
            proprio=normal(size, model.state_dim),
            action=normal(size, model.horizon, model.action_dim).clamp(-1, 1),
            text=normal(size, model.text_length, model.video.text_dim),
            p=normal(size).clamp(-1, 1),
            point=torch.rand(size, grid.num_views, 2, generator=g).to(self.device),
            seen=torch.ones(size, grid.num_views, dtype=torch.bool, device=self.device),
            decision=torch.ones(size, dtype=torch.bool, device=self.device),
            rows=torch.arange(size),
        )

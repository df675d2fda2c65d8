"""A two-layer model, small enough to compare whole tensors in milliseconds."""

from __future__ import annotations

from dataclasses import replace

import torch

from hostbot.model.experts import ExpertConfig
from hostbot.model.host import Context, HostConfig, HostModel, Noised, Targets
from hostbot.model.tokens import GridConfig

VIDEO = ExpertConfig(dim=48, ffn_dim=96, num_layers=2, num_heads=4, head_dim=12, text_dim=32, freq_dim=16)
ACTION = replace(VIDEO, dim=24, ffn_dim=40)
GRID = GridConfig(latent_channels=6, num_views=3, view_height=4, view_width=6, demo_latents=3)
CONFIG = HostConfig(
    video=VIDEO, action=ACTION, grid=GRID, action_dim=5, state_dim=7, horizon=8, text_length=9
)


def small_model(seed: int = 0, config: HostConfig = CONFIG) -> HostModel:
    """Random weights everywhere, gates and biases too, so that nothing is hidden by an initial zero."""
    torch.manual_seed(seed)
    model = HostModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def random_context(batch: int = 2, seed: int = 1, demo: bool = True, config: HostConfig = CONFIG) -> Context:
    g = torch.Generator().manual_seed(seed)
    grid = config.grid
    latents = torch.randn(batch, *grid.latents(grid.demo_latents), generator=g)
    return Context(
        observation=torch.randn(batch, *grid.latents(1), generator=g),
        proprio=torch.randn(batch, config.state_dim, generator=g),
        text=torch.randn(batch, config.text_length, config.video.text_dim, generator=g),
        demo=latents if demo else None,
    )


def random_targets(batch: int = 2, seed: int = 2, config: HostConfig = CONFIG) -> Targets:
    g = torch.Generator().manual_seed(seed)
    return Targets(
        p=torch.rand(batch, generator=g) * 2 - 1,
        o=torch.randn(batch, *config.grid.latents(config.grid.future_latents), generator=g),
        a=torch.randn(batch, config.horizon, config.action_dim, generator=g),
    )


def random_noised(model: HostModel, batch: int = 2, seed: int = 3) -> Noised:
    g = torch.Generator().manual_seed(seed)
    return model.noise(random_targets(batch, config=model.config), g)[0]

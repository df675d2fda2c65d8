"""Models of a preset's size with random weights, and inputs for them."""

from __future__ import annotations

import measure
import torch

from hostbot.model.checkpoint import empty_model
from hostbot.model.host import Context, HostConfig, HostModel
from hostbot.model.sizes import tiny_model, wan5b_model

PRESETS = {"tiny": tiny_model, "wan5b": wan5b_model}


def build(config: HostConfig, device: torch.device, dtype: torch.dtype) -> HostModel:
    model = empty_model(config, dtype, device)
    measure.random_weights(model)
    return model.eval()


TOLD = 32
"""Tokens of an instruction of some twenty words; the encoder pads with zeros."""


def inputs(config: HostConfig, device: torch.device, told: int = TOLD) -> Context:
    """Random inputs; the instruction has ``told`` tokens, the others are padding."""
    g = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g, device=device)

    text = normal(1, config.text_length, config.video.text_dim)
    text[:, told:] = 0
    return Context(
        observation=normal(1, *config.grid.latents(1)),
        proprio=normal(1, config.state_dim),
        text=text,
        demo=normal(1, *config.grid.latents(config.grid.demo_latents)),
    )

"""Rectified flow: the path from data to noise, the loss on its velocity, and Euler's way back.

Legend: B batch, S solver steps, sigma noise level (0 data, 1 noise), s shift of a schedule.
Levels, schedules and solver states are float32 whatever the weights are.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float32
from torch import Tensor

NUM_TIMESTEPS = 1000
"""Wan embeds a level as the timestep ``1000 * sigma``."""


def shift(u: Float[Tensor, "*B"], s: float) -> Float[Tensor, "*B"]:
    """Bend uniform levels towards noise: phi(u, s) = s u / (1 + (s - 1) u)."""
    return s * u / (1 + (s - 1) * u)


def draw_sigma(
    batch: int, s: float, generator: torch.Generator, device: torch.device
) -> Float32[Tensor, " B"]:
    """Levels of the shifted schedule for a batch, each sample its own."""
    return shift(torch.rand(batch, generator=generator, device=device, dtype=torch.float32), s)


def sigma_weight(sigma: Float[Tensor, "*B"], sigma_max: float = 1.0) -> Float[Tensor, "*B"]:
    """The paper's Gaussian weight of a level, largest at the middle of the schedule."""
    return torch.exp(-2 * ((sigma - sigma_max / 2) / sigma_max) ** 2)


def _levels(sigma: Float[Tensor, " B"], like: Float[Tensor, " B *D"]) -> Float[Tensor, " B *ones"]:
    return sigma.reshape(-1, *(1,) * (like.ndim - 1))


def add_noise(
    clean: Float[Tensor, " B *D"], noise: Float[Tensor, " B *D"], sigma: Float[Tensor, " B"]
) -> Float[Tensor, " B *D"]:
    """The point of the straight path at each sample's level, eq:noise."""
    level = _levels(sigma, clean)
    return (1 - level) * clean + level * noise


def velocity_loss(
    velocity: Float[Tensor, " B *D"],
    clean: Float[Tensor, " B *D"],
    noise: Float[Tensor, " B *D"],
    weight: Float[Tensor, " B"],
) -> Float32[Tensor, ""]:
    """Weighted squared error against the path's velocity ``noise - clean``, eq:flow_matching.

    The paper writes a squared norm; this is its mean over elements, so that lambda does not depend on sizes.
    """
    error = (velocity.float() - (noise.float() - clean.float())) ** 2
    return (error.reshape(len(error), -1).mean(1) * weight).mean()


def schedule(num_steps: int, s: float) -> Float32[Tensor, " S+1"]:
    """Levels from 1 to 0, evenly spaced before the shift; computed in float64 and rounded once."""
    if num_steps < 1:
        raise ValueError(f"a schedule needs at least one step, got {num_steps}")
    return shift(torch.linspace(1, 0, num_steps + 1, dtype=torch.float64), s).float()


def euler(
    state: Float32[Tensor, "*D"], velocity: Float[Tensor, "*D"], sigma: float, sigma_next: float
) -> Float32[Tensor, "*D"]:
    """One first-order step of eq:ar_inference's Denoise from one level to the next."""
    return state + (sigma_next - sigma) * velocity.float()

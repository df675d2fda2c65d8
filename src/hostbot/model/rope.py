"""Rotary positions: three axes for video tokens, one for action tokens.

Legend: S tokens, h heads, d head width; a table holds (cos, sin) of d/2 angles per token.
"""

# mypy: allow-untyped-calls
# (torch and safetensors leave a few methods without types)

from __future__ import annotations

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

THETA = 10_000.0


def axis_widths(head_dim: int) -> tuple[int, int, int]:
    """How Wan shares a head between time, height and width: space gets a third an axis, rounded down."""
    spatial = 2 * (head_dim // 6)
    return head_dim - 2 * spatial, spatial, spatial


def _angles(positions: Int[Tensor, " S"], width: int) -> Float[Tensor, "S width/2"]:
    rates = THETA ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.outer(positions.double(), rates)


def _table(angles: Float[Tensor, "S d/2"]) -> Float32[Tensor, "S d/2 2"]:
    return torch.stack([angles.cos(), angles.sin()], dim=-1).float()


def grid_rope(positions: Int[Tensor, "S 3"], head_dim: int) -> Float32[Tensor, "S d/2 2"]:
    """Table of (time, height, width) positions."""
    widths = axis_widths(head_dim)
    return _table(torch.cat([_angles(positions[:, i], width) for i, width in enumerate(widths)], dim=1))


def line_rope(positions: Int[Tensor, " S"], head_dim: int) -> Float32[Tensor, "S d/2 2"]:
    """Table of positions along one axis."""
    return _table(_angles(positions, head_dim))


def rotate(x: Float[Tensor, "B S n h d"], table: Float32[Tensor, "S d/2 2"]) -> Float32[Tensor, "B S n h d"]:
    """Turn each pair of neighbouring numbers by its token's angle, in float32 (n: queries and keys)."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = table[None, :, None, None].unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)

"""One expert: a stack of Wan blocks with its embeddings, wide for video, narrow for actions.

Legend: B batch, S tokens, G time groups, L context tokens, h heads, d head width, w expert width.
"""

# mypy: allow-untyped-calls
# (torch and safetensors leave a few methods without types)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor, nn

from hostbot.model.layers import (
    GATE_BIAS,
    Linear,
    RMSNorm,
    TextEmbedding,
    TimeEmbedding,
    attend,
    gate_rows,
    layer_norm,
    spread,
)
from hostbot.model.rope import rotate
from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class ExpertConfig:
    """Sizes of one expert; both experts of a model share depth, heads and head width."""

    dim: int
    ffn_dim: int
    num_layers: int
    num_heads: int
    head_dim: int
    text_dim: int
    freq_dim: int = 256
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.head_dim % 2 or self.freq_dim % 2:
            raise BadInput(f"head_dim {self.head_dim} and freq_dim {self.freq_dim} must be even")

    @property
    def inner_dim(self) -> int:
        """Width of all heads together."""
        return self.num_heads * self.head_dim


Modulation = Float32[Tensor, "#B G 6 w"]
Keys = Float[Tensor, "2 B L h d"]
"""Keys and values in one tensor."""
Heads = Float[Tensor, "B S h d"]
Projection = tuple[Heads, Heads, Heads, Float[Tensor, "B S h"]]
"""Queries, keys, values, head gates."""


class Block(nn.Module):
    """A Wan block cut at its attention: ``project`` makes queries, keys and values; ``finish`` does the rest.

    Between the two the joint attention of eq:mot_attn takes place, over both experts' tokens. The tokens
    themselves (the residual stream) are float32; products are computed in the weights' type or autocast's.
    """

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__()
        dim, inner = config.dim, config.inner_dim
        self.eps, self.heads = config.eps, (config.num_heads, config.head_dim)
        self.inner = inner
        self.qkvg = Linear(dim, 3 * inner + gate_rows(config.num_heads))
        self.norm_q, self.norm_k = RMSNorm(inner, config.eps), RMSNorm(inner, config.eps)
        self.out = Linear(inner, dim)
        self.norm_cross = nn.LayerNorm(dim, config.eps)
        self.cross_q, self.cross_kv = Linear(dim, inner), Linear(dim, 2 * inner)
        self.cross_norm_q, self.cross_norm_k = RMSNorm(inner, config.eps), RMSNorm(inner, config.eps)
        self.cross_out = Linear(inner, dim)
        self.ffn_in, self.ffn_out = Linear(dim, config.ffn_dim), Linear(config.ffn_dim, dim)
        self.table = nn.Parameter(torch.randn(1, 6, dim) / dim**0.5)
        self.open_gates()

    def products(self) -> tuple[nn.Module, ...]:
        """The linear layers, in the order a pass needs them."""
        return self.qkvg, self.out, self.cross_q, self.cross_kv, self.cross_out, self.ffn_in, self.ffn_out

    def open_gates(self) -> None:
        """Head gates start with zero weights and bias 5 (rows that fill up the sixteen are never read)."""
        with torch.no_grad():
            self.qkvg.weight[3 * self.inner :] = 0
            self.qkvg.bias[3 * self.inner :] = GATE_BIAS

    def project(
        self,
        x: Float32[Tensor, "B S w"],
        mod: Modulation,
        widths: Sequence[int],
        rope: Float32[Tensor, "S d/2 2"],
    ) -> Projection:
        """Queries, keys, values and head gates of normed and modulated tokens."""
        shift, scale = (spread(m, widths) for m in (self.table[:, None] + mod).unbind(2)[:2])
        normed = (layer_norm(x, self.eps) * (1 + scale) + shift).to(self.norm_q.weight.dtype)
        fused = self.qkvg(normed)
        # Queries and keys are normed over all heads and turned together: one kernel each for both.
        qk = fused[..., : 2 * self.inner].unflatten(-1, (2, self.inner)).float()
        weight = torch.stack([self.norm_q.weight, self.norm_k.weight]).float()
        qk = F.rms_norm(qk, qk.shape[-1:], eps=self.eps) * weight
        q, k = rotate(qk.unflatten(-1, self.heads), rope).to(fused.dtype).unbind(2)
        v = fused[..., 2 * self.inner : 3 * self.inner].unflatten(-1, self.heads)
        gate = torch.sigmoid(fused[..., 3 * self.inner : 3 * self.inner + self.heads[0]])
        return q, k, v, gate

    def finish(
        self,
        x: Float32[Tensor, "B S w"],
        attended: Float[Tensor, "B S h d"],
        gate: Float[Tensor, "B S h"],
        mod: Modulation,
        widths: Sequence[int],
        context: Keys,
        num_blind: int = 0,
    ) -> Float32[Tensor, "B S w"]:
        """Gate the heads, cross-attend, feed forward; the first ``num_blind`` rows see text only."""
        mods = (self.table[:, None] + mod).unbind(2)[2:]
        gate_attn, shift, scale, gate_ffn = (spread(m, widths) for m in mods)
        attended = self.out((attended * gate[..., None].to(attended.dtype)).flatten(-2))
        x = x + attended.float() * gate_attn
        x = x + self._cross(x, context, num_blind).float()
        normed = (layer_norm(x, self.eps) * (1 + scale) + shift).to(self.norm_q.weight.dtype)
        hidden = F.gelu(self.ffn_in(normed), approximate="tanh")
        return x + self.ffn_out(hidden).float() * gate_ffn

    def _cross(self, x: Float32[Tensor, "B S w"], context: Keys, num_blind: int) -> Float[Tensor, "B S w"]:
        norm = self.norm_cross
        normed = F.layer_norm(x, x.shape[-1:], norm.weight.float(), norm.bias.float(), norm.eps)
        q = self.cross_norm_q(self.cross_q(normed.to(norm.weight.dtype))).unflatten(-1, self.heads)
        k, v = context.to(q.dtype).unbind(0)
        rows = []
        if num_blind > 0:
            rows.append(attend(q[:, :num_blind], k[:, :-1], v[:, :-1]))
        if num_blind < x.shape[1]:
            rows.append(attend(q[:, num_blind:], k, v))
        return self.cross_out((torch.cat(rows, dim=1) if len(rows) > 1 else rows[0]).flatten(-2))

    def context_keys(self, context: Float[Tensor, "B L w"]) -> Keys:
        """Cross-attention keys and values of embedded context tokens: they change with the context alone."""
        k, v = self.cross_kv(context).chunk(2, dim=-1)
        k = self.cross_norm_k(k).unflatten(-1, self.heads)
        return torch.stack([k, v.unflatten(-1, self.heads).to(k.dtype)])


class Expert(nn.Module):
    """Blocks with the time and context embeddings that feed them."""

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__()
        self.config = config
        self.time = TimeEmbedding(config.freq_dim, config.dim)
        self.text = TextEmbedding(config.text_dim, config.dim)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.num_layers)])

    @property
    def dtype(self) -> torch.dtype:
        """What tokens are computed in: autocast's type where it is on, else the weights'."""
        weight = self.text.out.weight
        if torch.is_autocast_enabled(weight.device.type):
            return torch.get_autocast_dtype(weight.device.type)
        return weight.dtype

    def layer(self, index: int) -> Block:
        """Block ``index``, typed."""
        block = self.blocks[index]
        assert isinstance(block, Block)
        return block


class VideoExpert(Expert):
    """Wan2.2's transformer: patches of latents in, velocity of patches out."""

    def __init__(self, config: ExpertConfig, patch_dim: int) -> None:
        super().__init__(config)
        self.patch_in = Linear(patch_dim, config.dim)
        self.patch_out = Linear(config.dim, patch_dim)
        self.table = nn.Parameter(torch.randn(1, 2, config.dim) / config.dim**0.5)

    def embed(self, patches: Float[Tensor, "B S c"]) -> Float32[Tensor, "B S w"]:
        """Tokens of latent patches."""
        return self.patch_in(patches.to(self.dtype)).float()

    def velocity(
        self, x: Float32[Tensor, "B S w"], embedding: Float32[Tensor, "#B 1 w"]
    ) -> Float32[Tensor, "B S c"]:
        """Patches of the velocity, from the last layer's tokens and their level's embedding."""
        shift, scale = (self.table + embedding).chunk(2, dim=1)
        normed = layer_norm(x, self.config.eps) * (1 + scale) + shift
        return self.patch_out(normed.to(self.patch_out.weight.dtype)).float()


class ActionExpert(Expert):
    """The same stack, narrow: one token an action step, linear in and out, both in float32."""

    def __init__(self, config: ExpertConfig, action_dim: int, head_norm: bool) -> None:
        super().__init__(config)
        self.action_in = Linear(action_dim, config.dim)
        self.action_out = Linear(config.dim, action_dim)
        self.head_norm = head_norm
        self.reset_ends()

    def reset_ends(self) -> None:
        """The in and out projections have no counterpart in the video expert: Kaiming uniform."""
        for layer in (self.action_in, self.action_out):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="linear")
            nn.init.zeros_(layer.bias)

    def embed(self, actions: Float[Tensor, "B H a"]) -> Float32[Tensor, "B H w"]:
        """One token a step."""
        return self.action_in.in_float32(actions)

    def velocity(self, x: Float32[Tensor, "B H w"]) -> Float32[Tensor, "B H a"]:
        """Velocity of the actions."""
        return self.action_out.in_float32(layer_norm(x, self.config.eps) if self.head_norm else x)

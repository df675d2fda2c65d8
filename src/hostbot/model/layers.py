"""The small parts both experts are built from.

Legend: B batch, S tokens, G time groups (runs of tokens that share a noise level), w width.
"""

# mypy: allow-untyped-calls
# (torch and safetensors leave a few methods without types)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32
from torch import Tensor, nn

from hostbot.flow import NUM_TIMESTEPS

NARROW = 32
"""A float32 layer with no more inputs or no more outputs than this is hardly a product of matrices."""
GATE_BIAS = 5.0
"""Head gates start open: sigmoid(5) = 0.993."""


class Linear(nn.Linear):
    """A linear layer whose product may be replaced (by fp8, say) without touching its callers."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """What ``nn.Module`` leaves untyped."""

    def in_float32(self, x: Float[Tensor, "*B i"]) -> Float32[Tensor, "*B o"]:
        """The same map in float32 whatever the weights are: for values a bfloat16 would round away."""
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = self.weight.float(), None if self.bias is None else self.bias.float()
            if x.is_cuda and min(weight.shape) <= NARROW and not torch.is_grad_enabled():
                # The library takes four kernels for this, and longer.
                product = (x.float().unsqueeze(-2) * weight).sum(-1)
                return product if bias is None else product + bias
            return F.linear(x.float(), weight, bias)


class RMSNorm(nn.RMSNorm):
    """Root-mean-square norm over all heads together, in float32, back in the dtype it came in."""

    def forward(self, x: Float[Tensor, "*B w"]) -> Float[Tensor, "*B w"]:
        """Wan norms queries and keys before they are cut into heads."""
        return F.rms_norm(x.float(), x.shape[-1:], self.weight.float(), self.eps).to(x.dtype)


def gate_rows(num_heads: int) -> int:
    """Rows that head gates take in a fused projection: whole sixteens, so that every matrix kernel fits."""
    return -(-num_heads // 16) * 16


def layer_norm(x: Float[Tensor, "*B w"], eps: float) -> Float32[Tensor, "*B w"]:
    """Layer norm without parameters, in float32."""
    return F.layer_norm(x.float(), x.shape[-1:], eps=eps)


def attend(
    q: Float[Tensor, "B S h d"],
    k: Float[Tensor, "B T h d"],
    v: Float[Tensor, "B T h d"],
    mask: Bool[Tensor, "B 1 #S T"] | None = None,
) -> Float[Tensor, "B S h d"]:
    """Softmax attention of rows to keys; with no mask every fast kernel is eligible."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


def spread(per_group: Float[Tensor, "#B G w"], widths: Sequence[int]) -> Float[Tensor, "#B #S w"]:
    """Each time group's modulation at each of its tokens; a single group is left to broadcast.

    Compiled, this is an index in the kernel that uses it. Splitting tokens and joining them again would do
    as well, but inductor (2.13, CPU) then gives a group of one token a wrong gradient.
    """
    if len(widths) == 1:
        return per_group
    parts = [per_group[:, g : g + 1].expand(-1, width, -1) for g, width in enumerate(widths)]
    return torch.cat(parts, dim=1)


def sinusoid(timestep: Float[Tensor, "*B"], width: int) -> Float32[Tensor, "*B width"]:
    """Wan's timestep features: cosines, then sines, of ``width / 2`` rates."""
    half = width // 2
    rates = torch.exp(
        -math.log(10_000) * torch.arange(half, device=timestep.device, dtype=torch.float32) / half
    )
    angles = timestep.float()[..., None] * rates
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class TimeEmbedding(nn.Module):
    """A noise level as a vector, and as the six AdaLN components; float32 throughout."""

    def __init__(self, freq_dim: int, dim: int) -> None:
        super().__init__()
        self.freq_dim = freq_dim
        self.hidden = Linear(freq_dim, dim)
        self.out = Linear(dim, dim)
        self.proj = Linear(dim, 6 * dim)

    def forward(
        self, sigma: Float[Tensor, "B G"]
    ) -> tuple[Float32[Tensor, "B G w"], Float32[Tensor, "B G 6 w"]]:
        """Embedding for the output head, and modulation for the blocks."""
        features = sinusoid(sigma * NUM_TIMESTEPS, self.freq_dim)
        embedding = self.out.in_float32(F.silu(self.hidden.in_float32(features)))
        return embedding, self.proj.in_float32(F.silu(embedding)).unflatten(-1, (6, -1))


class TextEmbedding(nn.Module):
    """Context tokens at an expert's width."""

    def __init__(self, text_dim: int, dim: int) -> None:
        super().__init__()
        self.hidden = Linear(text_dim, dim)
        self.out = Linear(dim, dim)

    def forward(self, context: Float[Tensor, "B L t"]) -> Float[Tensor, "B L w"]:
        """Two layers with a tanh GELU between them, as Wan's."""
        return self.out(F.gelu(self.hidden(context), approximate="tanh"))


class LocalisationCodec(nn.Module):
    """E_p, a value to a token, and D_p, a token to a velocity; in float32: a single number counts."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.encode_hidden, self.encode_out = Linear(1, dim), Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.decode_hidden, self.decode_out = Linear(dim, dim), Linear(dim, 1)

    def encode(self, value: Float[Tensor, "B K"]) -> Float32[Tensor, "B K w"]:
        """y^p = E_p(p) of values in [-1, 1], noisy ones included."""
        hidden = F.gelu(self.encode_hidden.in_float32(value[..., None]))
        return self.encode_out.in_float32(hidden)

    def decode(self, token: Float32[Tensor, "B K w"]) -> Float32[Tensor, "B K"]:
        """D_p: the velocity of the value."""
        weight, bias = self.norm.weight, self.norm.bias
        normed = F.layer_norm(token, token.shape[-1:], weight.float(), bias.float(), self.norm.eps)
        hidden = self.decode_hidden.in_float32(normed)
        return self.decode_out.in_float32(F.gelu(hidden)).squeeze(-1)

"""Low-rank adaptation of the blocks' linear layers, for fine-tuning on a few demonstrations.

Written out here rather than taken from a library: it is two small matrices beside each product, the layers of this
model are made to be replaced, and what is saved is a plain checkpoint with the adaptation merged in.
Legend: i inputs, o outputs, r rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from hostbot.model.experts import Block
from hostbot.model.host import HostModel
from hostbot.model.layers import Linear
from hostbot.types import BadInput

LAYERS = ("qkvg", "out", "cross_q", "cross_kv", "cross_out", "ffn_in", "ffn_out")


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Rank and strength."""

    rank: int = 16
    alpha: float = 16.0
    """The product of the two matrices counts alpha / rank."""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise BadInput(f"a rank must be at least 1, got {self.rank}")


class LowRank(Linear):
    """A frozen linear layer with a low-rank change that learns; it begins at no change."""

    def __init__(self, layer: nn.Linear, config: LoraConfig) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.strength = config.alpha / config.rank
        self.down = nn.Parameter(layer.weight.new_empty(config.rank, layer.in_features))
        self.up = nn.Parameter(layer.weight.new_zeros(layer.out_features, config.rank))
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, x: Float[Tensor, "*B i"]) -> Float[Tensor, "*B o"]:
        """W x + b + (alpha / r) U D x."""
        change = F.linear(F.linear(x, self.down), self.up)
        return F.linear(x, self.weight, self.bias) + self.strength * change


def adapt(model: HostModel, config: LoraConfig) -> HostModel:
    """Freeze the model and put a low-rank change beside every product of its blocks, in place."""
    model.requires_grad_(False)
    for block in model.modules():
        if isinstance(block, Block):
            for name in LAYERS:
                setattr(block, name, LowRank(getattr(block, name), config))
    return model


def merged(weights: dict[str, Tensor], model: HostModel) -> dict[str, Tensor]:
    """Weights with every low-rank change added to the matrix it belongs to."""
    strength = {f"model.{n}": m.strength for n, m in model.named_modules() if isinstance(m, LowRank)}
    out = {n: w for n, w in weights.items() if n.rsplit(".", 1)[-1] not in ("up", "down")}
    for layer, scale in strength.items():
        change = weights[f"{layer}.up"].float() @ weights[f"{layer}.down"].float()
        out[f"{layer}.weight"] = (out[f"{layer}.weight"].float() + scale * change).to(torch.float32)
    return out

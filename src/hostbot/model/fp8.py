"""Eight-bit weights for use, an option and never the default: half the bytes that a cascade pass reads.

Legend: i inputs, o outputs of a linear layer, M rows. Weights are e4m3 with one scale an output, activations
are scaled a row when they come; sums are float32. On CUDA the product is the card's own fp8; elsewhere the
same rounded numbers are multiplied in float32, so that its effect on accuracy can be seen on any machine.
"""

# mypy: allow-untyped-calls
# (torch and safetensors leave a few methods without types)

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor, nn

from hostbot.model.experts import Block
from hostbot.model.host import HostModel

FP8, LARGEST = torch.float8_e4m3fn, torch.finfo(torch.float8_e4m3fn).max
LAYERS = ("qkvg", "out", "cross_q", "cross_out", "ffn_in", "ffn_out")
"""What every pass reads; context keys are made once an instruction and stay as they are."""


def to_fp8(x: Float[Tensor, "M i"]) -> tuple[Float[Tensor, "M i"], Float32[Tensor, "M 1"]]:
    """Each row as fp8, and the scale that takes it back."""
    scale = (x.abs().amax(dim=1, keepdim=True).float() / LARGEST).clamp(min=1e-12)
    return (x.float() / scale).clamp(-LARGEST, LARGEST).to(FP8), scale


class Fp8Linear(nn.Module):
    """A linear layer that keeps its weight in fp8."""

    weight: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, scale = to_fp8(layer.weight.detach())
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale.T.contiguous())
        self.register_buffer("bias", layer.bias.detach().clone())

    def forward(self, x: Float[Tensor, "*B i"]) -> Float[Tensor, "*B o"]:
        """The product of rounded rows and rounded weights."""
        rows, scale = to_fp8(x.flatten(0, -2))
        if x.is_cuda:
            y = torch._scaled_mm(rows, self.weight.t(), scale, self.scale, out_dtype=torch.bfloat16)
            y = (y + self.bias).to(x.dtype)
        else:
            y = F.linear(rows.float() * scale, self.weight.float() * self.scale.T).to(x.dtype) + self.bias
        return y.reshape(*x.shape[:-1], -1)


def quantise_(model: HostModel) -> HostModel:
    """Replace the blocks' linear layers in place; the model is for use only from then on."""
    for block in model.modules():
        if isinstance(block, Block):
            for name in LAYERS:
                setattr(block, name, Fp8Linear(getattr(block, name)))
    return model

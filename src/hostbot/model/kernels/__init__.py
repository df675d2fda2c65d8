"""Kernels for the few tokens of a cascade pass on a CUDA card, in Triton; everywhere else plain torch does the same.

Each file is one kernel and the function that launches it. Import them only where there is Triton: a machine without a
card may have none.
"""

from __future__ import annotations

import torch
from torch import nn

from hostbot.model.experts import Block

FOLDED_KEYS = 64
"""Keys of a head whose values may be folded (``told``); with more there is nothing to be gained."""


def usable(model: nn.Module) -> bool:
    """Whether a model's passes can run on the kernels: bfloat16 weights, none of them replaced, on a Hopper card."""
    blocks = [block for block in model.modules() if isinstance(block, Block)]
    layers = [layer for block in blocks for layer in block.products()]
    weights = [layer.weight for layer in layers if isinstance(layer, nn.Linear)]
    if len(weights) < len(layers) or not all(w.is_cuda and w.dtype == torch.bfloat16 for w in weights):
        return False
    width = blocks[0].heads[1]
    fits = all(w.shape[1] % 8 == 0 for w in weights) and width >= 16 and width & (width - 1) == 0
    return fits and torch.cuda.get_device_capability(weights[0].device) >= (9, 0)

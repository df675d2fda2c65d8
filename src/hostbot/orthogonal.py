"""Matrices made nearly orthogonal: what Muon does to a step before it is taken.

Legend: K matrices of one shape, A rows, B columns.
"""

from __future__ import annotations

from jaxtyping import BFloat16, Float32
from torch import Tensor

COEFFICIENTS, STEPS, EPS = (3.4445, -4.775, 2.0315), 5, 1e-7
"""Those of ``torch.optim.Muon``."""


def orthogonalised(
    matrices: Float32[Tensor, "K A B"],
    coefficients: tuple[float, float, float] = COEFFICIENTS,
    steps: int = STEPS,
    eps: float = EPS,
) -> BFloat16[Tensor, "K A B"]:
    """Nearly orthogonal matrices with the same singular vectors, by Newton-Schulz in bfloat16."""
    a, b, c = coefficients
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        gram = gram.baddbmm(gram, gram, beta=b, alpha=c)
        x = x.baddbmm(gram, x, beta=a)
    return x.mT if tall else x

"""Other ways to a differentiable path cost, for ``benchmarks/dtw.py``: plain PyTorch and the packages there are.

The packages smooth by log-sum-exp and give R(T,N) alone; they are handed the cost, so that their own distances cost
them nothing. None has the weighted mean, the tables or beta.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

import torch
from torch import Tensor

BORDER = 1e9
Way = Callable[[Tensor], Tensor]


def smooth_min(above: Tensor, before: Tensor, corner: Tensor) -> Tensor:
    near = torch.stack((above, before, corner))
    return (near * torch.softmax(-near, 0)).sum(0)


def loop(cost: Tensor) -> Tensor:
    """Two Python loops, a cell of the whole batch at a time; autograd goes back through them."""
    _, rows, columns = cost.shape
    border = cost.new_full((len(cost),), BORDER)
    above = [border] * columns
    for i in range(rows):
        row: list[Tensor] = []
        for j in range(columns):
            before, corner = row[j - 1] if j else border, above[j - 1] if j else border
            first = i == j == 0
            row.append(cost[:, i, j] + (0 if first else smooth_min(above[j], before, corner)))
        above = row
    return above[-1]


def diagonals(cost: Tensor) -> Tensor:
    """One anti-diagonal of the whole batch at a time; autograd goes back through them."""
    batch, rows, columns = cost.shape
    skewed = torch.nn.functional.pad(cost, (0, rows), value=BORDER).flatten(1)[
        :, : rows * (rows + columns - 1)
    ]
    skewed = skewed.view(batch, rows, rows + columns - 1)  # [:, i, s] is cost[:, i, s - i]
    border = cost.new_full((batch, 1), BORDER)
    older, last = cost.new_full((2, batch, rows + 1), BORDER)
    last = torch.cat((border, skewed[:, :1, 0], border.expand(-1, rows - 1)), 1)
    for s in range(1, rows + columns - 1):
        new = skewed[:, :, s] + smooth_min(last[:, :-1], last[:, 1:], older[:, :-1])
        older, last = last, torch.cat((border, new.clamp_max(BORDER)), 1)
    return last[:, -1]


def tslearn() -> Way:
    from tslearn.metrics.soft_dtw_loss_pytorch import _SoftDTWLossPyTorch

    return lambda cost: _SoftDTWLossPyTorch.apply(cost, 1.0)


def pysdtw(device: str) -> Way:
    if device == "cuda":
        from pysdtw.sdtw_cuda import SoftDTWcuda as function
    else:
        from pysdtw.sdtw_cpu import SoftDTWcpu as function

    def way(cost: Tensor) -> Tensor:
        lengths = torch.tensor([cost.shape[1:]] * len(cost), device=cost.device)
        return function.apply(cost, lengths, 1.0, 0)

    return way


def packages(device: str) -> tuple[dict[str, Way], dict[str, str]]:
    """The packages that can be imported, and for the others why not."""
    makers = {"pysdtw": lambda: pysdtw(device)} | ({"tslearn": tslearn} if device == "cpu" else {})
    found, missing = {}, {}
    for name, make in makers.items():
        try:
            found[f"{name} {metadata.version(name)}"] = make()
        except Exception as reason:  # a package may fail in any way; the rest is measured all the same
            missing[name] = f"{type(reason).__name__}: {reason}"
    return found, missing

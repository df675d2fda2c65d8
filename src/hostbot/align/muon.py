"""Muon for a small convolutional network: matrices and kernels step along orthogonalised momentum, all else by AdamW.

A network that has to find a hand before it can tell anything of it learns that several times as fast as by AdamW alone.
A kernel is the matrix of its output channels; ``torch.optim.Muon`` takes matrices only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hostbot.orthogonal import orthogonalised

_ALIKE = 0.2
"""Root mean square of a step of AdamW, which an orthogonalised one is made as long as."""


class Muon(torch.optim.Optimizer):
    """Steps of one learning rate; those of matrices are ``farther`` times as long, those of ``outputs`` are not."""

    def __init__(
        self,
        named: Mapping[str, nn.Parameter],
        learning_rate: float,
        *,
        weight_decay: float,
        farther: float,
        outputs: tuple[str, ...],
        momentum: float = 0.95,
    ) -> None:
        turned = {n: p for n, p in named.items() if p.ndim > 1 and not n.startswith(outputs)}
        others = [p for n, p in named.items() if n not in turned]
        super().__init__(
            [
                {"params": list(turned.values()), "farther": farther, "momentum": momentum},
                {"params": others, "betas": (0.9, 0.98), "eps": 1e-8},
            ],
            {"lr": learning_rate, "weight_decay": weight_decay},
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step; there is no closure."""
        assert closure is None
        for group in self.param_groups:
            move = self._turned if "farther" in group else self._adam
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(move(parameter, parameter.grad, group), alpha=-group["lr"])

    def _turned(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        kept = self._kept(parameter, "momentum_buffer")
        kept.lerp_(gradient, 1 - group["momentum"])
        wanted = gradient.lerp(kept, group["momentum"]).flatten(1)
        longer = group["farther"] * _ALIKE * max(wanted.shape) ** 0.5
        return longer * orthogonalised(wanted[None])[0].float().view(parameter.shape)

    def _adam(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        state, (fast, slow) = self.state[parameter], group["betas"]
        step = state["step"] = state.get("step", torch.zeros(())) + 1
        mean = self._kept(parameter, "exp_avg").lerp_(gradient, 1 - fast) / (1 - fast**step)
        square = self._kept(parameter, "exp_avg_sq").lerp_(gradient.square(), 1 - slow) / (1 - slow**step)
        return mean / (square.sqrt() + group["eps"])

    def _kept(self, parameter: Tensor, key: str) -> Tensor:
        state = self.state[parameter]
        if key not in state:
            state[key] = torch.zeros_like(parameter)
        found: Tensor = state[key]
        return found

"""Muon with matrices of one shape orthogonalised together: a few large products instead of thousands of small ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from hostbot.orthogonal import orthogonalised


class StackedMuon(torch.optim.Muon):
    """``torch.optim.Muon``, its settings and its state; only the order of the arithmetic differs."""

    fine: Bool[Tensor, ""] | None = None
    """Whether the step counts, known on the device alone; None: it does."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step; there is no closure."""
        assert closure is None
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in alike.items():
                self._step_alike(group, shape, parameters)

    def _step_alike(self, group: dict[str, Any], shape: torch.Size, parameters: list[Tensor]) -> None:
        lr, momentum = float(group["lr"]), group["momentum"]
        gradients = [p.grad for p in parameters if p.grad is not None]
        for parameter in parameters:
            if "momentum_buffer" not in self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        stacked = torch.stack(gradients)
        if self.fine is not None:
            stacked = torch.where(self.fine, stacked, torch.stack(buffers))
            gradients = list(stacked.unbind(0))
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        wanted = stacked.lerp(torch.stack(buffers), momentum)
        turned = orthogonalised(wanted, group["ns_coefficients"], group["ns_steps"], group["eps"]).float()
        rate = lr * math.sqrt(max(1.0, shape[0] / shape[1]))
        if self.fine is None:
            torch._foreach_mul_(parameters, 1 - lr * group["weight_decay"])
        else:  # a buffer that meets itself stays as it is, and so do weights
            turned = turned * self.fine
            torch._foreach_mul_(parameters, 1 - lr * group["weight_decay"] * self.fine.float())
        torch._foreach_add_(parameters, list(turned.unbind(0)), alpha=-rate)

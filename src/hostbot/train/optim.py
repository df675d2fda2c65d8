"""Optimisers: AdamW on float32 weights, or Muon for the blocks' matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from hostbot.train.checkpoint import Reader
from hostbot.train.config import OptimConfig
from hostbot.train.muon import StackedMuon
from hostbot.types import BadInput


def named_trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters that learn, by name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Whether Muon takes it: a matrix inside a block, not an embedding or a head."""
    return ".blocks." in name and parameter.ndim == 2


def make_optimisers(
    module: nn.Module, config: OptimConfig, fused: bool | None = None
) -> list[torch.optim.Optimizer]:
    """One optimiser, or two for Muon; their learning rates are set at every step. Fused on a GPU, if not said."""
    trainable = named_trainable(module)
    for name, parameter in trainable.items():
        if parameter.dtype != torch.float32:
            raise BadInput(
                f"{name} is {parameter.dtype}: training needs float32 weights, at the paper's rate a bfloat16 weight "
                "does not move; convert the checkpoint with `hostbot model init`"
            )
    hidden = [p for n, p in trainable.items() if config.kind == "muon" and is_hidden_matrix(n, p)]
    if any(isinstance(p, DTensor) for p in hidden):
        raise BadInput("Muon needs whole matrices: use --mode single or ddp with it, or --optimiser adamw")
    chosen = {id(p) for p in hidden}
    rest = [p for p in trainable.values() if id(p) not in chosen]
    if fused is None:
        fused = next(iter(trainable.values())).device.type == "cuda"
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(
            rest, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=fused
        )
    ]
    if hidden:
        # On a GPU its many small products would take longer than the backward pass; a CPU does not mind.
        kind = StackedMuon if fused else torch.optim.Muon
        optimisers.append(kind(hidden, lr=config.muon_lr, weight_decay=config.weight_decay, momentum=0.95))
    return optimisers


def set_rate(optimisers: Sequence[torch.optim.Optimizer], config: OptimConfig, scale: float) -> None:
    """Set every group's learning rate to a share of its peak."""
    for optimiser in optimisers:
        peak = config.muon_lr if isinstance(optimiser, torch.optim.Muon) else config.lr
        for group in optimiser.param_groups:
            group["lr"] = peak * scale


def step_guarded(optimisers: Sequence[torch.optim.Optimizer], fine: Bool[Tensor, ""]) -> None:
    """Step without asking whether gradients are finite: where they are not, nothing is changed, on the device itself.

    Fused AdamW knows how to, as for a gradient scaler; Muon is told.
    """
    for optimiser in optimisers:
        if isinstance(optimiser, StackedMuon):
            optimiser.fine = fine
        else:
            optimiser.found_inf = (~fine).float()  # type: ignore[attr-defined]
        optimiser.step()


def optimiser_state(
    optimisers: Sequence[torch.optim.Optimizer], names: dict[int, str]
) -> Iterator[tuple[str, Tensor]]:
    """Every tensor the optimisers keep, named by what it is and whose."""
    for optimiser in optimisers:
        for parameter, state in optimiser.state.items():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    yield f"optim/{key}/{names[id(parameter)]}", value


def read_optimisers(
    optimisers: Sequence[torch.optim.Optimizer], names: dict[int, str], reader: Reader
) -> None:
    """What ``optimiser_state`` gave, back in its place."""
    kept = [(key.split("/", 2)[1], key.split("/", 2)[2]) for key in reader.names("optim/")]
    by_owner: dict[str, list[str]] = {}
    for what, owner in kept:
        by_owner.setdefault(owner, []).append(what)
    for optimiser in optimisers:
        fused = bool(optimiser.defaults.get("fused", False))
        for parameter in (p for group in optimiser.param_groups for p in group["params"]):
            for what in by_owner.get(names[id(parameter)], []):
                name = f"optim/{what}/{names[id(parameter)]}"
                device = parameter.device if fused else "cpu"
                scalar = reader.scalar(name)
                value = torch.zeros((), device=device) if scalar else torch.zeros_like(parameter)
                reader.read(name, value)
                optimiser.state[parameter][what] = value


class Average:
    """A moving average of weights, in float32, of whatever share of them this rank holds."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.values = {name: p.detach().clone() for name, p in named_trainable(module).items()}

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        """Move towards the weights; slowly only once there is something to average."""
        decay = min(self.decay, (1 + step) / (10 + step))
        new = named_trainable(module)
        torch._foreach_lerp_(
            [_local(v) for v in self.values.values()], [_local(new[n]) for n in self.values], 1 - decay
        )


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()

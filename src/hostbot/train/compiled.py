"""Fused training layers, used only where they learn the same as the plain ones.

A compiler can be wrong without an error. With cuDNN's attention inside fused layers torch 2.11 on an H200 gave
gradients thousands of times too large, or read where it must not; losses fell for a while all the same. So
``compile_layers`` leaves it out, and a run's first gradients are compared before anything is learned.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hostbot.data.batches import generator_for
from hostbot.model.shared import any_layer
from hostbot.train.config import TrainConfig
from hostbot.train.contract import TOTAL
from hostbot.train.distributed import World
from hostbot.train.optim import named_trainable
from hostbot.train.stages import Policy, PolicyStage

TOLERANCE = 0.05
"""Of the whole gradient's norm; bfloat16 in another order of adding is an order of magnitude below it."""


def compile_checked(
    stage: PolicyStage, config: TrainConfig, world: World, warn: Callable[[str], None]
) -> float | None:
    """Fuse the layers of a model whose weights are whole on each rank; how far off its gradients are.

    Layouts differ in their views and in whether there is a demonstration: each is compiled once.
    """
    if world.mode not in ("single", "ddp"):
        return None
    model = stage.module.model
    torch._dynamo.config.recompile_limit = 64
    plain = _gradients(stage, config, world)
    model.compile_layers()
    off = _difference(_gradients(stage, config, world), plain)
    if off > TOLERANCE:
        model.joint_layer = any_layer
        warn(
            f"fused layers give gradients that are {off:.0%} off with this torch ({torch.__version__}): training goes "
            "on without them, more slowly"
        )
    return off


def _gradients(stage: PolicyStage, config: TrainConfig, world: World) -> dict[str, Tensor]:
    policy: Policy = stage.module
    policy.zero_grad(set_to_none=True)
    generator = generator_for(config.seed + 1, 0, 0, world.device)
    with torch.autocast(world.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
        figures = policy(stage.batch(0, 0), generator)
    figures[TOTAL].backward()
    found = {name: p.grad for name, p in named_trainable(policy).items() if p.grad is not None}
    policy.zero_grad(set_to_none=True)
    return found


def _difference(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Norm of the difference as a share of the norm; what is missing on one side counts whole."""
    apart, whole = 0.0, 0.0
    for name in found.keys() | wanted.keys():
        a, b = found.get(name), wanted.get(name)
        whole += 0.0 if b is None else float(b.double().square().sum())
        if a is None or b is None:
            rest = a if b is None else b
            apart += 0.0 if rest is None else float(rest.double().square().sum())
        else:
            apart += float((a.double() - b.double()).square().sum())
    return float((apart / max(whole, 1e-300)) ** 0.5)

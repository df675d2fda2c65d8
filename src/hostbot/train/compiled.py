"""Fused training layers, used only where they learn the same as the plain ones.

A compiler can be wrong without an error. Fused by torch 2.11 on an H200, modulations had gradients up to thousands of
times too large, now in one layer, now in another; losses fell for a while all the same. ``compile_layers`` leaves out
what was to blame, and a run's first gradients are compared, tensor by tensor, before anything is learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from hostbot.data.batches import generator_for
from hostbot.model.shared import any_layer
from hostbot.train.config import TrainConfig
from hostbot.train.contract import TOTAL
from hostbot.train.distributed import World
from hostbot.train.optim import named_trainable
from hostbot.train.stages import Policy, PolicyStage

TOLERANCE = 0.1
"""Of a tensor's gradient's norm; bfloat16 in another order of adding is an order of magnitude below it at first.

Later, where gradients of many samples cancel, rounding is a larger share of the rest: what exceeds this is looked at
again beside float32."""
_ROUNDING = 2.0
"""How many times as far off as plain layers are by rounding others may be besides."""
_FLOOR = 1e-3
"""Share of the whole gradient's norm under which a tensor's own is not told apart from rounding."""
_LOOKED_AT = 32
"""Batches among which every layout is expected: with and without a demonstration, with one view or all."""


def compile_checked(
    stage: PolicyStage, config: TrainConfig, world: World, tell: Callable[[str], None]
) -> float | None:
    """Fuse the layers of a model whose weights are whole on each rank; how far off its gradients are.

    Layouts differ in their views and in whether there is a demonstration: each is compiled, and compared, once.
    """
    if world.mode not in ("single", "ddp"):
        return None
    model = stage.module.model
    torch._dynamo.config.recompile_limit = 64
    steps = one_of_each(stage)
    plain = [gradients(stage, config, world, step) for step in steps]
    model.compile_layers()
    off = 0.0
    for step, wanted in zip(steps, plain, strict=True):
        found = gradients(stage, config, world, step)
        off = max(off, checked_difference(stage, config, world, step, found, wanted))
    if off > TOLERANCE:
        model.joint_layer = any_layer
        tell(
            f"fused layers give gradients that are {off:.0%} off with this torch ({torch.__version__}): training goes "
            "on without them, more slowly"
        )
    else:
        tell(f"layers are fused; the gradient of no tensor is more than {off:.2%} off")
    return off


def one_of_each(stage: PolicyStage) -> list[int]:
    """The first step of every layout, and one more."""
    first: dict[tuple[object, ...], int] = {}
    for step in range(_LOOKED_AT):
        batch = stage.batch(step, 0)
        first.setdefault((batch.drill, batch.demo is None, batch.views), step)
    return [*first.values(), max(first.values()) + 1]


def gradients(stage: PolicyStage, config: TrainConfig, world: World, step: int = 0) -> dict[str, Tensor]:
    """What a step's first micro-batch would teach, nothing else changed."""
    policy: Policy = stage.module
    policy.zero_grad(set_to_none=True)
    generator = generator_for(config.seed + 1, step, 0, world.device)
    with torch.autocast(world.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
        figures = policy(stage.batch(step, 0), generator)
    figures[TOTAL].backward()
    found = {name: p.grad for name, p in named_trainable(policy).items() if p.grad is not None}
    policy.zero_grad(set_to_none=True)
    return found


def checked_difference(
    stage: PolicyStage,
    config: TrainConfig,
    world: World,
    step: int,
    found: dict[str, Tensor],
    wanted: dict[str, Tensor],
) -> float:
    """How far off the worst tensor is; where that is too far, less what rounding explains, which float32 tells."""
    off = difference(found, wanted)
    if off <= TOLERANCE or config.precision == "float32":
        return off
    model = stage.module.model
    layer, model.joint_layer = model.joint_layer, any_layer
    try:
        exact = gradients(stage, replace(config, precision="float32"), world, step)
    except torch.OutOfMemoryError:  # what cannot be told apart is not excused
        stage.module.zero_grad(set_to_none=True)
        return off
    finally:
        model.joint_layer = layer
    return difference(found, wanted, exact)


def difference(
    found: dict[str, Tensor], wanted: dict[str, Tensor], exact: dict[str, Tensor] | None = None
) -> float:
    """How far off the worst tensor is, as a share of its norm; what is missing on one side counts whole.

    With ``exact`` gradients a tensor is excused as far as the wanted one is itself off by rounding.
    """
    norms = {name: float(value.double().norm()) for name, value in wanted.items()}
    floor = max(_FLOOR * sum(norm**2 for norm in norms.values()) ** 0.5, 1e-300)
    worst = 0.0
    for name in found.keys() | wanted.keys():
        a, b = found.get(name), wanted.get(name)
        if a is None or b is None:
            rest = b if a is None else a
            apart = 0.0 if rest is None else float(rest.double().norm())
        else:
            apart = float((a.double() - b.double()).norm())
            if exact is not None and name in exact:
                true = exact[name].double()
                rounding = _ROUNDING * float((b.double() - true).norm())
                apart = max(0.0, apart - rounding, float((a.double() - true).norm()) - rounding)
        share = apart / max(norms.get(name, 0.0), floor)
        worst = max(worst, share if share == share else float("inf"))
    return worst

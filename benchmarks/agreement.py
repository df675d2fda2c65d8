"""How far the fast cascade is from the same without graphs, from plain torch and from float32."""

from __future__ import annotations

from dataclasses import replace

import torch
from models import build

from hostbot.model.host import Context, HostConfig, HostModel
from hostbot.policy.cascade import Cascade
from hostbot.policy.contract import CascadeConfig, CascadeOutput


def agreement(model: HostModel, context: Context, fast: CascadeConfig) -> dict[str, dict[str, float]]:
    """Largest difference, relative to the largest value, of a cycle from the same without graphs, and in plain torch.

    Of many steps over random weights the latter is mostly rounding, grown by every step.
    """
    eager = replace(fast, graphs=False, compile="off")
    outs = {}
    for name, config in {
        "graphs": fast,
        "eager": eager,
        "plain_torch": replace(eager, kernels=False),
    }.items():
        cascade = Cascade(model, config)
        cascade.instruct(context.text)
        noise = cascade.draw(torch.Generator(cascade.device).manual_seed(9))
        for _ in range(2 if config.graphs else 1):  # the second is a replay
            cascade.watch(context.demo, now=False)
            outs[name] = cascade.act(context.observation, context.proprio, noise)

    def difference(a: CascadeOutput, b: CascadeOutput) -> dict[str, float]:
        pairs = {"p": (a.p_samples, b.p_samples), "o": (a.o, b.o), "a": (a.a, b.a)}
        return {
            k: float(((x - y).abs().max() / y.abs().max()).item())
            for k, (x, y) in pairs.items()
            if x is not None and y is not None
        }

    return {name: difference(outs["graphs"], outs[name]) for name in ("eager", "plain_torch")}


@torch.inference_mode()
def stage_velocities(config: HostConfig, context: Context, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Each stage's velocity at level 1, given the same clean tokens: one Euler step, noise minus result."""
    device = context.observation.device
    model = build(config, device, torch.bfloat16).to(dtype)
    one = CascadeConfig(steps_p=1, steps_o=1, steps_a=1, graphs=False)
    cascade = Cascade(model, one)
    cascade.instruct(context.text)
    g = torch.Generator(device).manual_seed(3)
    noise = replace(cascade.draw(g), p=torch.linspace(-1.5, 1.5, one.num_localisations, device=device)[None])
    cascade.watch(context.demo, now=False)
    cascade.act(
        context.observation, context.proprio, noise
    )  # sets the inputs, then each stage is run on its own
    buffers = cascade.buffers
    cascade.run(["demo_observation"])
    found = {"p": (buffers.noise_p - buffers.p_begun).flatten()}
    buffers.p.fill_(0.3)
    cascade.run(["o"])
    found["o"] = (buffers.noise_o - buffers.o).flatten()
    buffers.o.copy_(torch.randn(buffers.o.shape, generator=g, device=device))
    cascade.run(["clean_o", "a"])
    return found | {"a": (buffers.noise_a - buffers.a).flatten()}


def half_precision_cosine(config: HostConfig, context: Context) -> dict[str, float]:
    """Each stage's velocity in bfloat16 against float32, given the same clean tokens; p over its samples."""
    full, half = (stage_velocities(config, context, dtype) for dtype in (torch.float32, torch.bfloat16))
    return {k: round(torch.cosine_similarity(full[k], half[k], dim=0).item(), 7) for k in full}

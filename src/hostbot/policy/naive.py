"""The cascade with nothing cached: what the fast one must compute, and what it is timed against.

Legend: B batch.
"""

from __future__ import annotations

import itertools

import torch
from jaxtyping import Bool
from torch import Tensor

from hostbot import flow
from hostbot.model.host import UNLOCALISED, Context, HostModel, Noised, Targets
from hostbot.policy.contract import CascadeConfig, Noise


@torch.no_grad()
def uncached(
    model: HostModel,
    context: Context,
    noise: Noise,
    config: CascadeConfig,
    future_seen: Bool[Tensor, " B"] | None = None,
) -> Targets:
    """The same cascade the naive way: the whole training sequence re-run at every step, nothing cached.

    It defines what ``Cascade`` must compute (with one localisation sample) and is what it is timed against.
    """
    flows, batch = model.config.flow, len(noise.p)
    state = {"p": noise.p[:, 0], "o": config.noise_o * noise.o, "a": config.noise_a * noise.a}
    clean = {"p": torch.zeros_like(noise.p[:, 0]), "o": torch.zeros_like(noise.o)}
    for name, steps, shift in (
        ("p", config.steps_p, flows.shift_p),
        ("o", config.steps_o, flows.shift_o),
        ("a", config.steps_a, flows.shift_a),
    ):
        sigmas = flow.schedule(steps, shift).tolist()
        for now, then in itertools.pairwise(sigmas):
            level = torch.full((batch,), now, device=noise.p.device)
            noised = Noised(
                noisy=Targets(**state),
                sigma_p=level,
                sigma_o=level,
                sigma_a=level,
                clean_p=clean["p"],
                clean_o=clean["o"],
                future_seen=future_seen,
            )
            state[name] = flow.euler(state[name], getattr(model(context, noised), name), now, then)
        if name == "p":
            lost = torch.full_like(state["p"], UNLOCALISED)
            state["p"] = lost if context.demo is None else state["p"].clamp(-1, 1)
        clean[name] = state[name]
    return Targets(**state)

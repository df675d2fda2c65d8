"""Figures of held-out samples: the cascade from noise, and what a wrong demonstration does.

A falling loss proves nothing about following: with the true future given, actions are learned without any matching.
So besides errors this tells how often the next contact is pointed at with the right demonstration and with another.

Legend: B samples, V views, T frames, h w pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

from hostbot.data.batches import Batch, DrawConfig, Mixture
from hostbot.model.host import HostModel
from hostbot.model.vae import LatentCodec
from hostbot.policy.cascade import Cascade
from hostbot.policy.contract import CascadeConfig, CascadeOutput
from hostbot.train.stages import Policy, context_of

_STEP = 1 << 30
"""Held-out batches are drawn as if of this step: the same at every validation."""


_BATCHES = 4
"""Held-out batches that pointing is told of: hits in a hundred scenes would say too little."""


@torch.no_grad()
def pointing(policy: Policy, batch: Batch) -> dict[str, float]:
    """Hits with each sample's own demonstration and with that of another sample; by the video alone, too; and told of
    another task."""
    found: dict[str, float] = {}
    other = None if batch.demo is None else batch.demo.roll(1, 0)
    silence, misled = torch.zeros_like(batch.text), batch.text.roll(policy.shared, 0)
    for suffix, demo, text in (
        ("", batch.demo, batch.text),
        ("_swapped", other, batch.text),
        ("_untold", batch.demo, silence),
        ("_swapped_untold", other, silence),
        ("_misled", batch.demo, misled),
    ):
        shown = replace(batch, demo=demo, text=text)
        figures = policy.pointing(context_of(shown, policy.shared), batch.point, batch.seen)
        told_of = ("point", "point_hit", "point_error", "pair_hit")
        found |= {f"{n}{suffix}": float(figures[n]) for n in told_of if n in figures}
    return found


def cascade_output(model: HostModel, batch: Batch, config: CascadeConfig, seed: int) -> CascadeOutput:
    """One cycle from noise for every sample of a batch."""
    context = context_of(batch, 1)
    demo = context.demo
    if demo is not None:
        demo = demo.repeat_interleave(len(batch.p) // len(demo), dim=0)
    cascade = Cascade(model, config, batch=len(batch.p))
    cascade.instruct(context.text)
    cascade.watch(demo, context.views)
    noise = cascade.draw(torch.Generator().manual_seed(seed))
    return cascade.act(context.observation, context.proprio, noise)


def cascade_figures(out: CascadeOutput, batch: Batch) -> dict[str, float]:
    """Localisation error as a share of the window, action error as normalised, error of the latents."""
    found = {
        "localisation_error": float((out.p - batch.p).abs().mean() / 2),
        "action_error": float((out.a - batch.action).abs().mean()),
        "action_error_decision": float((out.a - batch.action).abs().mean((1, 2))[batch.decision].mean())
        if bool(batch.decision.any())
        else 0.0,
    }
    if out.o is not None:
        future, now = batch.future.float(), batch.observation.float()
        found["future_error"] = float((out.o - future).abs().mean())
        found["future_error_holding_still"] = float((now - future).abs().mean())
    return found


def predicted_picture(
    out: CascadeOutput, batch: Batch, codec: LatentCodec, num_views: int, samples: int = 4
) -> UInt8[np.ndarray, "h w 3"]:
    """Rows of samples: the present, what follows, what was predicted, all views one below the other."""
    assert out.o is not None
    rows = []
    for k in range(min(samples, len(batch.p))):
        now, future = batch.observation[k].float(), batch.future[k].float()
        true = codec.decode_views(torch.cat([now, future], 1), num_views).cpu().numpy()
        made = codec.decode_views(torch.cat([now, out.o[k]], 1), num_views).cpu().numpy()
        strips = [np.concatenate([*t, *m[1:]], axis=1) for t, m in zip(true, made, strict=True)]
        rows.append(np.concatenate(strips, axis=0))
    return np.concatenate(rows, axis=0)


def validator(
    policy: Policy,
    samples: Mixture,
    draw: DrawConfig,
    *,
    seed: int,
    run: Path,
    codec: LatentCodec | None,
    cascade: CascadeConfig | None = None,
    picture: Callable[[str, int, np.ndarray], None] = lambda name, step, image: None,
) -> Callable[[int], Mapping[str, float]]:
    """What to call at a validation: figures of fixed batches, and a picture where there is a VAE."""
    fixed = replace(
        draw, demo_dropout=0.0, one_view=0.0, text_dropout=0.0, misled=0.0, exchange=False, shift=0
    )
    steps = cascade or CascadeConfig(graphs=False)

    def check(step: int) -> Mapping[str, float]:
        batches = [samples.draw(fixed, seed, _STEP, micro) for micro in range(_BATCHES)]
        was = policy.training
        each = [pointing(policy, batch) for batch in batches]
        found, batch = {name: float(np.mean([one[name] for one in each])) for name in each[0]}, batches[0]
        if policy.weights.flow == 0:  # nothing of the cascade is learned
            policy.train(was)
            return found
        out = cascade_output(policy.model, batch, steps, seed)
        found |= cascade_figures(out, batch)
        if codec is not None and out.o is not None:
            image = predicted_picture(out, batch, codec, policy.model.config.grid.num_views)
            folder = run / "pictures"
            folder.mkdir(exist_ok=True)
            Image.fromarray(image).save(folder / f"step-{step:08d}.png")
            picture("predicted", step, image)
        policy.train(was)
        return found

    return check

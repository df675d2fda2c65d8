"""Several samples that watch one demonstration: its tokens are computed once, since they see nothing else.

Legend: B samples, G samples a demonstration, W = B / G demonstrations, S tokens, h heads, d head width, w width.
Demo tokens attend to themselves and to the text alone, so their keys are the same for every robot state, and most of
a training sequence is demonstration: at both sizes about three quarters of the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from hostbot.model.experts import Block, Keys
from hostbot.model.layers import attend
from hostbot.model.mot import JointPlan, Stream, Tokens, joined, joint_layer

SharedTokens = tuple[
    Float32[Tensor, "W S w"],
    Float32[Tensor, "B S2 w"],
    Float32[Tensor, "B S3 w"],
    Float32[Tensor, "B H w2"],
]
"""Demo tokens, then rows, clean tokens and action tokens."""


@dataclass(frozen=True, kw_only=True)
class SharedPlan:
    """The sequence without its demonstration, and the demonstration."""

    joint: JointPlan
    demo: Stream
    shared: int
    """Samples G of each demonstration, one after the other."""


def shared_layer(
    video: Block, action: Block, tokens: SharedTokens, plan: SharedPlan, last: bool = False
) -> SharedTokens:
    """One layer: demonstrations by themselves, then every sample with the keys of its own."""
    demo, *rest = tokens
    demo, prefix = _demo_layer(video, demo, plan.demo, plan.joint.video_context, plan.shared, last)
    rows, clean, acts = joint_layer(video, action, (rest[0], rest[1], rest[2]), plan.joint, last, prefix)
    return demo, rows, clean, acts


def _demo_layer(
    video: Block,
    demo: Float32[Tensor, "W S w"],
    stream: Stream,
    context: Float[Tensor, "B L w"],
    shared: int,
    last: bool,
) -> tuple[Float32[Tensor, "W S w"], Keys]:
    """Demonstrations by themselves, and their keys for every sample that watches them."""
    q, kv, gate = joined(video.project(demo, stream.mod, stream.widths, stream.rope))
    if not last:
        text = video.context_keys(context[::shared])
        demo = video.finish(
            demo, attend(q, *kv.unbind(0)), gate, stream.mod, stream.widths, text, demo.shape[1]
        )
    return demo, kv.repeat_interleave(shared, dim=1)


WatchTokens = tuple[Float32[Tensor, "W S w"] | None, Float32[Tensor, "B S2 w"]]
"""Demo tokens, if there are any, and the observation's."""


@dataclass(frozen=True, kw_only=True)
class WatchPlan:
    """The sequence without anything that is to be predicted: the observation, and the demonstration it is seen with."""

    observation: Stream
    context: Float[Tensor, "B L w"]
    demo: Stream | None
    shared: int


def watch_layer(video: Block, tokens: WatchTokens, plan: WatchPlan, last: bool = False) -> WatchTokens:
    """One layer of what the observation's tokens depend on, and of nothing else."""
    demo, rows = tokens
    stream, parts = plan.observation, []
    if demo is not None and plan.demo is not None:
        demo, prefix = _demo_layer(video, demo, plan.demo, plan.context, plan.shared, last)
        parts.append(prefix)
    q, kv, gate = joined(video.project(rows, stream.mod, stream.widths, stream.rope))
    k, v = torch.cat([*parts, kv], dim=2).unbind(0)
    keys = video.context_keys(plan.context)
    return demo, video.finish(rows, attend(q, k, v), gate, stream.mod, stream.widths, keys)


def any_layer(
    video: Block,
    action: Block,
    tokens: Tokens | SharedTokens | WatchTokens,
    plan: JointPlan | SharedPlan | WatchPlan,
    last: bool = False,
) -> Tokens | SharedTokens | WatchTokens:
    """Whichever the plan is of."""
    if isinstance(plan, WatchPlan):
        assert len(tokens) == 2
        return watch_layer(video, tokens, plan, last)
    if isinstance(plan, SharedPlan):
        assert len(tokens) == 4
        return shared_layer(video, action, tokens, plan, last)
    assert len(tokens) == 3
    return joint_layer(video, action, tokens, plan, last)

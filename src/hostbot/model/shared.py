"""Several samples that watch one demonstration: its tokens are computed once, since they see nothing else.

Legend: B samples, G samples a demonstration, W = B / G demonstrations, S tokens, h heads, d head width, w width.
Demo tokens attend to themselves and to the text alone, so their keys are the same for every robot state, and most of
a training sequence is demonstration: at both sizes about three quarters of the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float32
from torch import Tensor

from hostbot.model.experts import Block
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
    stream = plan.demo
    q, kv, gate = joined(video.project(demo, stream.mod, stream.widths, stream.rope))
    if not last:
        text = video.context_keys(plan.joint.video_context[:: plan.shared])
        attended = attend(q, *kv.unbind(0))
        demo = video.finish(demo, attended, gate, stream.mod, stream.widths, text, demo.shape[1])
    prefix = kv.repeat_interleave(plan.shared, dim=1)
    rows, clean, acts = joint_layer(video, action, (rest[0], rest[1], rest[2]), plan.joint, last, prefix)
    return demo, rows, clean, acts


def any_layer(
    video: Block,
    action: Block,
    tokens: Tokens | SharedTokens,
    plan: JointPlan | SharedPlan,
    last: bool = False,
) -> Tokens | SharedTokens:
    """Whichever the plan is of."""
    if isinstance(plan, SharedPlan):
        assert len(tokens) == 4
        return shared_layer(video, action, tokens, plan, last)
    assert len(tokens) == 3
    return joint_layer(video, action, tokens, plan, last)

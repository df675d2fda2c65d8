"""Attention over both experts, eq:mot_attn: one layer of the training pass, and one layer of a cascade stage.

Legend: B batch, S tokens, T keys, G time groups, h heads, d head width, w expert width.
"Rows" are the video tokens that learn: demo, observation, noisy p, noisy o. "Clean" are clean p and clean o;
no gradient passes through them, so they are computed without any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from hostbot.model.experts import Block, Heads, Keys, Modulation, Projection
from hostbot.model.layers import attend


@dataclass(frozen=True, kw_only=True)
class Stream:
    """What stays the same for some tokens through all layers: their levels, positions and context."""

    mod: Modulation
    widths: tuple[int, ...]
    """Tokens of each time group."""
    rope: Float32[Tensor, "S d/2 2"]
    num_blind: int = 0
    """Leading tokens that do not see the proprioceptive state."""


@dataclass(frozen=True, kw_only=True)
class JointPlan:
    """The training sequence, eq:sequence: how its segments lie and what some samples lack."""

    num_demo: int
    num_observation: int
    rows: Stream
    clean: Stream
    action: Stream
    video_context: Float[Tensor, "B L w"]
    action_context: Float[Tensor, "B L w2"]
    demo_present: Bool[Tensor, "B D"] | None = None
    """Demo tokens that are there, where samples differ in their views."""
    future_seen: Bool[Tensor, " B"] | None = None
    """Samples whose actions see the clean future; ``None``: all do."""


Tokens = tuple[Float32[Tensor, "B S w"], Float32[Tensor, "B S2 w"], Float32[Tensor, "B H w2"]]
"""Rows, clean tokens, action tokens."""


def joint_layer(
    video: Block,
    action: Block,
    tokens: Tokens,
    plan: JointPlan,
    last: bool = False,
    prefix: Keys | None = None,
) -> Tokens:
    """One layer for all tokens at once; each segment attends as ``mask.sees`` says, without a mask.

    ``prefix`` are the keys of demo tokens that are computed apart, because several samples share them.
    """
    rows, clean, acts = tokens
    demo, context = plan.num_demo, plan.num_demo + plan.num_observation
    apart = [] if prefix is None else [prefix]
    video_keys = video.context_keys(plan.video_context)
    q, kv, gate = joined(video.project(rows, plan.rows.mod, plan.rows.widths, plan.rows.rope))
    seen = [*apart, kv[:, :, :context]]
    with torch.no_grad():
        clean_q, clean_kv, clean_gate = joined(
            video.project(clean, plan.clean.mod, plan.clean.widths, plan.clean.rope)
        )
        if not last:
            attended = _by_segment(
                plan,
                (clean_q[:, :1], [*seen, clean_kv[:, :, :1]]),
                (clean_q[:, 1:], [*seen, clean_kv]),
            )
            clean = video.finish(
                clean, attended, clean_gate, plan.clean.mod, plan.clean.widths, video_keys.detach()
            )
    attended = _by_segment(
        plan,
        (q[:, :demo], [kv[:, :, :demo]]),
        (q[:, demo:context], seen),
        (q[:, context : context + 1], [*apart, kv[:, :, : context + 1]]),
        (q[:, context + 1 :], [*seen, clean_kv[:, :, :1], kv[:, :, context + 1 :]]),
    )
    rows = video.finish(
        rows, attended, gate, plan.rows.mod, plan.rows.widths, video_keys, plan.rows.num_blind
    )
    q, kv, gate = joined(action.project(acts, plan.action.mod, plan.action.widths, plan.action.rope))
    num_seen = sum(part.shape[2] for part in seen)
    mask = _action_mask(plan, num_seen, clean_kv.shape[2], kv.shape[2])
    attended = attend(*_keys(q, [*seen, clean_kv, kv]), mask)
    action_keys = action.context_keys(plan.action_context)
    acts = action.finish(acts, attended, gate, plan.action.mod, plan.action.widths, action_keys)
    return rows, clean, acts


def joined(made: Projection) -> tuple[Heads, Keys, Float[Tensor, "B S h"]]:
    """Queries, keys with values in one tensor, head gates."""
    q, k, v, gate = made
    return q, torch.stack([k, v]), gate


def _keys(
    q: Float[Tensor, "B S h d"], parts: Sequence[Keys]
) -> tuple[Float[Tensor, "B S h d"], Float[Tensor, "B T h d"], Float[Tensor, "B T h d"]]:
    k, v = (torch.cat(list(parts), dim=2) if len(parts) > 1 else parts[0]).unbind(0)
    return q, k, v


def _by_segment(
    plan: JointPlan, *segments: tuple[Float[Tensor, "B S h d"], Sequence[Keys]]
) -> Float[Tensor, "B S h d"]:
    outs = []
    for q, parts in segments:
        if q.shape[1] > 0:
            q, k, v = _keys(q, parts)
            outs.append(attend(q, k, v, _demo_mask(plan, k.shape[1])))
    return torch.cat(outs, dim=1)


def _demo_mask(plan: JointPlan, num_keys: int) -> Bool[Tensor, "B 1 1 T"] | None:
    """``None`` unless some sample lacks a view that another has."""
    if plan.demo_present is None:
        return None
    batch, num_demo = plan.demo_present.shape
    rest = plan.demo_present.new_ones(batch, num_keys - num_demo)
    return torch.cat([plan.demo_present, rest], dim=1)[:, None, None]


def _action_mask(
    plan: JointPlan, num_seen: int, num_clean: int, num_actions: int
) -> Bool[Tensor, "B 1 1 T"] | None:
    mask = _demo_mask(plan, num_seen + num_clean + num_actions)
    if plan.future_seen is None:
        return mask
    future = plan.future_seen[:, None].expand(-1, num_clean - 1)
    ones = future.new_ones(len(future), 1)
    own = torch.cat([ones.expand(-1, num_seen + 1), future, ones.expand(-1, num_actions)], dim=1)[
        :, None, None
    ]
    return own if mask is None else own & mask


@dataclass(frozen=True, kw_only=True)
class StageStream:
    """The tokens of one cascade pass: where they go in the cache, how far back each run of them sees."""

    widths: tuple[int, ...]
    """Tokens of each run; a run has one noise level and one span of keys."""
    start: int
    """Where the first token's keys lie in the cache."""
    ends: tuple[int, ...]
    """Each run attends to the cache from 0 to here."""
    rope: Float32[Tensor, "S d/2 2"]
    mask: Bool[Tensor, "1 1 S2 T"] | None = None
    """For the last run alone: localisation samples that ride side by side must not see one another."""
    num_blind: int = 0
    wanted: Literal["all", "last", "none"] = "all"
    """Which runs are wanted after the last layer; of the others only keys and values are (a prefill)."""


def stage_layer(
    block: Block,
    x: Float32[Tensor, "B S w"],
    stream: StageStream,
    mod: Modulation,
    keys: Float[Tensor, "B T h d"],
    values: Float[Tensor, "B T h d"],
    context: Keys,
    is_last: bool = False,
) -> Float32[Tensor, "B S2 w"]:
    """One layer of one cascade pass: cache the new tokens' keys, then let each run see up to its end."""
    widths, ends, num_blind = stream.widths, stream.ends, stream.num_blind
    q, k, v, gate = block.project(x, mod, widths, stream.rope)
    places = slice(stream.start, stream.start + x.shape[1])
    # Keys and values are two buffers: a compiler writes into each in place, into halves of one it does not.
    keys[:, places].copy_(k)
    values[:, places].copy_(v)
    if is_last and stream.wanted == "none":
        return x[:, :0]
    if is_last and stream.wanted == "last":
        x, q, gate = (y[:, -widths[-1] :] for y in (x, q, gate))
        mod, widths, ends, num_blind = mod[:, -1:], widths[-1:], ends[-1:], 0
    outs, low = [], 0
    for run, (width, end) in enumerate(zip(widths, ends, strict=True)):
        mask = stream.mask if run == len(widths) - 1 else None
        outs.append(attend(q[:, low : low + width], keys[:, :end], values[:, :end], mask))
        low += width
    attended = torch.cat(outs, dim=1) if len(outs) > 1 else outs[0]
    return block.finish(x, attended, gate, mod, widths, context, num_blind)

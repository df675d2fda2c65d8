"""A cascade pass out of few kernels: what ``mot.stage_layer`` computes, layer by layer, with nothing in between.

Legend: B batch, S tokens, M = B S rows, G time groups, T cache length, L context tokens, N layers, h heads, d head
width, w expert width, i = h d, F folded keys of all heads, c numbers a patch.

Thirteen kernels a layer, and one or two that combine an attention's shares: six products, two attentions, three norms
that first add a product to the tokens, and two that put queries, keys and values in their places. Between products
numbers stay float32, so that fewer are rounded than in plain torch. The values of a short instruction may be folded
into their output weights (``kernels.told``).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from hostbot.model.experts import Block, Expert, Modulation, VideoExpert
from hostbot.model.kernels import FOLDED_KEYS
from hostbot.model.kernels.attention import Sight, attention_of
from hostbot.model.kernels.heads import place_heads
from hostbot.model.kernels.norm import Addend, Affine, Modulated, Row, add_and_norm
from hostbot.model.kernels.product import gelu_product, shares_of_product
from hostbot.model.kernels.step import euler_step
from hostbot.model.kernels.told import fold, weights_of
from hostbot.model.mot import StageStream

Cache = tuple[Float[Tensor, "B T h d"], Float[Tensor, "B T h d"]]


def fused_pass(
    expert: Expert,
    x: Float32[Tensor, "B S w"],
    stream: StageStream,
    mod: Modulation,
    keys: Float[Tensor, "N B T h d"],
    values: Float[Tensor, "N B T h d"],
    context: Float[Tensor, "N 2 B L h d"],
    num_told: int,
    folded: Float[Tensor, "N w F"] | None = None,
    head: Modulated | None = None,
) -> Float[Tensor, "B S2 w"]:
    """All layers of one pass; ``x`` is used up. With ``head`` the tokens come back normed for what reads them."""
    batch, last = len(x), len(expert.blocks) - 1
    rows, addend, fixed = x.flatten(0, 1), None, stream.start
    told = sight_of_context(num_told, context.shape[3] - 1)
    for index in range(len(expert.blocks)):
        block, cache = expert.layer(index), (keys[index], values[index])
        q, gates = _project(block, rows, addend, stream, mod, cache)
        if index == last and stream.wanted == "none":
            return x[:, :0]
        if index == last and stream.wanted == "last":
            rows, q, gates = (_last_run(y, batch, stream) for y in (rows, q, gates))
            stream, mod = _narrowed(stream), mod[:, -1:]
        sight = replace(sight_of(stream), fixed=fixed)
        attended = attention_of(q, *cache, gates, sight)
        fold_of = None if folded is None else folded[index]
        addend = _finish(block, rows, attended, stream, mod, context[index], told, fold_of)
    normed = add_and_norm(rows, addend, head, *_runs(stream), expert.config.eps, q.dtype)
    return (rows if head is None else normed).unflatten(0, (batch, -1))


def velocity_head(expert: VideoExpert, embedding: Float32[Tensor, "1 1 w"]) -> Modulated:
    """How the last tokens are normed before they become a velocity."""
    level = embedding[0]
    return Modulated(
        shift=Row(own=expert.table[0, 0], level=level), scale=Row(own=expert.table[0, 1], level=level)
    )


def step_along(
    expert: VideoExpert,
    state: Float32[Tensor, "1 S c"],
    normed: Float[Tensor, "1 S w"],
    sigma: float,
    sigma_next: float,
) -> Float32[Tensor, "1 S c"]:
    """One denoising step along the velocity of tokens that ``velocity_head`` has normed."""
    shares = shares_of_product(normed[0], expert.patch_out.weight)
    return euler_step(state, shares, expert.patch_out.bias, sigma, sigma_next)


def empty_folds(expert: Expert, device: torch.device) -> Float[Tensor, "N w F"]:
    """Room for what ``cache_context`` folds of a whole expert."""
    config, dtype = expert.config, expert.layer(0).cross_out.weight.dtype
    sizes = config.num_layers, config.dim, config.num_heads * FOLDED_KEYS
    return torch.zeros(*sizes, device=device, dtype=dtype)


def can_fold(num_told: int, text_length: int) -> bool:
    """Whether an instruction of so many tokens has few enough keys to be folded."""
    return sight_of_context(num_told, text_length).far <= FOLDED_KEYS


def cache_context(
    block: Block,
    embedded: Float[Tensor, "B L w"],
    keys: Float[Tensor, "2 B T h d"],
    first: int,
    folded: Float[Tensor, "w F"] | None = None,
) -> None:
    """Put the cross-attention keys and values of embedded context tokens into ``keys``, and fold the values."""
    places = slice(first, first + embedded.shape[1])
    shares = shares_of_product(embedded.flatten(0, 1), block.cross_kv.weight)
    norm = block.cross_norm_k.weight
    cache = (keys[0][:, places], keys[1][:, places])
    place_heads(
        shares, block.cross_kv.bias, None, norm, None, cache, block.heads, embedded.shape[1], block.eps
    )
    if folded is not None:
        fold(block.cross_out.weight, cache[1], folded, first)


def sight_of(stream: StageStream) -> Sight:
    """What each token of a pass sees of the cache; localisation samples see the context and themselves."""
    far, own = stream.ends[-1], -1
    if stream.mask is not None:
        far, own = far - stream.widths[-1], stream.start
    return Sight(
        near=stream.ends[0], far=far, num_first=stream.widths[0] if len(stream.widths) > 1 else 0, own=own
    )


def sight_of_context(num_told: int, text_length: int) -> Sight:
    """Keys of text and state; after ``num_told`` tokens one key stands for the padding up to ``text_length``.

    n keys alike with weight exp(s) each are one of weight exp(s + log n), whose value is theirs.
    """
    padding = text_length - num_told
    state = num_told + min(1, padding)
    alike, times = (num_told, padding) if padding else (-1, 1)
    return Sight(near=state, far=state + 1, fixed=state + 1, alike=alike, times=times)


def _runs(stream: StageStream) -> tuple[int, int]:
    """Tokens of a sample, and how many of them come before the last run, whose noise level differs."""
    num_tokens = sum(stream.widths)
    return num_tokens, num_tokens - stream.widths[-1] if len(stream.widths) > 1 else num_tokens


def _project(
    block: Block,
    rows: Float32[Tensor, "M w"],
    addend: Addend | None,
    stream: StageStream,
    mod: Modulation,
    cache: Cache,
) -> tuple[Float[Tensor, "M i"], Float32[Tensor, "M h"]]:
    norm = Modulated(shift=_row(block, mod, 0), scale=_row(block, mod, 1))
    (num_tokens, num_first), dtype = _runs(stream), block.qkvg.weight.dtype
    normed = add_and_norm(rows, addend, norm, num_tokens, num_first, block.eps, dtype)
    places = slice(stream.start, stream.start + num_tokens)
    q, gates = place_heads(
        shares_of_product(normed, block.qkvg.weight),
        block.qkvg.bias,
        block.norm_q.weight,
        block.norm_k.weight,
        stream.rope,
        (cache[0][:, places], cache[1][:, places]),
        block.heads,
        num_tokens,
        block.eps,
    )
    assert q is not None
    assert gates is not None
    return q, gates


def _finish(
    block: Block,
    rows: Float32[Tensor, "M w"],
    attended: Float[Tensor, "M i"],
    stream: StageStream,
    mod: Modulation,
    context: Float[Tensor, "2 B L h d"],
    told: Sight,
    folded: Float[Tensor, "w F"] | None,
) -> Addend:
    """Everything after a layer's joint attention; what its last product adds is left to the next layer's norm."""
    runs, dtype = _runs(stream), attended.dtype
    out = _addend(attended, block.out, _row(block, mod, 2))
    affine = Affine(weight=block.norm_cross.weight, bias=block.norm_cross.bias)
    normed = add_and_norm(rows, out, affine, *runs, block.norm_cross.eps, dtype)
    shares, norm_q = shares_of_product(normed, block.cross_q.weight), block.cross_norm_q.weight
    q, _ = place_heads(shares, block.cross_q.bias, norm_q, None, None, None, block.heads, runs[0], block.eps)
    assert q is not None
    sight = replace(told, num_first=stream.num_blind)
    if folded is None:
        cross = _addend(attention_of(q, context[0], context[1], None, sight), block.cross_out, None)
    else:
        weights = weights_of(q, context[0], sight)
        cross = Addend(shares=shares_of_product(weights, folded), bias=block.cross_out.bias, gate=None)
    norm = Modulated(shift=_row(block, mod, 3), scale=_row(block, mod, 4))
    normed = add_and_norm(rows, cross, norm, *runs, block.eps, dtype)
    hidden = gelu_product(normed, block.ffn_in.weight, block.ffn_in.bias)
    return _addend(hidden, block.ffn_out, _row(block, mod, 5))


def _addend(x: Float[Tensor, "M i"], layer: torch.nn.Linear, gate: Row | None) -> Addend:
    return Addend(shares=shares_of_product(x, layer.weight), bias=layer.bias, gate=gate)


def _row(block: Block, mod: Modulation, component: int) -> Row:
    """A component at the first run's level and at the last one's (all but the last run are clean)."""
    return Row(own=block.table[0, component], level=mod[0, :: max(1, mod.shape[1] - 1), component])


def _last_run(y: Float[Tensor, "M n"], batch: int, stream: StageStream) -> Float[Tensor, "M2 n"]:
    return y.unflatten(0, (batch, -1))[:, -stream.widths[-1] :].flatten(0, 1)


def _narrowed(stream: StageStream) -> StageStream:
    width = stream.widths[-1]
    return replace(
        stream,
        widths=(width,),
        start=stream.start + sum(stream.widths) - width,
        ends=stream.ends[-1:],
        rope=stream.rope[-width:],
        num_blind=0,
    )

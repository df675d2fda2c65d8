"""Each kernel against the torch expression it replaces, in float64; and a whole pass against ``mot.stage_layer``.

On a machine without a card: ``TRITON_INTERPRET=1 pytest -m gpu tests/model/test_kernels.py`` (needs Triton).
"""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="kernels need Triton")

from hostbot import flow
from hostbot.model.fused import sight_of_context
from hostbot.model.kernels import FOLDED_KEYS, launch
from hostbot.model.kernels.attention import Cut, Sight, attention_of
from hostbot.model.kernels.heads import place_heads
from hostbot.model.kernels.norm import Addend, Affine, Modulated, Row, add_and_norm
from hostbot.model.kernels.product import gelu_product, shares_of_product, tiled
from hostbot.model.kernels.step import euler_step
from hostbot.model.kernels.told import fold, weights_of
from hostbot.model.kernels.ways import Tiling
from hostbot.model.layers import Linear
from hostbot.model.rope import line_rope, rotate

pytestmark = pytest.mark.gpu
DEVICE = "cpu" if launch.INTERPRETED else "cuda"
HALF = torch.float16 if launch.INTERPRETED else torch.bfloat16  # the interpreter multiplies no bfloat16


def normal(*shape, dtype=HALF, seed=0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=g).to(DEVICE, dtype)


def error(x, y):
    """Relative to the whole: a single wrong element of a small tensor shows too."""
    assert x.isfinite().all()
    return ((x.double() - y.double()).norm() / y.double().norm()).item()


@pytest.mark.parametrize("rows", [1, 8, 32, 147, 155, 160])
@pytest.mark.parametrize(("shares", "early"), [(1, 0), (3, 0), (1, 128), (2, 64)])
def test_products(rows, shares, early):
    x, weight = normal(rows, 200), normal(96, 200, seed=1) / 14
    out = torch.full((shares, rows, 96), torch.nan, device=DEVICE)
    tiling = Tiling(outputs=64, inputs=64, shares=shares, early=early if rows <= 128 else 0)
    tiled(x, weight, tiling, out)
    assert error(out.sum(0), x.double() @ weight.double().T) < 1e-5
    assert error(shares_of_product(x, weight).sum(0), x.double() @ weight.double().T) < 1e-5


def test_the_product_with_gelu():
    x, weight, bias = normal(19, 64), normal(80, 64, seed=1) / 8, normal(80)
    expected = F.gelu(x.double() @ weight.double().T + bias.double(), approximate="tanh")
    assert error(gelu_product(x, weight, bias), expected) < 4e-3


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("kind", ["affine", "modulated", "none"])
def test_adding_and_norming(gated, kind):
    batch, tokens, first, width = 2, 5, 2, 48
    x = normal(batch * tokens, width, dtype=torch.float32)
    shares, bias, levels = (
        normal(3, len(x), width, dtype=torch.float32),
        normal(width),
        normal(2, 3, width).float(),
    )
    rows = [Row(own=normal(width, seed=i), level=levels[:, i]) for i in range(3)]
    spread = [
        (r.own.double() + r.level.double()).repeat_interleave(
            torch.tensor([first, tokens - first], device=DEVICE), 0
        )
        for r in rows
    ]
    gate, shift, scale = (s.repeat(batch, 1) for s in spread)
    expected = x.double() + (shares.double().sum(0) + bias.double()) * (gate if gated else 1)
    norm = {
        "affine": Affine(weight=rows[1].own, bias=rows[2].own),
        "modulated": Modulated(shift=rows[1], scale=rows[2]),
        "none": None,
    }[kind]
    addend = Addend(shares=shares, bias=bias, gate=rows[0] if gated else None)
    out = add_and_norm(x, addend, norm, tokens, first, 1e-6, torch.float32)
    assert error(x, expected) < 1e-6
    normed = F.layer_norm(expected, (width,), eps=1e-6)
    if kind == "affine":
        assert error(out, normed * rows[1].own.double() + rows[2].own.double()) < 1e-5
    if kind == "modulated":
        assert error(out, normed * (1 + scale) + shift) < 1e-5


def test_norming_alone_leaves_the_tokens():
    x, row = normal(3, 40, dtype=torch.float32), Row(own=normal(40), level=normal(1, 40).float())
    before = x.clone()
    out = add_and_norm(x, None, Modulated(shift=row, scale=row), 3, 3, 1e-6, torch.float32)
    both = row.own.double() + row.level.double()
    assert torch.equal(x, before)
    assert error(out, F.layer_norm(x.double(), (40,), eps=1e-6) * (1 + both) + both) < 1e-5


def test_queries_keys_values_and_gates_are_placed():
    batch, tokens, heads, width = 2, 3, 3, 16
    inner = heads * width
    shares, bias = normal(2, batch * tokens, 3 * inner + 16, dtype=torch.float32), normal(3 * inner + 16)
    norms = normal(inner, seed=1), normal(inner, seed=2)
    rope = line_rope(torch.arange(4, 4 + tokens), width).to(DEVICE)
    keys, values = (torch.zeros(batch, 9, heads, width, device=DEVICE, dtype=HALF) for _ in range(2))
    cache = (keys[:, 2 : 2 + tokens], values[:, 2 : 2 + tokens])
    q, gates = place_heads(shares, bias, *norms, rope, cache, (heads, width), tokens, 1e-6)
    made = (shares.double().sum(0) + bias.double()).unflatten(0, (batch, tokens))
    qk = made[..., : 2 * inner].unflatten(-1, (2, inner))
    qk = F.rms_norm(qk, (inner,), eps=1e-6) * torch.stack(norms).double()
    qk = rotate(qk.unflatten(-1, (heads, width)), rope)
    assert error(q.view(batch, tokens, heads, width), qk[:, :, 0]) < 4e-3
    assert error(cache[0], qk[:, :, 1]) < 4e-3
    assert error(cache[1].flatten(2), made[..., 2 * inner : 3 * inner]) < 4e-3
    assert error(gates, torch.sigmoid(made[..., 3 * inner : 3 * inner + heads]).flatten(0, 1)) < 1e-5
    assert keys[:, :2].abs().sum() == 0  # nothing beside its place
    assert values[:, 2 + tokens :].abs().sum() == 0


def test_parts_of_heads():
    rows, heads, width = 3, 2, 16
    shares, bias, norm = normal(2, rows, 64, dtype=torch.float32), normal(64), normal(32, seed=1)
    made = shares.double().sum(0) + bias.double()
    q, gates = place_heads(
        shares[..., :32].contiguous(), bias[:32], norm, None, None, None, (heads, width), rows, 1e-6
    )
    assert gates is None
    assert error(q, F.rms_norm(made[:, :32], (32,), eps=1e-6) * norm.double()) < 4e-3
    keys, values = (torch.zeros(1, rows, heads, width, device=DEVICE, dtype=HALF) for _ in range(2))
    q, _ = place_heads(shares, bias, None, norm, None, (keys, values), (heads, width), rows, 1e-6)
    assert q is None
    assert error(keys.flatten(2)[0], F.rms_norm(made[:, :32], (32,), eps=1e-6) * norm.double()) < 4e-3
    assert error(values.flatten(2)[0], made[:, 32:]) < 4e-3


@pytest.mark.parametrize(
    "cut",
    [
        Cut(queries=16, keys=16),
        Cut(queries=16, keys=16, fixed_shares=3),
        Cut(queries=64, keys=32, fixed_shares=2),
        Cut(queries=16, keys=64, fixed_shares=9),
        Cut(queries=16, keys=16, fixed_shares=0, own_shares=3),
        Cut(queries=64, keys=32, fixed_shares=0, own_shares=2),
        Cut(queries=16, keys=16, fixed_shares=2, own_shares=2),
        Cut(queries=16, keys=64, fixed_shares=0),
    ],
)
@pytest.mark.parametrize(
    ("queries", "sight"),
    [
        (21, Sight(near=0, far=70)),
        (21, Sight(near=0, far=70, fixed=70)),
        (21, Sight(near=69, far=70, fixed=70, num_first=7)),
        (21, Sight(near=49, far=70, fixed=49)),
        (21, Sight(near=50, far=70, fixed=49, num_first=1)),
        (21, Sight(near=50, far=40, num_first=4, own=36, fixed=30)),
        (8, Sight(near=0, far=33, own=33, fixed=33)),
        (8, Sight(near=0, far=33, own=33, fixed=20)),
    ],
)
def test_attention(cut, queries, sight):
    batch, heads, width, length = 2, 3, 32, 80
    k, v = (normal(batch, length, heads, width, seed=i) for i in range(2))
    q, gate = (
        normal(batch * queries, heads * width, seed=3),
        normal(batch * queries, heads, dtype=torch.float32),
    )
    m, n = torch.arange(queries, device=DEVICE)[:, None], torch.arange(length, device=DEVICE)[None]
    seen = n < torch.where(m < sight.num_first, sight.near, sight.far)
    if sight.own >= 0:
        seen |= n == sight.own + m
    split = q.unflatten(0, (batch, queries)).unflatten(-1, (heads, width))
    q64, k64, v64 = (y.double().transpose(1, 2) for y in (split, k, v))
    expected = F.scaled_dot_product_attention(q64, k64, v64, attn_mask=seen).transpose(1, 2).flatten(0, 1)
    assert error(attention_of(q, k, v, None, sight, cut), expected.flatten(1)) < 5e-3
    gated = attention_of(q, k, v, gate, sight, cut)
    assert error(gated, (expected * gate.double()[..., None]).flatten(1)) < 5e-3


@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize(("told", "length"), [(14, 64), (14, 15), (62, 80), (64, 64)])
def test_one_key_stands_for_all_padding(told, length, shares):
    """As if every padded token had its key, for rows that see the state and for those that do not."""
    batch, heads, width, queries, blind = 2, 3, 32, 21, 7
    k, v = (normal(batch, length + 1, heads, width, seed=i) for i in range(2))
    q = normal(batch * queries, heads * width, seed=3)
    for y in (k, v):
        y[:, told:length] = y[:, told : told + 1]
    whole = Sight(near=length, far=length + 1, num_first=blind, fixed=length + 1)
    cut = Cut(queries=16, keys=16, fixed_shares=shares)
    expected = attention_of(q, k, v, None, whole, cut)
    short = replace(sight_of_context(told, length), num_first=blind)
    few = [torch.full_like(y, torch.nan if y is k else 0.0) for y in (k, v)]
    for y, z in zip(few, (k, v), strict=True):
        y[:, : short.near] = z[:, : short.near]
        y[:, short.near : short.far] = z[:, -1:]
    assert short.far == min(told + 2, length + 1)
    assert error(attention_of(q, *few, None, short, cut), expected) < 4e-3  # both are rounded


@torch.inference_mode()
def test_a_narrow_float32_layer():
    layer = Linear(20, 48).to(DEVICE, HALF)
    x = normal(2, 5, 20, dtype=torch.float32)
    expected = x.double() @ layer.weight.double().T + layer.bias.double()
    assert error(layer.in_float32(x), expected) < 1e-6


@pytest.mark.parametrize("rows", [8, 21, 40])
@pytest.mark.parametrize(("told", "length"), [(14, 64), (14, 15), (62, 80), (40, 40)])
def test_folded_values_add_what_attention_and_its_product_would(told, length, rows):
    """Values multiplied with their output weights beforehand; the state's on its own, since it changes."""
    heads, width, outputs, blind = 3, 32, 48, 5
    sight = replace(sight_of_context(told, length), num_first=blind)
    k, v = (normal(1, sight.far + 3, heads, width, seed=i) for i in range(2))
    q, weight = normal(rows, heads * width, seed=3), normal(outputs, heads * width, seed=4) / 10
    folded = torch.zeros(outputs, heads * FOLDED_KEYS, device=DEVICE, dtype=HALF)
    fold(weight, v[:, : sight.near], folded, 0)
    fold(weight, v[:, sight.near : sight.far], folded, sight.near)
    weights = weights_of(q, k, sight)
    exact = [y.double() for y in (q, k, v, weight)]
    scores = torch.einsum("mhd,nhd->mhn", exact[0].unflatten(1, (heads, width)), exact[1][0]) / width**0.5
    n = torch.arange(k.shape[1], device=DEVICE)
    scores += torch.where(n == sight.alike, math.log(sight.times), 0.0)
    limit = torch.where(torch.arange(rows, device=DEVICE) < blind, sight.near, sight.far)
    scores = scores.masked_fill(n >= limit[:, None, None], -torch.inf)
    attended = torch.einsum("mhn,nhd->mhd", scores.softmax(-1), exact[2][0]).flatten(1)
    padded = F.pad(scores.softmax(-1), (0, FOLDED_KEYS))[..., :FOLDED_KEYS].flatten(1)
    assert error(weights, padded) < 5e-3
    assert error(weights.double() @ folded.double().T, attended @ exact[3].T) < 8e-3


def test_an_euler_step_from_shares():
    state, shares, bias = (
        normal(1, 21, 12, dtype=torch.float32),
        normal(3, 21, 12, dtype=torch.float32),
        normal(12),
    )
    expected = flow.euler(state.double(), shares.double().sum(0) + bias.double(), 0.7, 0.4)
    assert error(euler_step(state, shares, bias, 0.7, 0.4), expected) < 1e-6

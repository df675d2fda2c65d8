"""The product of ``hopper.cu`` on a card: right against float64 however it is cut, alone and one after the other."""

import pytest
import torch
import torch.nn.functional as F

from hostbot.model.kernels import hopper
from hostbot.model.kernels.hopper import HopperTiling, hopper_product

ON_CARD = torch.cuda.is_available() and hopper.runs_on(torch.device("cuda", 0))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not ON_CARD, reason="needs a card of compute capability 9.0"),
]
PLAIN = HopperTiling(outputs=128, w_stages=4, x_stages=3)
CUTS = [
    PLAIN,
    HopperTiling(outputs=128, w_stages=4, x_stages=3, shares=3),
    HopperTiling(outputs=128, w_stages=4, x_stages=3, cluster=2, shares=3, half=True),
    HopperTiling(outputs=72, w_stages=8, x_stages=3, half=True),
    HopperTiling(outputs=72, w_stages=8, x_stages=3, cluster=4, half=True),
    HopperTiling(outputs=256, blocks=2, w_stages=3, x_stages=3, cluster=2, shares=2),
    HopperTiling(outputs=216, blocks=2, w_stages=3, x_stages=3),
]


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to("cuda", torch.bfloat16)


def error(x, y):
    assert x.isfinite().all()
    return ((x.double() - y).norm() / y.norm()).item()


@pytest.mark.parametrize("tiling", CUTS, ids=str)
@pytest.mark.parametrize("rows", [1, 8, 17, 32, 147, 148, 160])
@pytest.mark.parametrize("overlap", [True, False])
def test_products(tiling, rows, overlap):
    x, weight = normal(rows, 776), normal(1000, 776, seed=1) / 28
    dtype = torch.bfloat16 if tiling.half else torch.float32
    out = torch.full((tiling.shares, rows, 1000), torch.nan, device="cuda", dtype=dtype)
    hopper_product(x, weight, tiling, out, overlap=overlap)
    first = out.clone()
    assert error(out.double().sum(0), x.double() @ weight.double().T) < (4e-3 if tiling.half else 1e-5)
    hopper_product(x, weight, tiling, out, overlap=overlap)
    assert torch.equal(out, first)


@pytest.mark.parametrize("rows", [8, 32, 147])
@pytest.mark.parametrize("cluster", [1, 2, 4])
def test_the_product_with_gelu(rows, cluster):
    x, weight, bias = normal(rows, 512), normal(520, 512, seed=1) / 22, normal(520, seed=2)
    tiling = HopperTiling(outputs=112, w_stages=5, x_stages=3, cluster=cluster)
    out = torch.full((1, rows, 520), torch.nan, device="cuda", dtype=torch.bfloat16)
    hopper_product(x, weight, tiling, out, bias)
    expected = F.gelu(x.double() @ weight.double().T + bias.double(), approximate="tanh")
    assert error(out[0], expected) < 4e-3


@pytest.mark.parametrize("cluster", [1, 2, 4])
def test_a_chain_that_overlaps_equals_one_that_does_not(cluster):
    """Each product reads what the one before it wrote while that still runs; also replayed from a graph."""
    tiling = HopperTiling(outputs=64, w_stages=6, x_stages=4, cluster=cluster, half=True)
    weights = [normal(1024, 1024, seed=i) / 32 for i in range(12)]

    def chain(overlap):
        y = normal(147, 1024, seed=99)
        for weight in weights:
            out = y.new_empty(1, 147, 1024)
            hopper_product(y, weight, tiling, out, overlap=overlap)
            y = out[0]
        return y

    expected = chain(False)
    assert torch.equal(chain(True), expected)
    torch.cuda.synchronize()
    start, outs = normal(147, 1024, seed=99), [torch.empty(1, 147, 1024, device="cuda", dtype=torch.bfloat16)]
    outs += [torch.empty_like(outs[0]) for _ in weights[1:]]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index, weight in enumerate(weights):
            hopper_product(outs[index - 1][0] if index else start, weight, tiling, outs[index])
    for _ in range(20):
        graph.replay()
        assert torch.equal(outs[-1][0], expected)


@pytest.mark.parametrize("rows", [8, 147])
def test_the_table_s_hopper_rows_are_used(monkeypatch, rows):
    pytest.importorskip("triton")
    from hostbot.model.kernels import product, ways

    used = []
    monkeypatch.setattr(
        product, "hopper_product", lambda *a, **k: (used.append(a[2]), hopper_product(*a, **k))
    )
    x, weight, bias = normal(rows, 776), normal(1000, 776, seed=1) / 28, normal(1000, seed=2)
    key = (sum(ways.widths(rows)), 1000, 776)
    for tiling in (PLAIN, HopperTiling(outputs=72, w_stages=8, x_stages=3, shares=2, half=True)):
        monkeypatch.setitem(ways.MEASURED, key, tiling)
        y = product.shares_of_product(x, weight)
        assert error(y.double().sum(0), x.double() @ weight.double().T) < 4e-3
    monkeypatch.setitem(ways.MEASURED, key, PLAIN)
    expected = F.gelu(x.double() @ weight.double().T + bias.double(), approximate="tanh")
    assert error(product.gelu_product(x, weight, bias), expected) < 4e-3
    assert len(used) == 3

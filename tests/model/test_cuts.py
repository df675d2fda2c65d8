"""What can be known of the kernels where there is no Triton: when they are used, and that their tables make sense."""

import pytest

from hostbot.model import kernels
from hostbot.model.fp8 import quantise_
from hostbot.model.kernels import cuts
from hostbot.model.kernels.hopper import HopperTiling
from hostbot.model.sizes import wan5b_model
from tests.model.small import small_model


def test_a_cpu_model_runs_in_plain_torch():
    assert not kernels.usable(small_model().bfloat16())
    assert not kernels.usable(quantise_(small_model()))


@pytest.mark.parametrize("row", cuts.read()["products"], ids=str)
def test_every_product_can_be_cut_as_said(row):
    shape = row["rows"], row["outputs"], row["inputs"]
    if "hopper" in row:
        assert HopperTiling(**row["hopper"]).fits(*shape)
        assert row["hopper"]["shares"] == 1 or not fits_gelu(row)
    if "library_shares" in row:
        assert row["inputs"] % row["library_shares"] == 0
        return
    tiling = row["tiling"]
    steps = -(-row["inputs"] // tiling["inputs"])
    each = -(-steps // tiling["shares"])
    last = row["inputs"] - (tiling["shares"] - 1) * each * tiling["inputs"]
    assert last >= max(1, tiling["early"])  # what is read early belongs to the share
    assert tiling["early"] & (tiling["early"] - 1) == 0
    shared = 2 * (row["rows"] + tiling["outputs"]) * (tiling["early"] + tiling["stages"] * tiling["inputs"])
    assert shared <= 227 * 1024


def fits_gelu(row):
    """Whether a GELU may follow, which no share can have to itself."""
    config = wan5b_model()
    return any((row["outputs"], row["inputs"]) == (e.ffn_dim, e.dim) for e in (config.video, config.action))


def test_every_product_of_the_paper_s_size_is_there():
    config = wan5b_model()
    found = {(row["rows"], row["outputs"], row["inputs"]) for row in cuts.read()["products"]}
    for rows, expert in ((160, config.video), (16, config.video), (32, config.action)):
        dim, inner, ffn = expert.dim, expert.inner_dim, expert.ffn_dim
        for shape in ((3 * inner + 32, dim), (dim, inner), (inner, dim), (ffn, dim), (dim, ffn)):
            assert (rows, *shape) in found
    assert {(row["queries"], row["keys"]) for row in cuts.read()["attentions"]} == {
        (queries, keys) for queries in (16, 32, 160, 0) for keys in (128, 768, 0)
    }

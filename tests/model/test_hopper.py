"""The product of ``hopper.cu`` without a card: what its launch needs, that it refuses others, that a wheel has it."""

import itertools

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import assume, given

from hostbot.model.kernels import hopper
from hostbot.model.kernels.hopper import HopperTiling, hopper_product

ON_CARD = hopper.runs_on(torch.device("cuda", 0)) if torch.cuda.is_available() else False


@st.composite
def tilings(draw):
    return HopperTiling(
        outputs=8 * draw(st.integers(1, 32)),
        w_stages=draw(st.integers(1, 24)),
        x_stages=draw(st.integers(1, 24)),
        blocks=draw(st.integers(1, 2)),
        cluster=draw(st.sampled_from([1, 2, 4, 8])),
        shares=draw(st.integers(1, 16)),
        half=draw(st.booleans()),
    )


def furthest_read(tiling):
    """Where the last instruction's left operand ends: 64 lines of 128 bytes for every block of every group."""
    ends = [
        slot * tiling.outputs * 128 + (group * tiling.blocks + block + 1) * 64 * 128
        for slot in range(tiling.w_stages)
        for group in range(tiling.groups)
        for block in range(tiling.blocks)
    ]
    return max(ends)


@given(tilings(), st.integers(1, 160))
def test_shared_memory_holds_all_that_is_read_and_written(tiling, rows):
    tokens = -(-rows // 8) * 8
    usable = tiling.shared_bytes(rows) - 1023  # the rings begin at the first whole 1,024 bytes
    assert usable >= furthest_read(tiling)
    assert usable >= 128 * (tiling.outputs * tiling.w_stages + tokens * tiling.x_stages)
    assert usable >= tiling.groups * tiling.blocks * tokens * 68 * 4


@pytest.mark.parametrize("rows", [1, 8])
def test_a_small_tile_of_rows_does_not_hide_what_is_read_past_the_weights(rows):
    """An illegal address on the card: with so few rows their ring is shorter than what is read past the last tile."""
    tiling = HopperTiling(outputs=72, w_stages=8, x_stages=3, cluster=4, half=True)
    rings = 128 * (8 * 72 + 3 * 8)
    assert furthest_read(tiling) > rings + 1024
    assert tiling.shared_bytes(rows) >= furthest_read(tiling) + 1023


@given(tilings(), st.integers(1, 20000))
def test_the_grid_covers_all_outputs_in_whole_clusters(tiling, outputs):
    tiles, shares, one = tiling.grid(outputs)
    assert tiles * tiling.outputs >= outputs > (tiles - tiling.cluster) * tiling.outputs
    assert tiles % tiling.cluster == 0
    assert (shares, one) == (tiling.shares, 1)


@given(tilings(), st.integers(1, 200), st.integers(1, 512), st.integers(1, 512))
def test_a_cut_that_fits_leaves_no_share_empty_and_stays_on_the_card(tiling, rows, outputs, inputs):
    outputs, inputs = 4 * outputs, 8 * inputs
    assume(tiling.fits(rows, outputs, inputs))
    steps = -(-inputs // 64)
    ends = [steps * share // tiling.shares for share in range(tiling.shares + 1)]
    assert all(a < b for a, b in itertools.pairwise(ends))
    barriers = 16 * (tiling.w_stages + tiling.x_stages)
    assert tiling.shared_bytes(rows) + barriers <= 227 * 1024
    assert rows <= 160
    assert tiling.threads <= 1024


@pytest.mark.parametrize(
    "change", [{"outputs": 68}, {"outputs": 264}, {"shares": 5}, {"cluster": 16}, {"w_stages": 20}]
)
def test_a_cut_that_does_not_fit_is_known(change):
    fitting = {"outputs": 128, "w_stages": 8, "x_stages": 4, "shares": 4}
    assert HopperTiling(**fitting).fits(147, 3072, 256)
    assert not HopperTiling(**fitting | change).fits(147, 3072, 256)
    assert not HopperTiling(**fitting).fits(161, 3072, 256)
    assert not HopperTiling(**fitting).fits(147, 3070, 256)
    assert not HopperTiling(**fitting).fits(147, 3072, 252)


def test_the_program_says_how_it_is_cut():
    tiling = HopperTiling(outputs=72, w_stages=5, x_stages=3, cluster=2)
    program = hopper.source(tiling, 147, gelu=True, overlap=False)
    for line in ("TOKENS 152", "OUTPUTS 72", "GROUPS 2", "W_STAGES 5", "X_STAGES 3", "CLUSTER 2", "HALF 1"):
        assert f"#define {line}\n" in program
    assert "m64n152k16" in program
    assert "#define OVERLAP 0\n" in program


def test_a_step_s_signals_are_no_fence_of_the_card():
    """A release at the cluster's scope at every step made every product with clusters slower than without."""
    text = hopper.SOURCE.read_text()
    loop = text[text.index("auto release =") : text.index("wait_for_products<0>();")]
    assert "barrier_arrive_at" in loop
    assert "cluster_done" not in loop
    signal = text[text.index("void barrier_arrive_at") : text.index("void cluster_sync")]
    assert "mbarrier.arrive.shared::cluster.b64" in signal


@pytest.mark.skipif(ON_CARD, reason="this card can run it")
def test_other_devices_are_refused_before_anything_is_compiled(monkeypatch):
    monkeypatch.setattr(hopper, "compiled", lambda *_: pytest.fail("compiled for a card that cannot run it"))
    x, weight = torch.zeros(8, 64, dtype=torch.bfloat16), torch.zeros(16, 64, dtype=torch.bfloat16)
    tiling = HopperTiling(outputs=16, w_stages=1, x_stages=1)
    with pytest.raises(RuntimeError, match=r"needs a card of capability \(9, 0\); cpu has none"):
        hopper_product(x, weight, tiling, torch.zeros(1, 8, 16))


def test_the_wheel_has_the_program_and_the_table(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel", reason="needs hatchling")
    import zipfile
    from pathlib import Path

    root = Path(__file__).parents[2]
    (wheel,) = builder.WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    assert "hostbot/model/kernels/hopper.cu" in names
    assert "hostbot/model/kernels/h200.json" in names

"""Which Hopper cuts a run keeps, without a card: what it tries, what it writes, and what it makes of its figures."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hostbot.model.kernels import cuts, ways
from hostbot.model.kernels.hopper import HopperTiling
from hostbot.model.sizes import tiny_model

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WIDE = {"outputs": 128, "w_stages": 6, "x_stages": 6, "blocks": 1, "cluster": 1, "shares": 5, "half": True}


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def choice(monkeypatch, tmp_path):
    """The module, with tables and a file of its own."""
    pytest.importorskip("triton", reason="kernels need Triton")
    import hopper_choice

    monkeypatch.setattr(cuts, "PATH", tmp_path / "h200.json")
    cuts.PATH.write_text("{}\n")
    before = hopper_choice.tables()
    yield hopper_choice
    hopper_choice.put(before)


def test_all_that_is_tried_fits_and_runs_at_once():
    import hopper_cuts

    jobs = hopper_cuts.jobs()
    for job in jobs:
        if isinstance(job.way, HopperTiling):
            assert job.way.fits(hopper_cuts.table_rows(job.rows), job.outputs, job.inputs)
            tiles, shares, _ = job.way.grid(job.outputs)
            assert not job.timed or tiles * shares <= hopper_cuts.MOST_BLOCKS[job.way.cluster]
            assert job.way.shares == 1 or not job.gelu
    tried = {(job.rows, job.outputs, job.inputs) for job in jobs if isinstance(job.way, HopperTiling)}
    assert {(rows, *shape) for rows, shapes in hopper_cuts.SHAPES.items() for shape in shapes} <= tried
    beside = {job.rows for job in jobs if isinstance(job.way, hopper_cuts.Triton)}
    assert beside == {8, 32}  # what these are in the table; the library's stand beside all


def run_folder(folder):
    """A finished run's files: three right products, one that failed, one pass."""
    shape = {"rows": 147, "outputs": 3072, "inputs": 3072, "overlap": True, "packed": False, "compiler": ""}
    right = {"right": True, "error": 0.001, "same": True}
    rows = [
        shape | right | {"way": 1, "us": 9.3, "tbytes_per_s": 2.0},
        shape | right | {"way": WIDE, "us": 8.9, "tbytes_per_s": 2.1},
        shape | right | {"way": WIDE | {"cluster": 2}, "us": 12.0, "tbytes_per_s": 1.6},
        shape | {"way": WIDE | {"outputs": 72}, "failed": "AcceleratorError: illegal\nand more"},
    ]
    timed = [{"pass_us": 1200.0, "cut": WIDE}, {"pass_us": 1280.0, "cut": 1}]
    kernels = [{"kernel": "product", "calls": 8, "us": 10.0, "gap_us": -4.0}]
    of_pass = {"before_us": 1300.0, "after_us": 1220.0, "choices": {"147x3072x3072": timed}}
    (folder / "hopper-products.json").write_text(json.dumps({"commit": "abc", "products": rows}))
    (folder / "hopper-passes.json").write_text(
        json.dumps({"passes": {"o": of_pass | {"before_kernels": kernels}}})
    )
    (folder / "hopper.log").write_text(
        "o 147x3072x3072 1\na\n  before\n  472.2\nx\n  no\na 32x9248x1024 461.0\n"
    )


def test_a_run_in_short(tmp_path):
    import hopper_summary

    run_folder(tmp_path)
    found = hopper_summary.summarise(tmp_path)
    assert (found["commit"], found["jobs"], found["right"]) == ("abc", 4, 3)
    assert found["wrong"] == [
        {"shape": [147, 3072, 3072], "way": "72/1/6/6/1/5/1", "why": "AcceleratorError: illegal"}
    ]
    of_shape = found["products"]["147x3072x3072"]
    assert [row["us"] for row in of_shape["others"]] == [9.3]
    assert [row["way"] for row in of_shape["hopper"]] == ["128/1/6/6/1/5/1", "128/1/6/6/2/5/1"]
    assert {size: row["us"] for size, row in of_shape["by_cluster"].items()} == {"1": 8.9, "2": 12.0}
    assert found["estimated_gain"]["o"] == {
        "first_to_last_us": 80.0,
        "old_ways_to_last_us": 60.0,
        "choices_added_up_us": 80.0,
        "first_to_last_ms": 6.3,  # 80 us of 8 layers, 30 layers, 21 passes
        "old_ways_to_last_ms": 4.72,
        "choices_added_up_ms": 6.3,
    }
    assert found["passes"]["o"]["before_kernels"][0]["of_pass_us"] == 48.0
    assert found["passes_unfinished"] == ["a", "before", "472.2", "a 32x9248x1024 461.0"]
    assert (found["cascade"], found["kept"]) == ("not run", "nothing")


def test_the_kept_figures_follow_from_each_other():
    import hopper_summary

    kept = json.loads((BENCHMARKS / "results" / "hopper-h200.json").read_text())
    finished = {name: of_pass for name, of_pass in kept["passes"].items() if "after_us" in of_pass}
    assert hopper_summary.estimates(finished) == kept["estimated_gain"]
    assert kept["jobs"] - kept["right"] == len(kept["wrong"])


def test_a_table_is_written_only_if_asked_and_confirmed(choice, tmp_path):
    key, way = (160, 3072, 3072), HopperTiling(**WIDE)
    plain = ways.ELSEWHERE[key]
    ways.MEASURED[key] = way
    out = tmp_path / "out"
    out.mkdir()
    for confirmed, write in ((True, False), (False, True)):
        said = choice.keep({"commit": "abc"}, {"confirmed": confirmed}, out, write)
        assert "left as it was" in said
        assert cuts.PATH.read_text() == "{}\n"
    choice.keep({"commit": "abc"}, {"confirmed": True}, out, True)
    assert cuts.read()["commit"] == "abc"
    assert (out / "h200.json").read_text() == cuts.PATH.read_text()
    measured, elsewhere = ways.read_ways(cuts.read()["products"])
    assert (measured, elsewhere) == (ways.MEASURED, ways.ELSEWHERE)
    assert (measured[key], elsewhere[key]) == (way, plain)
    row = next(row for row in cuts.read()["products"] if "hopper" in row)
    assert row["hopper"] == WIDE


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"replays_equal": False}, False),
        ({"difference": {"o": 0.02}}, False),
        ({"difference": {"o": float("nan")}}, False),
        ({"after": {"cycle_ms": {"p50": 181.0}}}, False),
    ],
)
def test_what_confirms_a_table(choice, change, expected):
    cascade = {
        "replays_equal": True,
        "difference": {"p": 0.001, "o": 0.002},
        "before": {"cycle_ms": {"p50": 180.0}},
        "after": {"cycle_ms": {"p50": 170.0}},
    }
    assert choice.confirmed(cascade | change) == expected


@pytest.mark.parametrize("faster", [True, False])
def test_a_pass_keeps_what_was_faster_and_nothing_else(choice, monkeypatch, faster):
    rows = [
        {"rows": 8, "outputs": n, "inputs": k, "overlap": True, "packed": False, "right": True, "us": us}
        | {"way": WIDE | {"shares": 1, "outputs": 64}}
        for n, k, us in ((9248, 3072, 15.0), (3072, 3072, 6.0))
    ]
    rows.append(rows[0] | {"right": False, "us": 1.0, "way": WIDE | {"outputs": 8}})
    hopper = HopperTiling(**rows[0]["way"])
    for key, way in ways.ELSEWHERE.items():  # as if no table had named a Hopper way yet
        monkeypatch.setitem(ways.MEASURED, key, way)

    def timed(call, replays):
        return 800.0 - 10 * sum(isinstance(way, HopperTiling) for way in ways.MEASURED.values())

    turns = {"before": 800.0, "after": 780.0 if faster else 801.0}
    monkeypatch.setattr(choice, "microseconds", timed)
    monkeypatch.setattr(choice, "in_turn", lambda call, compared: turns)
    said = []
    found = choice.EightLayers.choose(
        SimpleNamespace(calls={"p": None}, out=lambda name: torch.ones(3)), rows, "p", said.append
    )
    assert found["kept"] == faster
    chosen = {key for key, way in ways.MEASURED.items() if way == hopper}
    assert chosen == ({(16, 9248, 3072), (16, 3072, 3072)} if faster else set())
    products = {"8x9248x3072", "8x3072x3072", "8x14336x3072", "8x3072x14336"}
    assert set(found["choices"]) == products | {"attention 16 long", "attention 16 short"}
    assert len(said) == 7


def test_the_whole_cascade_is_compared_under_both_tables(choice, monkeypatch):
    from models import build

    used = []
    monkeypatch.setattr(choice, "put", lambda chosen: used.append(chosen))
    model = build(tiny_model(), torch.device("cpu"), torch.float32)
    before, after = ({"before": 1}, {}), ({"after": 1}, {})
    found = choice.in_cycles(model, before, after, 1, lambda text: None)
    assert found["difference"] == {"p": 0.0, "o": 0.0, "a": 0.0}
    assert found["replays_equal"]
    assert {"p", "o", "a"} <= set(found["before"]["stages_ms"])
    assert found["after"]["cycle_ms"]["p50"] > 0
    assert [chosen for chosen in used if chosen in (before, after)] == [before, after]

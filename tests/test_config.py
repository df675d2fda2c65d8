"""Configs come back from JSON as they were, and nothing else does."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hostbot.config import from_dict, provenance, read_json, record_run, to_dict, write_json
from hostbot.presets import PRESETS, Config
from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float
    sizes: tuple[int, int] = (1, 2)


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    inner: Inner
    many: tuple[str, ...] = ()
    maybe: float | None = None
    flag: bool = False
    table: dict[str, Inner] = field(default_factory=dict)
    place: Path = Path("x")


FULL = Outer(
    name="a",
    inner=Inner(rate=1),
    many=("p", "q"),
    maybe=0.5,
    flag=True,
    table={"k": Inner(rate=2.5)},
    place=Path("y"),
)


@pytest.mark.parametrize("config", [FULL, Outer(name="b", inner=Inner(rate=3))])
def test_round_trip_through_json(config):
    assert from_dict(Outer, json.loads(json.dumps(to_dict(config)))) == config


@pytest.mark.parametrize("name", PRESETS)
def test_presets_round_trip(name):
    config = PRESETS[name]()
    assert config.name == name
    assert from_dict(Config, json.loads(json.dumps(to_dict(config)))) == config


def test_a_preset_whose_parts_disagree_is_refused():
    config = PRESETS["tiny"]()
    with pytest.raises(BadInput, match="the data has 8 action steps, the model 16"):
        replace(config, data=replace(config.data, horizon=8))
    with pytest.raises(BadInput, match="multiples of the stride 5"):
        replace(config.data, video_stride=5)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"name": "a"}, "lacks the field 'inner'"),
        ({"name": "a", "inner": {"rate": 1}, "nmae": 1}, "unknown field.*nmae"),
        ({"name": 3, "inner": {"rate": 1}}, "config.name must be str"),
        ({"name": "a", "inner": {"rate": "fast"}}, "config.inner.rate must be a number"),
        ({"name": "a", "inner": {"rate": True}}, "config.inner.rate must be a number"),
        ({"name": "a", "inner": {"rate": 1, "sizes": [1, 2, 3]}}, "sizes must be a list of 2"),
        ({"name": "a", "inner": {"rate": 1, "sizes": [1, 2.5]}}, r"sizes\[1\] must be int"),
        ({"name": "a", "inner": [1]}, "must be an object"),
        ({"name": "a", "inner": {"rate": 1}, "flag": 1}, "flag must be bool"),
        ({"name": "a", "inner": {"rate": 1}, "maybe": "x"}, "maybe must be a number"),
        ([], "must be an object"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(values, sentence):
    with pytest.raises(BadInput, match=sentence):
        from_dict(Outer, values)


def test_json_is_written_aside_and_nothing_is_left_on_failure(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
def test_unreadable_json_gets_a_sentence(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="not valid JSON"):
        read_json(path)


def test_a_run_records_config_seed_commit_and_machine(tmp_path):
    record_run(tmp_path / "run", FULL, {"data": 7})
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert from_dict(Outer, found["config"]) == FULL
    assert found["seeds"] == {"data": 7}
    assert set(provenance()) <= set(found)
    assert found["hardware"]["cores"] >= 1
    assert found["packages"]["numpy"]

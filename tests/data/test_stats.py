"""Statistics against numpy on the whole array; normalisation as a round trip; the file's refusals."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hostbot.data.clean import CleanConfig, moving_frames
from hostbot.data.normalize import NormalizeConfig, Normalizer
from hostbot.data.stats import (
    ACTION,
    RELATIVE,
    STATE,
    StatsConfig,
    any_rotation,
    compute_statistics,
    load_statistics,
    save_statistics,
)
from hostbot.geometry import to_relative
from hostbot.types import BadInput, DataError, bimanual

from .fakes import MemorySource, robot_episode


@pytest.fixture
def source():
    rng = np.random.default_rng(0)
    return MemorySource([("stack", robot_episode(rng, n)) for n in (40, 7, 2500)], embodiment=bimanual())


def check_against_numpy(stats, values):
    np.testing.assert_allclose(stats.min, values.min(0))
    np.testing.assert_allclose(stats.max, values.max(0))
    np.testing.assert_allclose(stats.mean, values.astype(np.float64).mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(stats.std, values.astype(np.float64).std(0), rtol=1e-9, atol=1e-12)
    for name, q in (("q01", 0.01), ("q10", 0.1), ("q50", 0.5), ("q90", 0.9), ("q99", 0.99)):
        expected = np.quantile(values.astype(np.float32).astype(np.float64), q, axis=0)
        np.testing.assert_allclose(getattr(stats, name), expected, rtol=1e-9, atol=1e-12)
    assert stats.count == len(values)


def test_a_wild_value_moves_no_quantile():
    values = np.random.default_rng(0).normal(size=(5001, 2)).astype(np.float32)
    values[17] = 1e6, -1e30
    source = MemorySource([("x", {"action": values})])
    check_against_numpy(compute_statistics(source, StatsConfig()).features["action"], values)


def test_statistics_equal_numpys(source):
    stats = compute_statistics(source, StatsConfig(clean=None))
    for feature in (STATE, ACTION):
        check_against_numpy(
            stats.features[feature], np.concatenate([rows[feature] for _, rows in source.data])
        )
    assert stats.num_frames == 2547
    assert stats.num_removed == 0


def test_relative_actions_reach_over_the_horizon_and_hold_the_end(source):
    stats = compute_statistics(source, StatsConfig(clean=None, horizon=5))
    expected = []
    for _, rows in source.data:
        state, action = rows[STATE], rows[ACTION]
        for start in range(len(state)):
            chunk = np.stack([action[min(start + h, len(action) - 1)] for h in range(5)])
            expected.append(to_relative(chunk, state[start], bimanual()))
    check_against_numpy(stats.features[RELATIVE], np.concatenate(expected))


def test_static_frames_are_left_out_and_counted(source):
    rows = source.data[0][1]
    for values in rows.values():
        values[10:30] = values[10]
    cleaned = moving_frames(tuple(rows.values()), bimanual(), CleanConfig())
    assert cleaned.num_removed >= 19
    stats = compute_statistics(source, StatsConfig())
    others = sum(
        moving_frames(tuple(r.values()), bimanual(), CleanConfig()).num_removed for _, r in source.data[1:]
    )
    assert stats.num_removed == cleaned.num_removed + others
    assert stats.features[STATE].count == stats.num_frames - stats.num_removed


def test_without_an_embodiment_there_are_no_relative_actions(source):
    source.embodiment = None
    assert set(compute_statistics(source, StatsConfig()).features) == {STATE, ACTION}


@given(
    arrays(
        np.float32, st.tuples(st.integers(1, 30), st.integers(1, 6)), elements=st.floats(-1e3, 1e3, width=32)
    )
)
@settings(max_examples=100, deadline=None)
def test_quantiles_of_any_numbers_stay_inside_them(values):
    source = MemorySource([("x", {"action": values})])
    stats = compute_statistics(source, StatsConfig()).features["action"]
    check_against_numpy(stats, values)
    for name in ("q01", "q50", "q99"):
        assert (np.array(getattr(stats, name)) >= values.min(0) - 1e-6).all()
        assert (np.array(getattr(stats, name)) <= values.max(0) + 1e-6).all()


@pytest.mark.parametrize("bounds", ["minmax", "quantile"])
def test_normalisation_round_trip(source, bounds):
    stats = compute_statistics(source, StatsConfig(clean=None)).features[ACTION]
    normalizer = Normalizer.from_stats(stats, NormalizeConfig(bounds=bounds))
    values = np.concatenate([rows[ACTION] for _, rows in source.data]).astype(np.float64)
    scaled = normalizer.normalize(values)
    np.testing.assert_allclose(normalizer.denormalize(scaled), values, atol=1e-12)
    if bounds == "minmax":
        np.testing.assert_allclose(scaled.min(0), -1)
        np.testing.assert_allclose(scaled.max(0), 1)
        assert (normalizer.clipped_share(values) == 0).all()
    else:
        share = normalizer.clipped_share(values)
        assert (share > 0.01).all()
        assert (share < 0.03).all()


def test_a_resting_dimension_is_centred_and_not_stretched(source):
    for _, rows in source.data:
        rows[ACTION][:, 19] = 0.25 + 1e-5 * (np.arange(len(rows[ACTION])) % 2)
    stats = compute_statistics(source, StatsConfig(clean=None)).features[ACTION]
    normalizer = Normalizer.from_stats(stats, NormalizeConfig())
    scaled = normalizer.normalize(source.data[0][1][ACTION])[:, 19]
    assert np.abs(scaled).max() < 0.011


def test_the_file_is_written_once_required_afterwards_and_checked(source, tmp_path):
    path = tmp_path / "meta" / "hostbot" / "statistics.json"
    with pytest.raises(DataError, match="hostbot data stats"):
        load_statistics(path)
    stats = compute_statistics(source, StatsConfig())
    save_statistics(stats, path)
    assert load_statistics(path, source) == stats
    with pytest.raises(DataError, match="--overwrite"):
        save_statistics(stats, path)
    save_statistics(stats, path, overwrite=True)

    source.data[0] = ("another task", source.data[0][1])
    with pytest.raises(DataError, match="other episodes"):
        load_statistics(path, source)
    source.data[0] = ("stack", source.data[0][1])
    source.data.append(source.data[1])
    with pytest.raises(DataError, match="other episodes"):
        load_statistics(path, source)
    narrow = MemorySource(
        [("x", {STATE: np.zeros((4, 7), np.float32), ACTION: np.zeros((4, 7), np.float32)})]
    )
    with pytest.raises(DataError, match="20 dimensions.*7"):
        load_statistics(path, narrow)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda d: d.pop("features"), "lacks the field 'features'"),
        (lambda d: d.update(features={"action": 3}), "must be an object"),
        (lambda d: d["features"]["action"].update(min=["a"]), "must be a number"),
        (lambda d: d["features"]["action"].update(min=[9e9] * 20), "not statistics"),
        (lambda d: d["features"]["action"].update(max=[0.0]), "not statistics"),
        (lambda d: d["features"]["action"]["q50"].__setitem__(3, float("inf")), "not statistics"),
        (lambda d: d.update(format=99), "format 99"),
        (lambda d: d.update(surprise=1), "unknown field"),
    ],
)
def test_damaged_files_get_a_sentence(source, tmp_path, damage, sentence):
    path = tmp_path / "statistics.json"
    save_statistics(compute_statistics(source, StatsConfig()), path)
    values = json.loads(path.read_text())
    damage(values)
    path.write_text(json.dumps(values))
    with pytest.raises(BadInput, match=sentence):
        load_statistics(path)


def test_nothing_gives_no_statistics(source):
    with pytest.raises(DataError, match="no episodes"):
        compute_statistics(source, StatsConfig(), episodes=[])


def test_an_embodiment_of_another_width_is_refused(source):
    from hostbot.types import single_arm

    with pytest.raises(DataError, match="20 wide.*10 numbers"):
        compute_statistics(source, StatsConfig(), embodiment=single_arm())
    assert dataclasses.is_dataclass(source.embodiment)


def test_rotations_can_be_bounded_by_what_any_rotation_has(source):
    found = compute_statistics(source, StatsConfig(horizon=4))
    wide = any_rotation(found)
    rotations = [k for part, where in bimanual().slices() if part.kind == "rot6d" for k in range(20)[where]]
    others = [k for k in range(20) if k not in rotations]
    for name, feature in found.features.items():
        bounds = np.array([wide.features[name].min, wide.features[name].max])
        np.testing.assert_array_equal(bounds[:, rotations], [[-1.0] * 12, [1.0] * 12])
        np.testing.assert_array_equal(bounds[:, others], np.array([feature.min, feature.max])[:, others])
        assert wide.features[name].mean == feature.mean
        quantiles = np.array([wide.features[name].q01, wide.features[name].q99])
        np.testing.assert_array_equal(quantiles[:, rotations], bounds[:, rotations])
    with pytest.raises(BadInput, match="no rotations"):
        any_rotation(dataclasses.replace(found, embodiment=None))

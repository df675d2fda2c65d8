"""Rotations against scipy on random input and at the awkward places; relative actions as round trips."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.transform import Rotation, Slerp

from hostbot import geometry as g
from hostbot.types import BadInput, bimanual, joint_space, single_arm

# Angles that include gimbal lock, 180 degrees and neighbourhoods of both, beside ordinary ones.
AWKWARD = [0.0, np.pi / 2, -np.pi / 2, np.pi, -np.pi, 1e-9, np.pi / 2 - 1e-7, np.pi - 1e-7, np.pi / 2 + 1e-4]
angles = st.one_of(st.sampled_from(AWKWARD), st.floats(-np.pi, np.pi))
eulers = st.tuples(angles, angles, angles).map(np.array)


@given(eulers)
@settings(max_examples=500, deadline=None)
def test_euler_matrix_agrees_with_scipy(euler):
    expected = Rotation.from_euler("xyz", euler).as_matrix()
    np.testing.assert_allclose(g.euler_to_matrix(euler), expected, atol=1e-12)


@given(eulers)
@settings(max_examples=500, deadline=None)
def test_every_form_returns_to_the_same_rotation(euler):
    matrix = Rotation.from_euler("xyz", euler).as_matrix()
    np.testing.assert_allclose(g.rot6d_to_matrix(g.matrix_to_rot6d(matrix)), matrix, atol=1e-12)
    np.testing.assert_allclose(g.quaternion_to_matrix(g.matrix_to_quaternion(matrix)), matrix, atol=1e-12)
    # At gimbal lock the angles are free but the rotation is not.
    np.testing.assert_allclose(g.euler_to_matrix(g.matrix_to_euler(matrix)), matrix, atol=1e-12)


@given(eulers)
@settings(max_examples=300, deadline=None)
def test_quaternion_agrees_with_scipy(euler):
    rotation = Rotation.from_euler("xyz", euler)
    expected = np.roll(rotation.as_quat(), 1)
    ours = g.matrix_to_quaternion(rotation.as_matrix())
    assert ours[0] >= 0
    assert min(np.abs(ours - expected).max(), np.abs(ours + expected).max()) < 1e-9


@pytest.mark.parametrize("axis", range(3))
def test_half_turns_are_exact(axis):
    vector = np.zeros(3)
    vector[axis] = np.pi
    matrix = Rotation.from_rotvec(vector).as_matrix()
    np.testing.assert_allclose(g.quaternion_to_matrix(g.matrix_to_quaternion(matrix)), matrix, atol=1e-15)
    assert g.rotation_angle(matrix) == pytest.approx(np.pi, abs=1e-12)


@pytest.mark.parametrize("pitch", [np.pi / 2, -np.pi / 2])
def test_gimbal_lock_in_float32_keeps_the_rotation(pitch):
    rng = np.random.default_rng(0)
    euler = np.stack([rng.uniform(-3, 3, 64), np.full(64, pitch), rng.uniform(-3, 3, 64)], -1)
    matrix = g.euler_to_matrix(euler.astype(np.float32))
    back = g.euler_to_matrix(g.matrix_to_euler(matrix))
    assert back.dtype == np.float32
    np.testing.assert_allclose(back, matrix, atol=1e-6)


@given(st.floats(1e-6, np.pi - 1e-6), eulers)
@settings(max_examples=200, deadline=None)
def test_rotation_angle_is_the_rotvec_length(angle, euler):
    axis = Rotation.from_euler("xyz", euler).as_matrix()[:, 0]
    matrix = Rotation.from_rotvec(angle * axis).as_matrix()
    assert g.rotation_angle(matrix) == pytest.approx(angle, abs=1e-8)


@given(arrays(np.float64, (5, 6), elements=st.floats(-3, 3)))
@settings(max_examples=300, deadline=None)
def test_any_two_independent_columns_give_a_rotation(columns):
    first, second = columns[:, :3], columns[:, 3:]
    spread = np.linalg.norm(np.cross(first, second), axis=-1)
    if (spread < 1e-3).any():
        return
    matrix = g.rot6d_to_matrix(columns)
    np.testing.assert_allclose(
        matrix @ np.swapaxes(matrix, -1, -2), np.broadcast_to(np.eye(3), matrix.shape), atol=1e-9
    )
    np.testing.assert_allclose(np.linalg.det(matrix), 1, atol=1e-9)
    assert np.array_equal(matrix[..., 2], np.cross(matrix[..., 0], matrix[..., 1]))


@pytest.mark.parametrize(
    "bad", [np.zeros(6), np.array([1.0, 0, 0, 2, 0, 0]), np.array([np.nan, 0, 0, 0, 1, 0])]
)
def test_degenerate_rot6d_is_refused(bad):
    with pytest.raises(BadInput, match="degenerate"):
        g.rot6d_to_matrix(bad)


def random_vectors(embodiment, shape, rng):
    values = rng.normal(size=(*shape, embodiment.dim))
    for part, place in embodiment.slices():
        if part.kind == "rot6d":
            values[..., place] = g.matrix_to_rot6d(
                Rotation.random(int(np.prod(shape)), rng).as_matrix()
            ).reshape(*shape, 6)
    return values


@pytest.mark.parametrize(
    "embodiment",
    [bimanual(), single_arm(), joint_space([f"j{i}" for i in range(14)], 50, ("top",))],
    ids=lambda e: e.name,
)
def test_relative_actions_round_trip_and_vanish_at_the_reference(embodiment):
    rng = np.random.default_rng(1)
    actions, reference = random_vectors(embodiment, (7, 32), rng), random_vectors(embodiment, (7,), rng)
    relative = g.to_relative(actions, reference, embodiment)
    np.testing.assert_allclose(g.to_absolute(relative, reference, embodiment), actions, atol=1e-12)
    still = g.to_relative(reference[:, None], reference, embodiment)[:, 0]
    for part, place in embodiment.slices():
        if part.kind == "gripper":
            np.testing.assert_array_equal(still[:, place], reference[:, place])
        elif part.kind == "rot6d":
            np.testing.assert_allclose(still[:, place], np.tile([1, 0, 0, 0, 1, 0], (7, 1)), atol=1e-12)
        else:
            np.testing.assert_array_equal(still[:, place], 0)


def test_relative_rotation_is_the_turn_in_the_base_frame():
    embodiment = single_arm()
    rng = np.random.default_rng(2)
    reference, turn = Rotation.random(rng=rng), Rotation.random(rng=rng)
    action = turn * reference  # turned about the base axes after the reference
    vector = lambda r: np.concatenate([np.zeros(3), g.matrix_to_rot6d(r.as_matrix()), [0.3]])  # noqa: E731
    relative = g.to_relative(vector(action)[None], vector(reference), embodiment)[0]
    np.testing.assert_allclose(relative[3:9], g.matrix_to_rot6d(turn.as_matrix()), atol=1e-12)


@pytest.mark.parametrize("kind", ["euler", "quaternion"])
def test_rotation_forms_convert_and_return(kind):
    embodiment = bimanual()
    vectors = random_vectors(embodiment, (50,), np.random.default_rng(3))
    other = g.with_rotations(embodiment, kind)
    converted = g.convert_rotations(vectors, embodiment, kind)
    assert converted.shape[-1] == other.dim
    np.testing.assert_allclose(g.convert_rotations(converted, other, "rot6d"), vectors, atol=1e-9)


def test_wrong_width_names_both_numbers():
    with pytest.raises(BadInput, match="width 14.*20"):
        g.to_relative(np.zeros((32, 14)), np.zeros(20), bimanual())


@given(eulers, st.lists(st.floats(0, 3), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_vectors_between_others_turn_by_the_way(euler, places):
    """Against scipy's great circles, of steps of 0.3 radians."""
    turns = Rotation.from_euler("xyz", euler) * Rotation.from_rotvec(
        np.linspace(0, 0.9, 4)[:, None] * [0.6, 0, 0.8]
    )
    single, at = single_arm(16.0), np.array(places)
    vectors = np.zeros((4, single.dim))
    for part, place in single.slices():
        if g.is_rotation(part):
            vectors[:, place] = g.matrix_to_rot6d(turns.as_matrix())
        else:
            vectors[:, place] = np.arange(4)[:, None] ** 2
    found = g.between(vectors, at, single)
    circles = Slerp(np.arange(4), turns)
    for part, place in single.slices():
        if g.is_rotation(part):
            off = Rotation.from_matrix(g.part_to_matrix(part, found[:, place])) * circles(at).inv()
            assert off.magnitude().max() < 0.01
        elif part.kind == "gripper":
            nearest = np.where(at - np.floor(at) < 0.5, np.floor(at), np.ceil(at))
            assert np.array_equal(found[:, place][:, 0], nearest**2)
        else:
            want = np.interp(at, np.arange(4), np.arange(4) ** 2)[:, None]
            np.testing.assert_allclose(found[:, place], np.broadcast_to(want, found[:, place].shape))
    np.testing.assert_allclose(g.between(vectors, np.arange(4.0), single), vectors, atol=1e-12)


def test_whole_places_are_left_as_they_are_and_far_rotations_are_not_mixed():
    turning = g.with_rotations(single_arm(16.0), "quaternion")
    vectors = np.zeros((3, turning.dim), np.float32)
    place = next(p for part, p in turning.slices() if g.is_rotation(part))
    vectors[:, place] = [[-0.9, 0.1, 0.3, 0.3], [0.9, -0.1, -0.3, -0.3], [0.0, 1.0, 0.0, 0.0]]
    assert np.array_equal(g.between(vectors, np.array([0.0, 1.0, 2.0]), turning), vectors)
    assert np.array_equal(
        g.between(vectors, np.array([1.4, 1.6]), turning)[:, place], vectors[[1, 2]][:, place]
    )

"""Poses: what is computed number by number is what the general functions give."""

import numpy as np
import pytest

from hostbot.geometry import matrix_to_rot6d, rot6d_to_matrix
from hostbot.sim.pose import DOWN, axis_angle, rot_of_6d, rotate


def test_six_numbers_give_the_rotation_that_they_give_elsewhere():
    rng = np.random.default_rng(0)
    for six in rng.normal(size=(500, 6)):
        np.testing.assert_allclose(rot_of_6d(six), rot6d_to_matrix(six), atol=1e-12)
    for none in (np.zeros(6), np.array([1.0, 0, 0, 2.0, 0, 0]), np.array([0, 1.0, 0, 0, 0, 0])):
        np.testing.assert_array_equal(rot_of_6d(none), DOWN)


@pytest.mark.parametrize("angle", [0.0, 1e-6, 0.7, 2.0, 3.1])
def test_a_rotation_turns_by_its_angle_about_its_axis(angle):
    rng = np.random.default_rng(1)
    for axis in rng.normal(size=(20, 3)):
        axis = axis / np.linalg.norm(axis)
        rot = rotate(axis, angle)
        np.testing.assert_allclose(rot @ axis, axis, atol=1e-12)
        np.testing.assert_allclose(rot6d_to_matrix(matrix_to_rot6d(rot)), rot, atol=1e-12)
        across = np.cross(axis, [0.3, -0.5, 0.8])
        across /= np.linalg.norm(across)
        turned = np.cos(angle) * across + np.sin(angle) * np.cross(axis, across)
        np.testing.assert_allclose(rot @ across, turned, atol=1e-12)
        if angle > 1e-3:
            found, by = axis_angle(rot)
            np.testing.assert_allclose(found, axis, atol=1e-6)
            assert by == pytest.approx(angle, abs=1e-9)

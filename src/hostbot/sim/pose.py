"""Rigid poses as the scripts need them: compose, invert, level, and step towards.

A tool's frame has z along the approach, out of the gripper, and y along the closing direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from hostbot.geometry import matrix_to_rot6d

Vec3 = Float[np.ndarray, " 3"]
Rot3 = Float[np.ndarray, "3 3"]


def rot_x(angle: float) -> Rot3:
    """Rotation about x."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])


def rot_y(angle: float) -> Rot3:
    """Rotation about y."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


def rot_z(angle: float) -> Rot3:
    """Rotation about z."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


DOWN: Rot3 = np.array([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]])
"""A tool that points straight down and closes along the world's y."""


def quat_of(rot: Rot3) -> Float[np.ndarray, " 4"]:
    """Unit quaternion (w, x, y, z) of a rotation matrix, w never negative."""
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, np.ascontiguousarray(rot, dtype=float).reshape(9))
    return -quat if quat[0] < 0 else quat


def rot6d(rot: Rot3) -> Float[np.ndarray, " 6"]:
    """The first two columns of a rotation, one after the other."""
    return matrix_to_rot6d(rot)


def rot_of_6d(six: Float[np.ndarray, " 6"]) -> Rot3:
    """The rotation nearest to six numbers; where they give none, a tool that points down.

    ``geometry.rot6d_to_matrix`` for one rotation, in plain numbers: a simulated step needs several.
    """
    a, b = (tuple(float(v) for v in part) for part in (six[:3], six[3:]))
    length = math.hypot(*a)
    if length < 1e-6 or math.hypot(*_cross(a, b)) <= 1e-6 * math.hypot(*b):
        return DOWN
    x = tuple(v / length for v in a)
    along = sum(u * v for u, v in zip(x, b, strict=True))
    rest = [v - along * u for u, v in zip(x, b, strict=True)]
    y = tuple(v / math.hypot(*rest) for v in rest)
    return np.array([x, y, _cross(x, y)]).T


def _cross(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def axis_angle(rot: Rot3) -> tuple[Vec3, float]:
    """Unit axis and angle of a rotation."""
    q = quat_of(rot)
    n = float(np.linalg.norm(q[1:]))
    if n < 1e-9:
        return np.array([0.0, 0.0, 1.0]), 0.0
    return q[1:] / n, 2 * float(np.arctan2(n, q[0]))


def rotate(axis: Vec3, angle: float) -> Rot3:
    """Rodrigues' rotation about a unit axis."""
    x, y, z = (float(v) for v in axis)
    c, s = math.cos(angle), math.sin(angle)
    d = 1 - c
    return np.array(
        [
            [c + d * x * x, d * x * y - s * z, d * x * z + s * y],
            [d * x * y + s * z, c + d * y * y, d * y * z - s * x],
            [d * x * z - s * y, d * y * z + s * x, c + d * z * z],
        ]
    )


def wrap(angle: float, period: float = 2 * np.pi) -> float:
    """An angle brought into [-period/2, period/2)."""
    return float((angle + period / 2) % period - period / 2)


@dataclass(frozen=True)
class Pose:
    """A rigid transform: where a frame is and how it is turned."""

    pos: Vec3
    rot: Rot3

    def __matmul__(self, other: Pose) -> Pose:
        return Pose(self.pos + self.rot @ other.pos, self.rot @ other.rot)

    def inverse(self) -> Pose:
        """The transform that undoes this one."""
        return Pose(-self.rot.T @ self.pos, self.rot.T)

    @property
    def yaw(self) -> float:
        """Heading of the frame's x axis about the world's z."""
        return float(np.arctan2(self.rot[1, 0], self.rot[0, 0]))

    def level(self) -> Pose:
        """The same place and heading, upright."""
        return Pose(self.pos, rot_z(self.yaw))


def towards(begin: Pose, end: Pose, share: float) -> Pose:
    """A pose part of the way from one to another."""
    axis, angle = axis_angle(end.rot @ begin.rot.T)
    return Pose(begin.pos + share * (end.pos - begin.pos), rotate(axis, share * angle) @ begin.rot)

"""Rotations, poses and relative actions.

Legend: D vector width, H action steps. A rotation matrix maps gripper axes to base axes; its first two
columns are the 6-D form. Euler angles are roll, pitch, yaw about the fixed base axes,
R = Rz(yaw) Ry(pitch) Rx(roll). Quaternions are (w, x, y, z) with w >= 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
from jaxtyping import Float

from hostbot.types import BadInput, Embodiment, Part

Array = np.ndarray
RotationKind = Literal["rot6d", "euler", "quaternion"]
_DEGENERATE = 1e-8
_NEXT, _AFTER = [1, 2, 0], [2, 0, 1]


def _unit(vector: Float[Array, "*B n"], what: str) -> Float[Array, "*B n"]:
    norm = np.sqrt((vector * vector).sum(-1, keepdims=True))
    if not (norm > _DEGENERATE).all():
        raise BadInput(f"{what} is degenerate: its length is {float(norm.min()):.3g}, it must be above 1e-8")
    return vector / norm


def matrix_to_rot6d(matrix: Float[Array, "*B 3 3"]) -> Float[Array, "*B 6"]:
    """The first two columns of a rotation matrix, one after the other."""
    return np.concatenate([matrix[..., :, 0], matrix[..., :, 1]], axis=-1)


def rot6d_to_matrix(rot6d: Float[Array, "*B 6"]) -> Float[Array, "*B 3 3"]:
    """Gram-Schmidt on two columns, so that any two independent vectors give a rotation."""
    x = _unit(rot6d[..., :3], "the first column of a 6-D rotation")
    y = rot6d[..., 3:] - (x * rot6d[..., 3:]).sum(-1, keepdims=True) * x
    y = _unit(y, "the second column of a 6-D rotation, less its part along the first,")
    z = x[..., _NEXT] * y[..., _AFTER] - x[..., _AFTER] * y[..., _NEXT]
    return np.stack([x, y, z], axis=-1)


def euler_to_matrix(euler: Float[Array, "*B 3"]) -> Float[Array, "*B 3 3"]:
    """R = Rz(yaw) Ry(pitch) Rx(roll)."""
    (cr, cp, cy), (sr, sp, sy) = (np.moveaxis(f(euler), -1, 0) for f in (np.cos, np.sin))
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def matrix_to_euler(matrix: Float[Array, "*B 3 3"]) -> Float[Array, "*B 3"]:
    """Roll, pitch, yaw; at gimbal lock (pitch = ±90°), where only roll ∓ yaw is defined, yaw is 0."""
    m = matrix
    cos_pitch = np.hypot(m[..., 0, 0], m[..., 1, 0])
    locked = cos_pitch < 10 * np.finfo(m.dtype).eps
    yaw = np.where(locked, 0, np.arctan2(m[..., 1, 0], m[..., 0, 0]))
    # Roll is read in the frame turned back by yaw, so near the lock it makes up for yaw's rounding.
    sin_yaw, cos_yaw = np.sin(yaw), np.cos(yaw)
    roll = np.arctan2(
        sin_yaw * m[..., 0, 2] - cos_yaw * m[..., 1, 2], cos_yaw * m[..., 1, 1] - sin_yaw * m[..., 0, 1]
    )
    return np.stack([roll, np.arctan2(-m[..., 2, 0], cos_pitch), yaw], axis=-1).astype(m.dtype)


def quaternion_to_matrix(quaternion: Float[Array, "*B 4"]) -> Float[Array, "*B 3 3"]:
    """The rotation of a quaternion of any length above zero."""
    w, x, y, z = np.moveaxis(_unit(quaternion, "a quaternion"), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def matrix_to_quaternion(matrix: Float[Array, "*B 3 3"]) -> Float[Array, "*B 4"]:
    """The quaternion with w >= 0, from the largest of its four squared components, so 180° is exact too."""
    m = matrix
    diagonal = np.stack([m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]], axis=-1)
    trace = diagonal.sum(-1, keepdims=True)
    squares = np.concatenate([1 + trace, 1 + 2 * diagonal - trace], axis=-1)
    wx, wy, wz = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    xy, xz, yz = m[..., 1, 0] + m[..., 0, 1], m[..., 0, 2] + m[..., 2, 0], m[..., 2, 1] + m[..., 1, 2]
    w2, x2, y2, z2 = np.moveaxis(squares, -1, 0)
    table = [[w2, wx, wy, wz], [wx, x2, xy, xz], [wy, xy, y2, yz], [wz, xz, yz, z2]]
    candidates = np.stack([np.stack(row, axis=-1) for row in table], axis=-2)
    best = np.argmax(squares, axis=-1)[..., None, None]
    quaternion = _unit(np.take_along_axis(candidates, best, axis=-2)[..., 0, :], "a rotation matrix")
    return np.where(quaternion[..., :1] < 0, -quaternion, quaternion)


def rotation_angle(matrix: Float[Array, "*B 3 3"]) -> Float[Array, "*B"]:
    """The angle of a rotation in [0, π], accurate near both ends."""
    quaternion = matrix_to_quaternion(matrix)
    return 2 * np.arctan2(np.linalg.norm(quaternion[..., 1:], axis=-1), quaternion[..., 0])


_TO_MATRIX: dict[str, Callable[[Array], Array]] = {
    "rot6d": rot6d_to_matrix,
    "euler": euler_to_matrix,
    "quaternion": quaternion_to_matrix,
}
_FROM_MATRIX: dict[str, Callable[[Array], Array]] = {
    "rot6d": matrix_to_rot6d,
    "euler": matrix_to_euler,
    "quaternion": matrix_to_quaternion,
}


def is_rotation(part: Part) -> bool:
    """Whether a part holds a rotation in any form."""
    return part.kind in _TO_MATRIX


def part_to_matrix(part: Part, values: Float[Array, "*B n"]) -> Float[Array, "*B 3 3"]:
    """The rotation matrix of a rotation part."""
    return _TO_MATRIX[part.kind](values)


def with_rotations(embodiment: Embodiment, kind: RotationKind) -> Embodiment:
    """The same robot with every rotation written in another form."""
    parts = tuple(replace(part, kind=kind) if is_rotation(part) else part for part in embodiment.parts)
    return replace(embodiment, parts=parts)


def convert_rotations(
    vectors: Float[Array, "*B D"], embodiment: Embodiment, kind: RotationKind
) -> Float[Array, "*B E"]:
    """Vectors of ``embodiment`` as vectors of ``with_rotations(embodiment, kind)``."""
    _check_width("vectors", vectors, embodiment)
    pieces = []
    for part, place in embodiment.slices():
        values = vectors[..., place]
        if is_rotation(part) and part.kind != kind:
            values = _FROM_MATRIX[kind](part_to_matrix(part, values))
        pieces.append(values)
    return np.concatenate(pieces, axis=-1)


def to_relative(
    actions: Float[Array, "*B H D"], reference: Float[Array, "*B D"], embodiment: Embodiment
) -> Float[Array, "*B H D"]:
    """Actions relative to one reference state, the robot's at the chunk's start.

    Positions and joints become differences in the base frame, rotations R R_ref^T, grippers stay absolute.
    """
    return _rebase(actions, reference, embodiment, inverse=False)


def to_absolute(
    relative: Float[Array, "*B H D"], reference: Float[Array, "*B D"], embodiment: Embodiment
) -> Float[Array, "*B H D"]:
    """The inverse of :func:`to_relative`."""
    return _rebase(relative, reference, embodiment, inverse=True)


def _rebase(actions: Array, reference: Array, embodiment: Embodiment, *, inverse: bool) -> Array:
    _check_width("actions", actions, embodiment)
    _check_width("the reference state", reference, embodiment)
    reference = reference[..., None, :]
    out = np.empty(np.broadcast_shapes(actions.shape, reference.shape), np.result_type(actions, reference))
    for part, place in embodiment.slices():
        values, origin = actions[..., place], reference[..., place]
        if part.kind == "gripper":
            out[..., place] = values
        elif is_rotation(part):
            turn = part_to_matrix(part, origin)
            turn = turn if inverse else np.swapaxes(turn, -1, -2)
            out[..., place] = _FROM_MATRIX[part.kind](part_to_matrix(part, values) @ turn)
        else:
            out[..., place] = values + origin if inverse else values - origin
    return out


def between(
    vectors: Float[Array, "N D"], at: Float[Array, "*B"], embodiment: Embodiment
) -> Float[Array, "*B D"]:
    """Vectors at places between whole indices: straight lines, rotations on the way from one to the next.

    Grippers, which are told to open or to close and not to be half open, are those of the nearest index, and so is a
    rotation between two that are a quarter turn apart or more.
    """
    _check_width("vectors", vectors, embodiment)
    low = np.clip(np.floor(at).astype(np.int64), 0, len(vectors) - 1)
    high, share = np.minimum(low + 1, len(vectors) - 1), (at - low)[..., None]
    out = ((1 - share) * vectors[low] + share * vectors[high]).astype(vectors.dtype)
    nearest = vectors[np.where(share[..., 0] < 0.5, low, high)]
    for part, place in embodiment.slices():
        if part.kind == "gripper":
            out[..., place] = nearest[..., place]
        elif is_rotation(part):
            turns = part_to_matrix(part, vectors[:, place])
            traces = (turns[low] * turns[high]).sum((-2, -1))  # 1 + 2 cos of the angle
            mixed = (share[..., 0] > 0) & (traces > 1)
            columns, part_of = matrix_to_rot6d(turns), share[mixed]
            turned = rot6d_to_matrix((1 - part_of) * columns[low[mixed]] + part_of * columns[high[mixed]])
            out[..., place] = nearest[..., place]
            out[mixed, place] = _FROM_MATRIX[part.kind](turned)
    return out


def _check_width(what: str, vectors: Array, embodiment: Embodiment) -> None:
    if vectors.shape[-1] != embodiment.dim:
        raise BadInput(
            f"{what}: width {vectors.shape[-1]}, but {embodiment.name!r} has {embodiment.dim} numbers"
        )

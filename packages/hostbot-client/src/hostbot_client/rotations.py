"""The three ways an action vector writes a rotation, as matrices; what is no rotation is told apart, not repaired."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray
_SHORT, _PARALLEL, _TURNS = 1e-3, 1e-2, 2 * np.pi


def to_matrix(kind: str, values: Array) -> tuple[Array, Array]:
    """Matrices (..., 3, 3) of rotations (..., n), and which of them are rotations at all (...)."""
    with np.errstate(all="ignore"):
        if kind == "rot6d":
            return _from_rot6d(values)
        return _from_quaternion(values) if kind == "quaternion" else _from_euler(values)


def rewritten(kind: str, values: Array, matrix: Array) -> Array:
    """The same rotations written soundly: 6-D columns orthonormal, quaternions of length one, Euler angles as given."""
    if kind == "rot6d":
        return np.concatenate([matrix[..., :, 0], matrix[..., :, 1]], axis=-1)
    if kind == "quaternion":
        return values / np.maximum(np.linalg.norm(values, axis=-1, keepdims=True), _SHORT)
    return values


def turn(a: Array, b: Array) -> Array:
    """The angle between rotations in [0, pi], from the chord, which is accurate for small angles."""
    chord = np.linalg.norm((a - b).reshape(*a.shape[:-2], 9), axis=-1)
    return 2 * np.arcsin(np.clip(chord / np.sqrt(8), 0, 1))


def _from_rot6d(values: Array) -> tuple[Array, Array]:
    x, y = values[..., :3], values[..., 3:]
    long_x, long_y = (np.linalg.norm(v, axis=-1) for v in (x, y))
    sound = np.isfinite(long_x) & np.isfinite(long_y) & (long_x >= _SHORT) & (long_y >= _SHORT)
    x = _or(x / long_x[..., None], sound, (1.0, 0.0, 0.0))
    y = _or(y / long_y[..., None], sound, (0.0, 1.0, 0.0))
    y = y - (x * y).sum(-1, keepdims=True) * x
    apart = np.linalg.norm(y, axis=-1)
    sound = sound & (apart >= _PARALLEL)
    x = _or(x, sound, (1.0, 0.0, 0.0))
    y = _or(y / apart[..., None], sound, (0.0, 1.0, 0.0))
    return np.stack([x, y, np.cross(x, y)], axis=-1), sound


def _from_quaternion(values: Array) -> tuple[Array, Array]:
    length = np.linalg.norm(values, axis=-1)
    sound = np.isfinite(length) & (length >= _SHORT)
    unit = _or(values / length[..., None], sound, (1.0, 0.0, 0.0, 0.0))
    w, x, y, z = np.moveaxis(unit, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return _stacked(rows), sound


def _from_euler(values: Array) -> tuple[Array, Array]:
    """R = Rz(yaw) Ry(pitch) Rx(roll); more than a whole turn is no pose but an accident."""
    sound = (np.abs(values) <= _TURNS).all(-1)
    roll, pitch, yaw = np.moveaxis(np.where(sound[..., None], values, 0.0), -1, 0)
    cr, sr, cp, sp, cy, sy = (f(v) for v in (roll, pitch, yaw) for f in (np.cos, np.sin))
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return _stacked(rows), sound


def _stacked(rows: Any) -> Array:
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _or(values: Array, sound: Array, otherwise: tuple[float, ...]) -> Array:
    return np.where(sound[..., None], values, np.array(otherwise))

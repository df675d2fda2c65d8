"""Where points of the robot's workspace appear in its views, from calibration and the robot's own state.

Legend: B states, D state width. Picture coordinates are shares of width and height from the upper left corner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from hostbot.config import from_dict, read_json, to_dict, write_json
from hostbot.geometry import is_rotation, part_to_matrix
from hostbot.types import BadInput, Camera, DataError, Embodiment


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A robot's cameras."""

    cameras: tuple[Camera, ...]


def cameras_path(root: Path) -> Path:
    """Where a dataset keeps its calibration."""
    return root / "meta" / "hostbot" / "cameras.json"


def save_cameras(cameras: Sequence[Camera], path: Path) -> None:
    """Write a calibration."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, to_dict(Calibration(cameras=tuple(cameras))))


def load_cameras(path: Path) -> tuple[Camera, ...]:
    """Read a calibration."""
    return from_dict(Calibration, read_json(path, DataError), str(path)).cameras


def limb_pose(
    state: Float[np.ndarray, "B D"], limb: str, embodiment: Embodiment
) -> tuple[Float[np.ndarray, "B 3"], Float[np.ndarray, "B 3 3"]]:
    """Position and rotation of a limb's tool in the base frame."""
    position, rotation = None, None
    for part, place in embodiment.slices():
        if part.limb == limb and part.kind == "position":
            position = state[:, place].astype(np.float64)
        elif part.limb == limb and is_rotation(part):
            rotation = part_to_matrix(part, state[:, place].astype(np.float64))
    if position is None or rotation is None:
        limbs = sorted({part.limb for part in embodiment.parts if part.kind == "position"})
        raise BadInput(f"{embodiment.name!r} has no pose of a limb {limb!r}; it has {limbs}")
    return position, rotation


def project(
    camera: Camera,
    points: Float[np.ndarray, "B 3"],
    state: Float[np.ndarray, "B D"],
    embodiment: Embodiment,
) -> tuple[Float[np.ndarray, "B 2"], Bool[np.ndarray, " B"]]:
    """Where points of the base frame appear, (across, down), and whether they are inside the picture."""
    centre, axes = np.array(camera.position), np.array(camera.rotation).reshape(3, 3)
    if camera.limb:
        hand, turn = limb_pose(state, camera.limb, embodiment)
        centre, axes = hand + turn @ centre, turn @ axes
    local = np.einsum("...ji,...j->...i", axes, points - centre)
    depth = -local[:, 2]
    focal = 0.5 / math.tan(math.radians(camera.fov_y) / 2)
    safe = np.where(depth > 1e-6, depth, 1.0)
    at = np.stack(
        [0.5 + focal / camera.aspect * local[:, 0] / safe, 0.5 - focal * local[:, 1] / safe], axis=1
    )
    inside = (depth > 1e-6) & ((at >= 0) & (at < 1)).all(1)
    return at, inside

"""What an episode would look like in a mirror: left is right, for robots whose two sides are alike.

The mirror is the plane y = 0 of the robot's base frame, and of a tool's own frame: an arm becomes the other one, whose
jaws open along y as before. It holds where arms, cameras and statistics are the same on both sides, and for tasks that
do not say which side. (The bench's jaws have a colour for each side; in the mirror they have the other's.)
"""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Float

from hostbot.types import BadInput, Embodiment

_SIDES = {"left": "right", "right": "left"}
_SIDED = re.compile(r"left|right|clockwise", re.IGNORECASE)
_SIGNS = {"position": (1, -1, 1), "rot6d": (1, -1, 1, -1, 1, -1), "gripper": (1,)}
"""Reflected on both sides, a rotation's first column (x) loses its y, the second (y) all but that."""


def other_side(name: str) -> str:
    """``left_wrist`` for ``right_wrist``; what has no side keeps its name."""
    return re.sub("left|right", lambda found: _SIDES[found[0]], name)


def is_sided(instruction: str) -> bool:
    """Whether an instruction says which side or which way round."""
    return _SIDED.search(instruction) is not None


def mirrored(vectors: Float[np.ndarray, "*B D"], embodiment: Embodiment) -> Float[np.ndarray, "*B D"]:
    """States or actions as the mirror shows them."""
    places = {part.name: (part, place) for part, place in embodiment.slices()}
    out = np.empty_like(vectors)
    for name, (part, place) in places.items():
        other, source = places.get(other_side(name), (None, slice(0)))
        if part.kind not in _SIGNS or other is None or other.kind != part.kind:
            raise BadInput(
                f"{embodiment.name!r} has no mirror image: it takes positions, 6-D rotations and grippers, each on "
                f"both sides, and {name!r} is a {part.kind}"
            )
        out[..., place] = vectors[..., source] * np.array(_SIGNS[part.kind], vectors.dtype)
    return out

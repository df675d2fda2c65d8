"""When and where a robot's hand gets somewhere: the moments between which it reaches, carries or pushes.

They come from recorded events where there are any, else from the trajectory alone: a gripper that opens or closes,
a hand that comes to rest. Legend: N frames, M moments, D vector width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64

from hostbot.types import PASSING, BadInput, Embodiment, Event

_EARLY, _REST, _APART = 0.2, 0.1, 4
_STILL = 0.01
"""Metres: a hand that moves less waits."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Frames in increasing order, and the limb that got somewhere at each."""

    frames: Int64[np.ndarray, " M"]
    limbs: tuple[str, ...]


def find_moments(
    state: Float[np.ndarray, "N D"],
    action: Float[np.ndarray, "N D"],
    events: Sequence[Event],
    embodiment: Embodiment,
) -> Moments:
    """Moments of one execution; the limb of an event is the one that moved most just before it, or since the last."""
    paths = limb_paths(state, embodiment)
    if not paths:
        raise BadInput(f"{embodiment.name!r} has no tool positions, so no moments can be found")
    named = sorted({e.frame for e in events if e.name not in PASSING and 0 < e.frame < len(state)})
    frames = named or _from_motion(paths, action, embodiment)
    limbs, last = [], 0
    for frame in frames:
        limbs.append(_arrived(paths, last, frame))
        last = frame
    return Moments(frames=np.array(frames, np.int64), limbs=tuple(limbs))


def _arrived(paths: dict[str, Float[np.ndarray, "N 3"]], last: int, frame: int) -> str:
    """The limb that moved most in the last third of the way, or on all of it where that was spent waiting.

    Not on all of it at once: a hand with nothing to do may have gone further, back to its place.
    """
    for begin in (last + 2 * (frame - last) // 3, last):
        moved = {limb: float(np.ptp(path[begin : frame + 1], axis=0).max()) for limb, path in paths.items()}
        if max(moved.values()) > _STILL:
            break
    return max(moved, key=lambda limb: moved[limb])


def limb_paths(
    state: Float[np.ndarray, "N D"], embodiment: Embodiment
) -> dict[str, Float[np.ndarray, "N 3"]]:
    """Tool positions by limb."""
    return {p.limb: state[:, place] for p, place in embodiment.slices() if p.kind == "position"}


def _from_motion(
    paths: dict[str, Float[np.ndarray, "N 3"]], action: Float[np.ndarray, "N D"], embodiment: Embodiment
) -> list[int]:
    found = set()
    for part, place in embodiment.slices():
        if part.kind == "gripper":
            opening = action[:, place.start]
            closed = opening < (opening.min() + opening.max()) / 2
            found |= set((np.flatnonzero(np.diff(closed)) + 1).tolist()) if np.ptp(opening) > 1e-3 else set()
    for path in paths.values():
        speed = np.linalg.norm(np.diff(path, axis=0), axis=1)
        rests = speed < _REST * speed.max(initial=0)
        found |= set((np.flatnonzero(rests[1:] & ~rests[:-1]) + 1).tolist())
    kept: list[int] = []
    for frame in sorted(found):
        if not kept or frame - kept[-1] >= _APART:
            kept.append(frame)
    return kept


def next_moment(moments: Moments, num_frames: int) -> Int64[np.ndarray, " N"]:
    """The index of the first moment after each frame; -1 after the last."""
    after = np.searchsorted(moments.frames, np.arange(num_frames), side="right")
    return np.where(after < len(moments.frames), after, -1)


def decisions(moments: Moments, num_frames: int) -> Bool[np.ndarray, " N"]:
    """Frames in the first fifth of the way to a moment: where matching, not momentum, decides what to do."""
    starts = np.concatenate([[0], moments.frames[:-1]]) if len(moments.frames) else np.zeros(0, np.int64)
    out = np.zeros(num_frames, bool)
    for start, end in zip(starts, moments.frames, strict=True):
        out[start : start + max(1, int(np.ceil(_EARLY * (end - start))))] = True
    return out

"""Remove the frames in which nothing moves, at the paper's thresholds (supplement, "Temporal structure").

Legend: N robot frames, D vector width, K kept frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from hostbot.geometry import is_rotation, part_to_matrix
from hostbot.types import BadInput, Embodiment, Event

_LOOK_AHEAD = 64


@dataclass(frozen=True, kw_only=True)
class CleanConfig:
    """How far something must move since the last kept frame for a frame to be kept."""

    rotation: float = 0.001
    """Radians; joints too."""
    translation: float = 0.001
    """Metres."""
    gripper: float = 0.001
    """In the gripper's own unit."""


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """Which frames stay; what was removed can be told from it."""

    kept: Int[np.ndarray, " K"]
    num_frames: int

    @property
    def num_removed(self) -> int:
        """Frames in which nothing moved."""
        return self.num_frames - len(self.kept)

    def remap(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """Events at their new frames; one on a removed frame goes to the kept frame that stands for it."""
        frames = np.searchsorted(self.kept, [event.frame for event in events], side="right") - 1
        return tuple(Event(name=e.name, frame=int(f)) for e, f in zip(events, frames, strict=True))


def moving_frames(
    streams: tuple[Float[np.ndarray, "N D"], ...], embodiment: Embodiment, config: CleanConfig
) -> Cleaned:
    """Keep the first frame, and each in which any part of a stream has moved since the last kept one.

    Give state and action as streams: a gripper that is told to close on something it already holds does
    not move, but the command does.
    """
    lengths = [len(stream) for stream in streams]
    if len(set(lengths)) != 1 or lengths[0] == 0:
        raise BadInput(f"static-frame removal needs streams of one length above 0, got {lengths}")
    tracks = [track for stream in streams for track in _tracks(stream, embodiment, config)]
    # Where a frame moved against the one before it, and that one was kept, it is kept: whole runs at once.
    stepped = np.logical_or.reduce([_moved(track, slice(0, -1), slice(1, None)) for track in tracks])
    pauses = np.append(np.flatnonzero(~stepped), len(stepped))
    kept = [np.zeros(1, np.int64)]
    last = 0
    while last + 1 < lengths[0]:
        pause = int(pauses[np.searchsorted(pauses, last)])
        kept.append(np.arange(last + 1, pause + 1))
        found = _next_moved(tracks, pause, pause + 2, lengths[0])
        kept.append(np.array([] if found is None else [found], np.int64))
        last = lengths[0] if found is None else found
    return Cleaned(kept=np.concatenate(kept), num_frames=lengths[0])


def _next_moved(tracks: list[_Track], last: int, candidate: int, end: int) -> int | None:
    """The first frame from ``candidate`` on that has moved since ``last``."""
    while candidate < end:
        ahead = slice(candidate, candidate + _LOOK_AHEAD)
        moved = np.logical_or.reduce([_moved(track, slice(last, last + 1), ahead) for track in tracks])
        if moved.any():
            return candidate + int(np.argmax(moved))
        candidate += _LOOK_AHEAD
    return None


@dataclass(frozen=True)
class _Track:
    """One part over time: rotation matrices or plain values, and its threshold."""

    values: np.ndarray
    threshold: float
    is_rotation: bool


def _tracks(stream: np.ndarray, embodiment: Embodiment, config: CleanConfig) -> list[_Track]:
    if stream.shape[1] != embodiment.dim:
        raise BadInput(
            f"a stream is {stream.shape[1]} wide but {embodiment.name!r} has {embodiment.dim} numbers"
        )
    thresholds = {"position": config.translation, "gripper": config.gripper, "joint": config.rotation}
    tracks = []
    for part, place in embodiment.slices():
        values = stream[:, place].astype(np.float64)
        if is_rotation(part):
            tracks.append(_Track(part_to_matrix(part, values), config.rotation, True))
        else:
            tracks.append(_Track(values, thresholds[part.kind], False))
    return tracks


def _moved(track: _Track, last: slice, ahead: slice) -> Bool[np.ndarray, " A"]:
    change = track.values[ahead] - track.values[last]
    if not track.is_rotation:
        return np.linalg.norm(change, axis=-1) > track.threshold
    # |R - R'|_F = 2 sqrt(2) sin(angle / 2): exact, and sharp at small angles unlike the trace's arccos.
    chord = np.linalg.norm(change, axis=(-2, -1)) / (2 * np.sqrt(2))
    return 2 * np.arcsin(np.clip(chord, 0, 1)) > track.threshold

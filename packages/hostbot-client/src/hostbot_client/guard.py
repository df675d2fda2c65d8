"""Nothing out of limits reaches the robot: finite check first, then rotations, box, speed and jump; else hold.

Legend: B chunks, H steps, D numbers. A chunk is safe up to its first bad step; from there on the robot holds the last
safe command. This module is numpy only and knows no network, so that the robot's computer, the server and a test run
the very same code.
"""

from __future__ import annotations

import collections
import json
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hostbot_client.limits import ROTATIONS, Limits, PartLimits
from hostbot_client.rotations import rewritten, to_matrix, turn

Array = np.ndarray
REASONS = ("", "not finite", "no rotation", "out of its box", "too fast", "too far from the robot")
_NOT_FINITE, _NO_ROTATION, _OUTSIDE, _FAST, _FAR = range(1, 6)


class Limited(NamedTuple):
    """Chunks that are safe to send, and where each stopped being what was asked."""

    actions: Array
    """(B, H, D) float32, every step within limits or holding."""
    num_safe: Array
    """(B,) steps that are as asked (moved onto the box within its slack); the rest hold."""
    reason: Array
    """(B,) place in REASONS for the first step that is not."""
    part: Array
    """(B,) which part."""
    amount: Array
    """(B,) how much: metres or radians a step, or past the box."""


def limit(chunks: Array, state: Array, previous: Array | None, limits: Limits) -> Limited:
    """Limit chunks (B, H, D) for robots measured at ``state`` (B, D) and last told ``previous`` (B, D) or nothing.

    ``state`` must be finite: there is nothing to hold otherwise.
    """
    asked = np.asarray(chunks, np.float64)
    finite = np.asarray(np.isfinite(asked).all(-1))
    reason = np.where(finite, 0, _NOT_FINITE)
    part_of, amount = np.zeros(reason.shape, int), np.zeros(reason.shape)
    safe = np.zeros(asked.shape, np.float32)
    for number, (part, place) in enumerate(limits.slices()):
        values = np.where(finite[..., None], asked[..., place], 0.0)
        told = None if previous is None else previous[:, place]
        made, wrong, much = _part(part, values, state[:, place], told, limits.rate_hz)
        fresh = (reason == 0) & (wrong > 0)
        reason, amount = np.where(fresh, wrong, reason), np.where(fresh, much, amount)
        part_of = np.where(fresh, number, part_of)
        safe[..., place] = made
    return _held(safe, reason, part_of, amount, state if previous is None else previous)


def _part(
    part: PartLimits, values: Array, state: Array, told: Array | None, rate_hz: float
) -> tuple[Array, Array, Array]:
    """One part as it would be sent (B, H, n) in float32, what is wrong with it (B, H), and by how much."""
    made, wrong, much = _rotation(part, values) if part.kind in ROTATIONS else _boxed(part, values)
    # What is compared is what is sent: the float32 numbers, after every change.
    sent = made.astype(np.float64)
    first = sent[:, :1] if told is None else told[:, None].astype(np.float64)
    step = _distance(part, np.concatenate([first, sent[:, :-1]], axis=1), sent)
    fast = step > part.speed / rate_hz
    far = np.zeros_like(step)
    far[:, 0] = _distance(part, state.astype(np.float64), sent[:, 0])
    for place, (found, size) in {_FAST: (fast, step), _FAR: (far > part.jump, far)}.items():
        fresh = (wrong == 0) & found
        wrong, much = np.where(fresh, place, wrong), np.where(fresh, size, much)
    return made, wrong, much


def _rotation(part: PartLimits, values: Array) -> tuple[Array, Array, Array]:
    matrix, sound = to_matrix(part.kind, values)
    made = rewritten(part.kind, np.where(sound[..., None], values, 0.0), matrix)
    return made.astype(np.float32), np.where(sound, 0, _NO_ROTATION), np.zeros(sound.shape)


def _boxed(part: PartLimits, values: Array) -> tuple[Array, Array, Array]:
    # Rounding a bound to float32 may move it outward by half a step: take the next number inside.
    low = np.asarray(part.low, np.float32)
    high = np.asarray(part.high, np.float32)
    low = np.where(low < part.low, np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high > part.high, np.nextafter(high, np.float32(-np.inf)), high)
    made = np.clip(values, low, high)
    past = np.abs(values - made).max(-1)
    return made.astype(np.float32), np.where(past > part.slack, _OUTSIDE, 0), past


def _distance(part: PartLimits, a: Array, b: Array) -> Array:
    if part.kind in ROTATIONS:
        (left, _), (right, _) = to_matrix(part.kind, a), to_matrix(part.kind, b)
        return np.asarray(turn(left, right))
    return np.linalg.norm(a - b, axis=-1)


def _held(safe: Array, reason: Array, part: Array, amount: Array, hold: Array) -> Limited:
    """Keep each chunk up to its first bad step and hold the last good command from there on."""
    num_chunks, num_steps = reason.shape
    bad = reason > 0
    num_safe = np.where(bad.any(1), bad.argmax(1), num_steps)
    rows, first = np.arange(num_chunks), np.minimum(num_safe, num_steps - 1)
    last = np.where((num_safe > 0)[:, None], safe[rows, np.maximum(num_safe - 1, 0)], hold.astype(np.float32))
    kept = np.arange(num_steps)[None, :, None] < num_safe[:, None, None]
    whole = num_safe == num_steps
    return Limited(
        actions=np.where(kept, safe, last[:, None]),
        num_safe=num_safe,
        reason=np.where(whole, 0, reason[rows, first]),
        part=part[rows, first],
        amount=amount[rows, first],
    )


@dataclass(frozen=True)
class Refusal:
    """What was refused, when and why."""

    time: float
    step: int
    reason: str
    part: str = ""
    amount: float = 0.0

    def __str__(self) -> str:
        where = f" ({self.part}, {self.amount:.3g})" if self.part else ""
        return f"step {self.step} of the chunk was refused: {self.reason}{where}"


class Verdict(NamedTuple):
    """What may be sent: None where not even a hold can be computed, and the robot must brake on its own."""

    actions: Array | None
    num_safe: int
    refusal: Refusal | None


class Guard:
    """The limits of one robot, what it was last told, and a log of what was refused."""

    def __init__(self, limits: Limits, log: str | Path | None = None, remembered: int = 1000) -> None:
        self.limits = limits
        self.refused: collections.deque[Refusal] = collections.deque(maxlen=remembered)
        self._log, self._lock = None if log is None else Path(log), threading.Lock()

    def __call__(self, chunk: Any, state: Any, previous: Any = None) -> Verdict:
        """A chunk (H, D) made safe for a robot measured at ``state`` and last told ``previous``."""
        actions, here = _numbers(chunk), _numbers(state)
        dim = self.limits.dim
        if here is None or here.shape != (dim,) or not np.isfinite(here).all():
            return Verdict(None, 0, self._refuse(0, f"the measured state is not {dim} finite numbers"))
        told = None if previous is None else np.asarray(previous, np.float32)[None]
        if actions is None or actions.ndim != 2 or actions.shape[1] != dim or len(actions) == 0:
            shape = "no array of numbers" if actions is None else f"of shape {actions.shape}"
            hold = np.asarray(here if previous is None else previous, np.float32)[None]
            return Verdict(hold, 0, self._refuse(0, f"the chunk is {shape}, not (steps, {dim})"))
        made = limit(actions[None], here[None], told, self.limits)
        refusal = None
        if made.reason[0]:
            name = "" if made.reason[0] == _NOT_FINITE else self.limits.parts[made.part[0]].name
            refusal = self._refuse(
                int(made.num_safe[0]), REASONS[made.reason[0]], name, float(made.amount[0])
            )
        return Verdict(made.actions[0], int(made.num_safe[0]), refusal)

    def _refuse(self, step: int, reason: str, part: str = "", amount: float = 0.0) -> Refusal:
        refusal = Refusal(time.time(), step, reason, part, amount if np.isfinite(amount) else 1e308)
        with self._lock:
            self.refused.append(refusal)
            if self._log is not None:
                with self._log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(refusal)) + "\n")
        return refusal


def _numbers(values: Any) -> Array | None:
    """An array of real numbers, or None; objects, strings and complex numbers are none."""
    try:
        found = np.asarray(values)
    except (ValueError, TypeError):
        return None
    return found if found.dtype.kind in "iuf" else None

"""A drawn table with two grippers: small datasets and people's videos for examples, tests and benchmarks.

Nothing is simulated here and nothing is to be learned from it; it exists so that every command has something
true to its format to work on in a second. Legend: N frames, h w pixels; the table is the unit square.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from hostbot.geometry import euler_to_matrix, matrix_to_rot6d
from hostbot.types import Embodiment, Event, Frames, Trajectory, bimanual

COLOURS = {"red": (214, 60, 54), "green": (70, 160, 78), "blue": (58, 104, 196), "yellow": (232, 190, 60)}
GOALS = {"left": (0.14, 0.55), "right": (0.86, 0.55), "far": (0.5, 0.14), "near": (0.5, 0.86)}
_SKIN, _SLEEVE, _METAL = (222, 172, 140), (74, 92, 130), (70, 74, 80)


def task_names() -> list[str]:
    """Every task this table affords."""
    return [f"move the {colour} disc to the {goal} edge" for colour in COLOURS for goal in GOALS]


@dataclass(frozen=True)
class Motion:
    """Where hands and discs are at every frame, and what happened when."""

    hands: Float[np.ndarray, "N 2 2"]
    closed: Float[np.ndarray, "N 2"]
    discs: dict[str, Float[np.ndarray, "N 2"]]
    events: tuple[Event, ...]


def move(task: str, rng: np.random.Generator, num_frames: int) -> Motion:
    """One execution of a task at its own pace: reach, grasp, carry, release, withdraw."""
    words = task.split()
    colour, goal = words[2], words[6]
    starts = _apart(rng)
    side = 0 if starts[colour][0] < 0.5 else 1
    rest = np.array([[0.12, 0.92], [0.88, 0.92]])
    target = np.array(GOALS[goal]) + rng.normal(0, 0.015, 2)
    stops = np.array([rest[side], starts[colour], starts[colour], target, target, rest[side]])
    shares = rng.dirichlet([6, 1, 6, 1, 4]) * 0.9 + 0.02
    keys = np.concatenate([[0], np.cumsum(shares)]) / shares.sum()
    clock = np.linspace(0, 1, num_frames)
    eased = np.concatenate([k + (n - k) * _ease(0, 1, 16) for k, n in pairwise(keys)])
    path = np.concatenate([a + (b - a) * np.linspace(0, 1, 16)[:, None] for a, b in pairwise(stops)])
    hand = np.stack([np.interp(clock, np.maximum.accumulate(eased), path[:, axis]) for axis in range(2)], -1)
    hands = np.repeat(rest[None], num_frames, 0)
    hands[:, side] = hand
    frames = np.minimum(np.round(keys * (num_frames - 1)).astype(int), num_frames - 1)
    holding = (np.arange(num_frames) >= frames[2]) & (np.arange(num_frames) < frames[4])
    discs = {n: np.repeat(start[None], num_frames, 0) for n, start in starts.items() if n != colour}
    discs[colour] = np.where(
        holding[:, None], hand, np.where(clock[:, None] < keys[2], starts[colour], target)
    )
    closed = np.zeros((num_frames, 2))
    closed[:, side] = np.interp(np.arange(num_frames), frames[1:5], [0, 1, 1, 0])
    names = ("start", "contact", "grasp", "arrive", "release", "end")
    events = tuple(Event(name=n, frame=int(f)) for n, f in zip(names, frames, strict=True))
    return Motion(hands, closed, discs, events)


def _apart(rng: np.random.Generator) -> dict[str, Float[np.ndarray, " 2"]]:
    """A place for every disc, none on another."""
    while True:
        places = rng.uniform((0.26, 0.28), (0.74, 0.72), size=(len(COLOURS), 2))
        gaps = np.linalg.norm(places[:, None] - places[None], axis=-1) + np.eye(len(places))
        if gaps.min() > 0.13:
            return dict(zip(COLOURS, places, strict=True))


def _ease(low: float, high: float, steps: int) -> Float[np.ndarray, " K"]:
    ramp = np.linspace(0, 1, steps)
    return low + (high - low) * (3 * ramp**2 - 2 * ramp**3)


def robot_trajectory(
    task: str, rng: np.random.Generator, num_frames: int, size: int = 96, fps: float = 16.0
) -> Trajectory:
    """A two-armed robot doing a task: three views, and the paper's twenty numbers."""
    motion = move(task, rng, num_frames)
    embodiment = bimanual(rate_hz=fps)
    state = _vectors(motion, embodiment)
    action = np.concatenate([state[1:], state[-1:]])
    table = draw(motion, size, "robot", np.random.default_rng(rng.integers(2**32)))
    views = {"left_wrist": _wrist(table, motion, 0, size), "right_wrist": _wrist(table, motion, 1, size)}
    return Trajectory(
        views={**views, "third_person": table},
        state=state,
        action=action,
        fps=fps,
        instruction=task,
        embodiment=embodiment,
        events=motion.events,
    )


def _vectors(motion: Motion, embodiment: Embodiment) -> np.ndarray:
    """Table places as metres before the robot; the wrist turns a little towards where it reaches."""
    pieces = []
    for side in range(2):
        place = motion.hands[:, side]
        height = 0.12 - 0.08 * motion.closed[:, side : side + 1]
        position = np.concatenate([0.55 - 0.5 * place[:, 1:], 0.8 * (0.5 - place[:, :1]), height], 1)
        angles = np.stack([np.full(len(place), np.pi), 0.2 * position[:, 0], position[:, 1]], -1)
        aperture = 0.08 * (1 - motion.closed[:, side : side + 1])
        pieces += [position, matrix_to_rot6d(euler_to_matrix(angles)), aperture]
    vectors = np.concatenate(pieces, axis=1).astype(np.float32)
    assert vectors.shape[1] == embodiment.dim
    return vectors


def human_video(
    task: str, rng: np.random.Generator, num_frames: int, size: tuple[int, int]
) -> Iterator[np.ndarray]:
    """Frames of a person's hand doing a task on another table, with a pause on the way."""
    motion = move(task, rng, num_frames)
    pause, length = int(rng.integers(num_frames // 4, num_frames // 2)), num_frames // 6
    order = np.concatenate([np.arange(pause), np.full(length, pause), np.arange(pause, num_frames)])
    square = min(size)
    pictures = draw(motion, square, "human", np.random.default_rng(rng.integers(2**32)))
    background = pictures[0, 0, 0]
    top, left = (size[0] - square) // 2, (size[1] - square) // 2
    for frame in order:
        canvas = np.empty((*size, 3), np.uint8)
        canvas[:] = background
        canvas[top : top + square, left : left + square] = pictures[frame]
        yield canvas


def draw(motion: Motion, size: int, body: str, rng: np.random.Generator) -> Frames:
    """The table from above with discs and hands on it."""
    ground = np.array([196, 176, 148] if body == "robot" else [222, 224, 220]) + rng.integers(-12, 13, 3)
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / size
    frames = np.empty((len(motion.hands), size, size, 3), np.uint8)
    frames[:] = ground.clip(0, 255).astype(np.uint8)
    frames[:, (np.abs(x - 0.5) > 0.49) | (np.abs(y - 0.5) > 0.49)] = (ground * 0.8).astype(np.uint8)
    for number in range(len(frames)):
        for colour, places in motion.discs.items():
            inside = (x - places[number, 0]) ** 2 + (y - places[number, 1]) ** 2 < 0.055**2
            frames[number][inside] = COLOURS[colour]
        for side in range(2):
            _draw_hand(
                frames[number], x, y, motion.hands[number, side], motion.closed[number, side], side, body
            )
    return frames


def _draw_hand(
    frame: np.ndarray, x: np.ndarray, y: np.ndarray, at: np.ndarray, closed: float, side: int, body: str
) -> None:
    base = np.array([0.1 if side == 0 else 0.9, 1.05])
    along = base - at
    length = float(np.hypot(*along)) + 1e-6
    u = ((x - at[0]) * along[0] + (y - at[1]) * along[1]) / length
    v = ((x - at[0]) * along[1] - (y - at[1]) * along[0]) / length
    opening = 0.075 - 0.03 * closed
    fingers = (u > -0.03) & (u < 0.06) & (np.abs(np.abs(v) - opening) < 0.014)
    palm = (u > 0.05) & (u < 0.1) & (np.abs(v) < opening + 0.014)
    limb = (u > 0.09) & (u < length) & (np.abs(v) < (0.03 if body == "robot" else 0.045))
    frame[limb] = _METAL if body == "robot" else _SLEEVE
    frame[palm | fingers] = (40, 42, 46) if body == "robot" else _SKIN


def _wrist(table: Frames, motion: Motion, side: int, size: int) -> Frames:
    """What a camera on the wrist would see: the surroundings of the hand, twice as large."""
    half = size // 4
    padded = np.pad(table, ((0, 0), (half, half), (half, half), (0, 0)), mode="edge")
    corners = np.round(motion.hands[:, side] * size).astype(int).clip(0, size)
    cuts = [frame[r : r + 2 * half, c : c + 2 * half] for frame, (c, r) in zip(padded, corners, strict=True)]
    return np.repeat(np.repeat(np.stack(cuts), 2, axis=1), 2, axis=2)[:, :size, :size]

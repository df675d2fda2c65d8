"""The window over the demonstration: where it stands, and how it follows the robot, eq:window_advance.

Legend: T demonstration frames at the control rate, F latent frames of the whole demonstration, L window length in
frames, H action steps, w window start, q estimated frame, p place in the window in [0, 1].

The demonstration is encoded once. Every ``stride``-th frame goes to the VAE, the last one held until their number is
1 + 4 k; latent i then ends at frame ``i * unit``, unit = 4 stride, and a window is a slice of latents. So w is a
multiple of unit, a window of n latents is L = (n - 1) unit frames long, and p = 0 and p = 1 are its two ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from hostbot.types import BadInput

LATENT_FRAMES = 4
"""Video frames a latent stands for (the first stands for one)."""


@dataclass(frozen=True, kw_only=True)
class DemoGrid:
    """The grid that demonstrations are encoded on, the same in training and in use."""

    stride: int
    """Control steps between two frames that the model sees."""
    window_latents: int
    """Latent frames n of a window."""

    def __post_init__(self) -> None:
        if self.stride < 1 or self.window_latents < 2:
            raise BadInput(
                f"a window needs a stride of 1 and two latents at least, got {self.stride} and {self.window_latents}"
            )

    @property
    def unit(self) -> int:
        """Frames between two places a window can start at."""
        return LATENT_FRAMES * self.stride

    @property
    def length(self) -> int:
        """L."""
        return (self.window_latents - 1) * self.unit

    def num_latents(self, num_frames: int) -> int:
        """F: enough to reach the last frame, and to fill one window."""
        if num_frames < 1:
            raise BadInput(f"a demonstration needs at least one frame, got {num_frames}")
        return max(self.window_latents, 1 + math.ceil((num_frames - 1) / self.unit))

    def frames(self, num_frames: int) -> Int[np.ndarray, " V"]:
        """The frames that are encoded, 1 + 4 (F - 1) of them; beyond the end the last one is held."""
        count = 1 + LATENT_FRAMES * (self.num_latents(num_frames) - 1)
        return np.minimum(np.arange(count) * self.stride, num_frames - 1)

    def last_start(self, num_frames: int) -> int:
        """The latest start of a window, |demonstration| - L."""
        return (self.num_latents(num_frames) - self.window_latents) * self.unit


@dataclass(frozen=True, kw_only=True)
class WindowConfig:
    """How the window follows; the defaults add to the paper only a bound on a wild estimate and the stop rule."""

    max_advance: int
    """Frames the start may move in one cycle; less than that is rounded up to the grid's unit."""
    min_confidence: float = 0.0
    """Below this an estimate is not believed and the window stays; 0 believes all, as the paper does."""
    end_tolerance: int
    """An estimate this close to the last frame is at the end."""
    reach: int | None = None
    """Frames from where it can be expected within which samples of p are believed before others; None: all alike, as
    in the paper. One picture does not always tell, say, before a press from after it, but the past does."""
    patience: int = 2
    """Estimates at the end, one after another, until the demonstration counts as followed to its end."""

    def __post_init__(self) -> None:
        if self.max_advance < 1 or self.patience < 1 or self.end_tolerance < 0:
            raise BadInput(
                "a window must be able to advance by 1, wait for 1 estimate and have a tolerance of 0 or more, got "
                f"{self.max_advance}, {self.patience} and {self.end_tolerance}"
            )
        if self.reach is not None and self.reach < 1:
            raise BadInput(f"the reach of an estimate is a frame or more, got {self.reach}")


def follow(horizon: int) -> WindowConfig:
    """The usual rules for chunks of ``horizon`` steps: at most two chunks a cycle, the end within half a chunk."""
    return WindowConfig(max_advance=2 * horizon, end_tolerance=horizon // 2)


@dataclass(frozen=True, kw_only=True)
class Window:
    """Where one robot stands in one demonstration of ``num_frames`` frames."""

    num_frames: int
    start: int = 0
    """w, a multiple of the grid's unit; it never moves back."""
    frame: int = 0
    """q, the last estimate; it may move back within the window, after a disturbance."""
    num_at_end: int = 0
    num_held: int = 0
    """Estimates in a row that were not believed."""
    finished: bool = False


def advance(window: Window, p: float, confidence: float, grid: DemoGrid, config: WindowConfig) -> Window:
    """One estimate: q = w + floor(p L), then the start is centred on q, eq:window_advance.

    The start is clipped to [w, |demonstration| - L] as in the supplement, and snapped to the latent grid. An estimate
    that is not a number, or not confident enough, changes nothing.
    """
    if not math.isfinite(p) or confidence < config.min_confidence:
        return replace(window, num_held=window.num_held + 1)
    frame = window.start + math.floor(min(max(p, 0.0), 1.0) * grid.length)
    frame = min(frame, window.num_frames - 1)
    limit = math.ceil(config.max_advance / grid.unit) * grid.unit
    last = max(window.start, grid.last_start(window.num_frames))
    start = snap(frame - grid.length // 2, grid.unit)
    start = min(max(start, window.start), last, window.start + limit)
    at_end = window.num_frames - 1 - frame <= config.end_tolerance
    num_at_end = window.num_at_end + 1 if at_end else 0
    return Window(
        num_frames=window.num_frames,
        start=start,
        frame=frame,
        num_at_end=num_at_end,
        finished=window.finished or num_at_end >= config.patience,
    )


def snap(frame: int, unit: int) -> int:
    """The nearest place on the grid, the earlier of two."""
    return math.ceil(frame / unit - 0.5) * unit


def place_in(window: Window, frame: float, grid: DemoGrid) -> float:
    """p of a frame in a window, the inverse of what :func:`advance` reads; outside it is clipped."""
    return min(max((frame - window.start) / grid.length, 0.0), 1.0)


def retimed(num_frames: int, pace: float) -> Int[np.ndarray, " T"]:
    """Frames of a demonstration played ``pace`` times as fast, the first and the last kept.

    A human quicker than the robot is slowed down (pace below 1: frames repeat), so that the robot, which follows
    the demonstration's clock, is not asked for more than it can do.
    """
    if not (math.isfinite(pace) and pace > 0):
        raise BadInput(f"a pace is a factor above 0, got {pace}")
    wanted = max(1, round((num_frames - 1) / pace) + 1)
    return np.rint(np.linspace(0, num_frames - 1, wanted)).astype(np.int64)

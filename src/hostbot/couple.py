"""Prediction targets coupled to a demonstration, and windows of it on the grid of its latents.

Legend: T demo frames, N robot frames, B states, H action steps, K target frames, L window length in demo frames,
F latents of a demonstration, n latents of a window, q demo frame of a state, f0 first latent of a window.

A demonstration is encoded once, every ``stride`` frames, four frames a latent, so latent f stands at demo frame
``unit * f`` with ``unit = 4 * stride``. A window is n latents in a row, from frame ``unit * f0`` to L frames later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int, Int64
from torch import Tensor

from hostbot.types import BadInput, Correspondence

FRAMES_A_LATENT = 4
"""Wan's VAE: the first latent is of one frame, each further one of four."""
_ROUNDED = 3
"""Demo frames in a row that one of the robot's may stand for because it is rounded."""
Variant = Literal["full", "progress_window", "clock_window", "whole_video", "release"]


@dataclass(frozen=True, kw_only=True)
class CoupleConfig:
    """Sizes of window and chunk, and which of the paper's ingredients are used (all of them by default)."""

    window: int
    """Demonstration frames L in the window."""
    horizon: int
    """Action steps H of a chunk."""
    stride: int
    """Control steps between two frames that the model sees."""
    position: Literal["progress", "clock"] = "progress"
    """Where in the demonstration a state is: by the alignment, or by its share of elapsed time."""
    targets: Literal["coupled", "clock", "keyframes"] = "coupled"
    """eq:pred_target; a fixed offset in time; or the release's: straight between the chunk's two ends."""
    between: bool = False
    """Coupled actions may lie between two of the robot's frames; rounded to frames, those of a robot that is faster
    than the demonstrator are stairs, and at a low rate steep ones."""
    haste: float = 0.0
    """Least pace of coupled targets, as a share of the robot's own: a demonstrator who is slow or stops is not waited
    for. A robot that waits sees nothing change, and may wait for ever."""
    whole: bool = False
    """The window is the whole demonstration, played at whatever speed fits it in."""
    anywhere: float = 0.2
    """Share of windows that need only hold the state and not all of the segment that follows it."""

    def __post_init__(self) -> None:
        if self.window % self.unit or self.horizon % self.stride:
            raise BadInput(
                f"the window ({self.window}) must be a multiple of {self.unit} and the horizon ({self.horizon}) of "
                f"the stride ({self.stride})"
            )
        if not 0 <= self.haste <= 1:
            raise BadInput(f"haste is a share of the robot's own pace, 0 to 1, got {self.haste:g}")
        if self.window < self.horizon + self.unit:
            raise BadInput(
                f"a window of {self.window} frames is too short for a segment of {self.horizon} that starts "
                f"anywhere: it needs {self.horizon + self.unit}"
            )

    @property
    def unit(self) -> int:
        """Demonstration frames from one latent to the next."""
        return FRAMES_A_LATENT * self.stride

    @property
    def latents(self) -> int:
        """Latents n of a window."""
        return self.window // self.unit + 1


def variant(config: CoupleConfig, name: Variant) -> CoupleConfig:
    """The paper's ablation of coupling, from all of it to none, and the release's two keyframes."""
    changes: dict[Variant, dict[str, object]] = {
        "full": {},
        "progress_window": {"targets": "clock"},
        "clock_window": {"targets": "clock", "position": "clock"},
        "whole_video": {"targets": "clock", "whole": True},
        "release": {"targets": "keyframes"},
    }
    base: dict[str, object] = {"position": "progress", "targets": "coupled", "whole": False}
    return replace(config, **{**base, **changes[name]})  # type: ignore[arg-type]


# Targets ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TargetFrames:
    """Robot frames that make up a state's target, eq:pred_target."""

    actions: Float64[np.ndarray, "B H"]
    """t_0 .. t_{H-1}; whole numbers unless actions may lie between frames."""
    frames: Int64[np.ndarray, "B K"]
    """What is seen after each ``stride`` steps, the last after all H: evenly spaced on from the present."""


def demo_positions(maps: Correspondence, config: CoupleConfig) -> Int64[np.ndarray, " N"]:
    """The demo frame q each robot frame is at: pi^{r->d}, eq:alignment_map, or the same share of the time."""
    if config.position == "progress":
        return maps.robot_to_demo.astype(np.int64)
    share = np.linspace(0, len(maps.demo_to_robot) - 1, len(maps.robot_to_demo))
    return np.rint(share).astype(np.int64)


def target_frames(maps: Correspondence, states: Int[np.ndarray, " B"], config: CoupleConfig) -> TargetFrames:
    """The robot frames that follow each state as the demonstration goes on; past either end, the end is held."""
    states, last = np.asarray(states, np.int64), len(maps.robot_to_demo) - 1
    if len(states) and not 0 <= states.min() <= states.max() <= last:
        raise BadInput(f"states must be in 0..{last}, got {states.min()}..{states.max()}")
    steps = np.arange(config.horizon)
    seen = np.arange(config.stride, config.horizon + 1, config.stride)
    coupled = config.targets == "coupled"
    between = config.between and coupled

    def after(count: Int64[np.ndarray, " S"]) -> Float64[np.ndarray, "B S"]:
        found = (_between_after if between else _frames_after)(maps, states, count, config).astype(np.float64)
        if coupled and config.haste:
            least = np.minimum(states[:, None] + config.haste * count, last)
            found = np.maximum(found, least if between else np.rint(least))
        return found

    return TargetFrames(actions=after(steps), frames=np.rint(after(seen)).astype(np.int64))


def _frames_after(
    maps: Correspondence, states: Int[np.ndarray, " B"], steps: Int[np.ndarray, " S"], config: CoupleConfig
) -> Int64[np.ndarray, "B S"]:
    num_demo, last = len(maps.demo_to_robot), len(maps.robot_to_demo) - 1
    if config.targets == "clock":
        return np.minimum(states[:, None] + steps, last)
    ahead = demo_positions(maps, config)[states][:, None] + steps
    if config.targets == "coupled":
        return maps.demo_to_robot[np.minimum(ahead, num_demo - 1)].astype(np.int64)
    end = demo_positions(maps, config)[states] + config.horizon
    end = np.maximum(maps.demo_to_robot[np.minimum(end, num_demo - 1)], states)
    return np.rint(states[:, None] + (end - states)[:, None] * (steps / config.horizon)).astype(np.int64)


def _between_after(
    maps: Correspondence, states: Int[np.ndarray, " B"], steps: Int[np.ndarray, " S"], config: CoupleConfig
) -> Float64[np.ndarray, "B S"]:
    """eq:pred_target without rounding: pi^{d->r} as a line through the middle of each short run of equal frames.

    In a long one the demonstrator waits, and so does the robot: the line goes along it.
    """
    frames, first, run = np.unique(maps.demo_to_robot, return_index=True, return_counts=True)
    inset = np.where(run > _ROUNDED, 0.5, (run - 1) / 2)
    knots = np.stack([first + inset, first + run - 1 - inset], axis=1).ravel()
    ahead = demo_positions(maps, config)[states][:, None] + steps
    return np.maximum(np.interp(ahead, knots, np.repeat(frames, 2)), states[:, None])


def retimed(
    maps: Correspondence, robot_frames: Int[np.ndarray, " N2"], demo_frames: Int[np.ndarray, " T2"]
) -> Correspondence:
    """The maps between two timelines that show these frames (cleaned, faster or slower), in increasing order."""
    return Correspondence(
        robot_to_demo=nearest(maps.robot_to_demo[robot_frames], demo_frames),
        demo_to_robot=nearest(maps.demo_to_robot[demo_frames], robot_frames),
        robot_confidence=maps.robot_confidence[robot_frames],
        demo_confidence=maps.demo_confidence[demo_frames],
        cost=maps.cost,
    )


def nearest(wanted: Int[np.ndarray, " W"], frames: Int[np.ndarray, " M"]) -> Int64[np.ndarray, " W"]:
    """Where in a timeline the frame closest to each wanted one is shown."""
    after = np.clip(np.searchsorted(frames, wanted), 0, len(frames) - 1)
    before = np.maximum(after - 1, 0)
    closer = np.abs(wanted - frames[before]) <= np.abs(frames[after] - wanted)
    return np.where(closer, before, after).astype(np.int64)


def clock_maps(num_robot: int, num_demo: int) -> Correspondence:
    """The maps that match frames by their share of elapsed time."""
    return Correspondence(
        robot_to_demo=np.rint(np.linspace(0, num_demo - 1, num_robot)).astype(np.int64),
        demo_to_robot=np.rint(np.linspace(0, num_robot - 1, num_demo)).astype(np.int64),
        robot_confidence=np.ones(num_robot),
        demo_confidence=np.ones(num_demo),
        cost=0.0,
    )


# Windows ----------------------------------------------------------------------------------------------


def num_latents(num_frames: int, config: CoupleConfig) -> int:
    """Latents F of a demonstration: enough to reach its last frame, and never fewer than a window's."""
    return max(config.latents, 1 + -(-(num_frames - 1) // config.unit))


def grid_frames(num_frames: int, config: CoupleConfig) -> Int64[np.ndarray, " 4F-3"]:
    """The demonstration's frames that are encoded, its last one held to the end of the grid."""
    count = FRAMES_A_LATENT * (num_latents(num_frames, config) - 1) + 1
    return np.minimum(config.stride * np.arange(count), num_frames - 1)


def window_range(
    q: Int64[Tensor, " B"], num: Int64[Tensor, " B"], config: CoupleConfig, whole_segment: bool = True
) -> tuple[Int64[Tensor, " B"], Int64[Tensor, " B"]]:
    """First and last f0 of the windows that hold frame q and, unless told otherwise, the H frames after it."""
    reach = q + config.horizon if whole_segment else q
    end = num - config.latents
    low = -torch.div(config.window - reach, config.unit, rounding_mode="floor")
    high = torch.div(q, config.unit, rounding_mode="floor")
    return torch.minimum(low.clamp(min=0), end), torch.minimum(high, end)


def draw_window(
    q: Int64[Tensor, " B"],
    num: Int64[Tensor, " B"],
    offset: Float32[Tensor, " B"],
    loose: Float32[Tensor, " B"],
    config: CoupleConfig,
) -> Int64[Tensor, " B"]:
    """f0 of a random window; ``offset`` and ``loose`` are uniform in [0, 1)."""
    low, high = window_range(q, num, config)
    far, _ = window_range(q, num, config, whole_segment=False)
    low = torch.where(loose < config.anywhere, far, low)
    return low + (offset * (high - low + 1)).long().clamp(max=high - low)


def progress(q: Int64[Tensor, " B"], f0: Int64[Tensor, " B"], config: CoupleConfig) -> Float32[Tensor, " B"]:
    """p_t in [0, 1]: where in its window a state is."""
    return (q - config.unit * f0).float() / config.window

"""The nouns of hostbot, shared by every layer and owned by none.

Legend: T demo frames, N robot frames, H action steps, D action width, h w pixels.
This module imports neither torch nor any other part of hostbot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from jaxtyping import Float, Float32, Int, Shaped, UInt8

Image = UInt8[np.ndarray, "h w 3"]
Frames = UInt8[np.ndarray, "T h w 3"]


class BadInput(ValueError):
    """A user's mistake or a damaged file, told in one sentence that says what to do."""


class VideoError(BadInput):
    """A video that cannot be used."""


class DataError(BadInput):
    """A dataset that cannot be used."""


PartKind = Literal["position", "rot6d", "euler", "quaternion", "gripper", "joint"]
PART_WIDTHS: Mapping[PartKind, int] = {
    "position": 3,
    "rot6d": 6,
    "euler": 3,
    "quaternion": 4,
    "gripper": 1,
    "joint": 1,
}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One run of numbers in an action or state vector: what it is and whose it is."""

    name: str
    kind: PartKind
    limb: str
    """Parts with the same limb form one pose, so that a rotation finds its position."""

    @property
    def width(self) -> int:
        """How many numbers the part takes."""
        return PART_WIDTHS[self.kind]


@dataclass(frozen=True, kw_only=True)
class Embodiment:
    """What an action vector means: its parts in order, its rate and its cameras.

    Positions are in metres in the robot's base frame, angles in radians, Euler angles
    are roll, pitch, yaw about fixed axes, quaternions are (w, x, y, z).
    """

    name: str
    parts: tuple[Part, ...]
    rate_hz: float
    views: tuple[str, ...]

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if len(set(names)) != len(names):
            raise BadInput(f"embodiment {self.name!r} names a part twice: {sorted(names)}")
        if not self.rate_hz > 0:
            raise BadInput(f"embodiment {self.name!r} has rate {self.rate_hz} Hz; it must be above 0")

    @property
    def dim(self) -> int:
        """Width of the action vector."""
        return sum(part.width for part in self.parts)

    def slices(self) -> Iterator[tuple[Part, slice]]:
        """Each part with the place it has in the vector."""
        start = 0
        for part in self.parts:
            yield part, slice(start, start + part.width)
            start += part.width

    def axis_names(self) -> list[str]:
        """A name for every number of the vector, as LeRobot's ``names`` wants them."""
        axes: dict[PartKind, tuple[str, ...]] = {
            "position": ("x", "y", "z"),
            "rot6d": ("r11", "r21", "r31", "r12", "r22", "r32"),
            "euler": ("roll", "pitch", "yaw"),
            "quaternion": ("w", "x", "y", "z"),
            "gripper": ("",),
            "joint": ("",),
        }
        return [f"{part.name}.{axis}".rstrip(".") for part in self.parts for axis in axes[part.kind]]


def arm(limb: str) -> tuple[Part, Part, Part]:
    """The paper's ten numbers of one arm: position, 6-D rotation, gripper aperture."""
    return (
        Part(name=f"{limb}_position", kind="position", limb=limb),
        Part(name=f"{limb}_rotation", kind="rot6d", limb=limb),
        Part(name=f"{limb}_gripper", kind="gripper", limb=limb),
    )


def bimanual(
    rate_hz: float = 32.0, views: tuple[str, ...] = ("left_wrist", "right_wrist", "third_person")
) -> Embodiment:
    """The paper's robot: two arms, twenty numbers."""
    return Embodiment(name="bimanual", parts=arm("left") + arm("right"), rate_hz=rate_hz, views=views)


def single_arm(rate_hz: float = 32.0, views: tuple[str, ...] = ("wrist", "third_person")) -> Embodiment:
    """One arm with a gripper, ten numbers."""
    return Embodiment(name="single_arm", parts=arm("arm"), rate_hz=rate_hz, views=views)


def joint_space(names: Sequence[str], rate_hz: float, views: tuple[str, ...]) -> Embodiment:
    """A robot commanded by joint values (ALOHA and the like), one part a joint."""
    parts = tuple(Part(name=name, kind="joint", limb="joints") for name in names)
    return Embodiment(name="joint_space", parts=parts, rate_hz=rate_hz, views=views)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened at a frame: approach, contact, grasp, lift, release ..."""

    name: str
    frame: int


ASTRAY, BACK, AGAIN = "astray", "back", "again"
"""A hand is led off its way from the first to the second, which nobody is to learn; nor what is done again."""
PASSING = ("approach", "grasp", "lift", "carry", "lower", "retreat", "upright", "done", AGAIN, ASTRAY, BACK)
"""Events on the way: the hand is not yet, or still, where it acts."""


@dataclass(frozen=True, kw_only=True)
class Camera:
    """Where a view looks from: a pinhole fixed in the robot's base frame, or carried by a limb's tool."""

    view: str
    limb: str = ""
    """Empty: fixed in the base frame."""
    position: tuple[float, float, float]
    rotation: tuple[float, float, float, float, float, float, float, float, float]
    """Row by row; its columns are the camera's right, up and backward axes in the frame it is fixed in."""
    fov_y: float
    """Vertical field of view in degrees."""
    aspect: float = 1.0
    """Width over height."""


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """A video of somebody doing a task: any subset of views, no actions."""

    views: Mapping[str, Frames]
    fps: float
    instruction: str = ""
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        lengths = {name: len(frames) for name, frames in self.views.items()}
        if not lengths:
            raise BadInput("a demonstration needs at least one view")
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise BadInput(f"the views of a demonstration must have one length above 0, got {lengths}")

    def __len__(self) -> int:
        return len(next(iter(self.views.values())))


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """A robot's own execution: views, state and action at one rate, with its events."""

    views: Mapping[str, Frames]
    state: Float32[np.ndarray, "N D"]
    action: Float32[np.ndarray, "N D"]
    fps: float
    instruction: str
    embodiment: Embodiment
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        lengths = {name: len(frames) for name, frames in self.views.items()}
        lengths |= {"state": len(self.state), "action": len(self.action)}
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise BadInput(f"the streams of a trajectory must have one length above 0, got {lengths}")
        for name, width in (("state", self.state.shape[1]), ("action", self.action.shape[1])):
            if width != self.embodiment.dim:
                raise BadInput(
                    f"{name} is {width} wide but {self.embodiment.name!r} has {self.embodiment.dim}"
                )

    def __len__(self) -> int:
        return len(self.state)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the robot sees and feels now."""

    views: Mapping[str, Image]
    state: Float32[np.ndarray, " D"]
    instruction: str = ""
    executed: int | None = None
    """Steps carried out since the last chunk was decided, where that is known."""


@dataclass(frozen=True, kw_only=True)
class Correspondence:
    """The monotone frame maps between a demonstration and a trajectory, eq:alignment_map."""

    robot_to_demo: Int[np.ndarray, " N"]
    demo_to_robot: Int[np.ndarray, " T"]
    robot_confidence: Float[np.ndarray, " N"]
    demo_confidence: Float[np.ndarray, " T"]
    cost: float

    def __post_init__(self) -> None:
        for name, frame_map, end in (
            ("robot_to_demo", self.robot_to_demo, len(self.demo_to_robot)),
            ("demo_to_robot", self.demo_to_robot, len(self.robot_to_demo)),
        ):
            if len(frame_map) == 0 or frame_map.min() < 0 or frame_map.max() >= end:
                raise BadInput(f"{name} must point into 0..{end - 1}")
            if (np.diff(frame_map) < 0).any():
                raise BadInput(f"{name} steps back at frame {int(np.argmin(np.diff(frame_map))) + 1}")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One training sample: a demo window, an observation, and the targets coupled to it, eq:pred_target."""

    window: Mapping[str, Frames]
    observation: Observation
    progress: float
    """p_t in [0, 1]: where in the window the robot is."""
    target_views: Mapping[str, Frames]
    target_actions: Float32[np.ndarray, "H D"]


@dataclass(frozen=True, kw_only=True)
class ActionChunk:
    """What the robot is to do next, and what the policy believed while deciding it."""

    actions: Float32[np.ndarray, "H D"]
    embodiment: Embodiment
    progress: float
    confidence: float
    predicted_views: Mapping[str, Frames] = field(default_factory=dict)
    timing_ms: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True, kw_only=True)
class EpisodeInfo:
    """What a dataset says of one episode before any of it is read."""

    index: int
    length: int
    instruction: str
    """The episode's (first) task."""
    tasks: tuple[str, ...]


class EpisodeSource(Protocol):
    """A dataset seen from above: LeRobot v3.0 and v2.1 folders and the HOST release's are all this."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    @property
    def fps(self) -> float:
        """Frames a second of every stream."""

    @property
    def views(self) -> tuple[str, ...]:
        """Camera names; empty for a dataset without video."""

    @property
    def widths(self) -> Mapping[str, int]:
        """Numeric one-dimensional features by name (``observation.state``, ``action`` …) and their width."""

    @property
    def embodiment(self) -> Embodiment | None:
        """What the action vector means, where the dataset says so."""

    def __len__(self) -> int: ...

    def episode(self, index: int) -> EpisodeInfo:
        """Length and task of an episode."""

    def rows(self, index: int, names: Sequence[str]) -> Mapping[str, Shaped[np.ndarray, "N _"]]:
        """Numeric features of a whole episode, in the type the dataset gives them, always two-dimensional."""

    def frames(
        self, index: int, view: str, frame_indices: Sequence[int], size: tuple[int, int] | None = None
    ) -> Frames:
        """Exactly these frames of a view, in the order asked for, letterboxed to (h, w) where a size is given."""

    def events(self, index: int) -> tuple[Event, ...]:
        """Recorded events of an episode; empty where there are none."""

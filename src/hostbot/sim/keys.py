"""Keyframes in the frames of things, and how one is turned into a tool pose.

A goal says where a tool, or what it carries, is to be in the levelled frame of a thing, a moving
part or the table. It is resolved again at every step, so a thing that moves is followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hostbot.sim.pose import DOWN, Pose, Rot3, rot_y, rot_z, wrap
from hostbot.sim.world import World


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Where a tool or what it carries shall be."""

    frame: str
    at: tuple[float, float, float] = (0.0, 0.0, 0.0)
    yaw: float | None = None
    """Closing direction of the tool (or heading of what it carries) in the frame; None keeps the present one."""
    tilt: float = 0.0
    """Lean of the tool about its closing direction."""
    carry: str = ""
    """The held thing that is to reach the goal, instead of the tool itself."""
    height: float | None = None
    """Height above the table, where it does not depend on the frame."""
    flip: bool = False
    """What is carried looks the same after half a turn."""
    rise: float = 0.0
    """For a goal at the tool's own place: at least this much higher."""
    square: bool = False
    """Offset along the table's axes, not the frame's."""
    fixed: bool = False
    """Resolve once: the frame moves with the hand."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """One keyframe: goals for the limbs that move, what the jaws do, and the event it marks when reached."""

    goals: Mapping[str, Goal] = field(default_factory=dict)
    grips: Mapping[str, float] = field(default_factory=dict)
    """Jaw opening in metres for each role that changes it."""
    event: str = ""
    near: float = 0.004
    """How close counts as reached; large for points that are only passed."""
    speed: float = 1.0
    dwell: float = 0.0
    """Seconds to stay once there."""


def tool_rotation(yaw: float, tilt: float = 0.0) -> Rot3:
    """A tool pointing down, closing along ``yaw``, leaning by ``tilt`` about that direction."""
    out: Rot3 = rot_z(yaw - np.pi / 2) @ DOWN @ rot_y(tilt)
    return out


def closing_yaw(pose: Pose) -> float:
    """Direction in which a tool closes, about the world's z."""
    return float(np.arctan2(pose.rot[1, 1], pose.rot[0, 1]))


def nearest_half_turn(yaw: float, reference: float) -> float:
    """The same closing direction, not more than a quarter turn from a reference."""
    return reference + wrap(yaw - reference, np.pi)


def resolve(goal: Goal, world: World, tool: Pose, command: Pose) -> Pose:
    """The tool pose that fulfils a goal now, given where the tool is and where it was last sent."""
    frame = world.base(goal.frame)
    axes = np.eye(3) if goal.square else frame.rot
    pos = frame.pos + axes @ np.asarray(goal.at)
    if goal.height is not None:
        pos[2] = goal.height
    if not goal.carry:
        yaw = closing_yaw(command)
        if goal.yaw is not None:
            yaw = nearest_half_turn(frame.yaw + goal.yaw, yaw)
        return Pose(pos, tool_rotation(yaw, goal.tilt))
    held = world.base(goal.carry)
    lever, yaw = tool.pos - held.pos, closing_yaw(command)
    if goal.yaw is not None:
        turn = wrap(frame.yaw + goal.yaw - held.yaw, np.pi if goal.flip else 2 * np.pi)
        lever, yaw = rot_z(turn) @ lever, closing_yaw(tool) + turn
    return Pose(pos + lever, tool_rotation(yaw, goal.tilt))

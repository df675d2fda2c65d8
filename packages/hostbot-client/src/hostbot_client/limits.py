"""What a robot may be told to do: a box, a speed and a jump for every part of its action vector.

The file is plain JSON, written by whoever knows the robot and kept on the robot's own computer: a server can be wrong,
be updated, or be somebody else's.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence  # noqa: UP035 (Python 3.9)

WIDTHS: Mapping[str, int] = {
    "position": 3,
    "rot6d": 6,
    "euler": 3,
    "quaternion": 4,
    "gripper": 1,
    "joint": 1,
}
ROTATIONS = frozenset({"rot6d", "euler", "quaternion"})


class BadLimits(ValueError):
    """Limits that are none."""


@dataclass(frozen=True)
class PartLimits:
    """One part of the vector. Metres, radians and seconds, or the joint's and gripper's own units."""

    name: str
    kind: str
    """position, rot6d, euler, quaternion, gripper or joint, as the server's metadata says."""
    speed: float
    """Farthest from one command to the next, a second: metres, radians (the angle of the turn), or own units."""
    jump: float
    """Farthest that a chunk's first action may lie from where the robot is measured to be."""
    low: tuple[float, ...] = ()
    """The box a position, gripper or joint must stay in; rotations have none."""
    high: tuple[float, ...] = ()
    slack: float = 0.0
    """How far past the box is moved back onto it; what lies farther out is refused."""

    def __post_init__(self) -> None:
        if self.kind not in WIDTHS:
            raise BadLimits(f"{self.name}: there is no kind {self.kind!r}; known are {', '.join(WIDTHS)}")
        numbers = (self.speed, self.jump, *self.low, *self.high)
        if not all(math.isfinite(n) for n in numbers) or self.speed <= 0 or self.jump <= 0 or self.slack < 0:
            raise BadLimits(f"{self.name}: limits are finite, speed and jump above 0, slack not below 0")
        width = 0 if self.kind in ROTATIONS else self.width
        if not len(self.low) == len(self.high) == width:
            raise BadLimits(
                f"{self.name}: a {self.kind} has {width} bounds, got {len(self.low)}/{len(self.high)}"
            )
        if any(low >= high for low, high in zip(self.low, self.high)):  # noqa: B905 (Python 3.9)
            raise BadLimits(f"{self.name}: every low bound must be below its high one")

    @property
    def width(self) -> int:
        """How many numbers the part takes."""
        return WIDTHS[self.kind]


@dataclass(frozen=True)
class Limits:
    """All parts in the vector's order, at the rate commands are sent."""

    parts: tuple[PartLimits, ...]
    rate_hz: float

    def __post_init__(self) -> None:
        if not self.parts or not (math.isfinite(self.rate_hz) and self.rate_hz > 0):
            raise BadLimits(f"limits need parts and a rate above 0, got {len(self.parts)} and {self.rate_hz}")

    @property
    def dim(self) -> int:
        """Width of the action vector."""
        return sum(part.width for part in self.parts)

    def slices(self) -> Iterator[tuple[PartLimits, slice]]:
        """Each part with its place in the vector."""
        start = 0
        for part in self.parts:
            yield part, slice(start, start + part.width)
            start += part.width

    def check_parts(self, described: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a server whose action vector is not the one these limits are for."""
        theirs = [(str(part["name"]), str(part["kind"])) for part in described]
        ours = [(part.name, part.kind) for part in self.parts]
        if theirs != ours:
            raise BadLimits(f"the limits are for {ours}, but the server's actions are {theirs}")

    def save(self, path: str | Path) -> None:
        """Write the file."""
        Path(path).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def load_limits(path: str | Path) -> Limits:
    """The limits in a file; anything unknown or missing is refused."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as reason:
        raise BadLimits(f"{path} holds no limits: {reason}") from None
    return limits_from(found, str(path))


def limits_from(found: Any, where: str = "limits") -> Limits:
    """Limits from JSON values."""
    known = {field.name for field in fields(PartLimits)}
    if (
        not isinstance(found, dict)
        or set(found) != {"parts", "rate_hz"}
        or not isinstance(found["parts"], list)
    ):
        raise BadLimits(f"{where} must be an object with a list 'parts' and a number 'rate_hz'")
    for part in found["parts"]:
        if not isinstance(part, dict) or set(part) - known:
            odd = sorted(set(part) - known) if isinstance(part, dict) else [str(part)[:40]]
            raise BadLimits(f"{where} has unknown {', '.join(odd)}; a part has {', '.join(sorted(known))}")
    try:
        parts = tuple(PartLimits(**_tuples(part)) for part in found["parts"])
        return Limits(parts=parts, rate_hz=float(found["rate_hz"]))
    except TypeError as reason:
        raise BadLimits(f"{where}: {reason}") from None


def _tuples(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if key in ("low", "high") else value for key, value in part.items()}


def arm_limits(
    limb: str,
    low: Sequence[float],
    high: Sequence[float],
    *,
    gripper: tuple[float, float],
    speed: float = 0.5,
    turn: float = 2.0,
    gripper_speed: float = 0.5,
    jump: float = 0.1,
    jump_turn: float = 0.5,
    slack: float = 0.01,
) -> tuple[PartLimits, PartLimits, PartLimits]:
    """One arm as hostbot writes it: tool position in a box, 6-D rotation, gripper opening. Metres, radians, seconds."""
    opening = gripper[1] - gripper[0]
    return (
        PartLimits(f"{limb}_position", "position", speed, jump, tuple(low), tuple(high), slack),
        PartLimits(f"{limb}_rotation", "rot6d", turn, jump_turn),
        PartLimits(
            f"{limb}_gripper", "gripper", gripper_speed, opening, (gripper[0],), (gripper[1],), opening / 10
        ),
    )

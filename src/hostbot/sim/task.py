"""What a task is: things, a script, the ways to ask for it, and a predicate. Data, no code of its own."""

from __future__ import annotations

from dataclasses import dataclass

from hostbot.sim.moves import Move
from hostbot.sim.predicates import Predicate
from hostbot.sim.things import Thing


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task of the bench."""

    name: str
    family: str
    things: tuple[Thing, ...]
    """What the task needs."""
    foils: tuple[Thing, ...]
    """What else stands in the scene, so that other tasks could be meant."""
    script: tuple[Move, ...]
    success: Predicate
    instructions: tuple[str, ...]
    hands: int = 1
    across: tuple[str, ...] = ()
    """Things that stand on the side of the arm that does not begin."""
    free: tuple[tuple[str, float, float, float], ...] = ()
    """Spots kept free of other things and of each other's: (thing, offset x, offset y, radius)."""
    lane: tuple[tuple[str, str, float], ...] = ()
    """Ways kept free of foils: (from thing, to thing, half width)."""
    nested: tuple[tuple[str, str, float], ...] = ()
    """Things that start on or in another: (thing, host, height of its underside)."""
    joints: tuple[tuple[str, float], ...] = ()
    """Parts that do not start at zero: (joint, position)."""

    begun: int = 0
    """Moments that are over when a sketch of it begins."""

    @property
    def scene(self) -> tuple[Thing, ...]:
        """All things on the table."""
        return self.things + self.foils

    def affords(self, other: Task) -> bool:
        """Whether another task could be done in this task's scene, its things there and as it expects them."""
        here, theirs = {thing.name for thing in self.scene}, {thing.name for thing in other.things}
        return other.name != self.name and theirs <= here and self._begins(theirs) == other._begins(theirs)

    def _begins(self, names: set[str]) -> set[tuple[str, ...]]:
        """How some of the things start, where it is not anywhere on the table and at zero."""
        nested = {(item, host) for item, host, _ in self.nested if item in names}
        return nested | {
            (joint, f"{value:.3f}") for joint, value in self.joints if joint.split("/")[0] in names
        }

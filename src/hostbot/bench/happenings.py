"""What happened, told by physics alone: which thing was touched or let go when. The same for a hand and a gripper.

A script's own events say more, but only a scripted actor notes them; these come from any execution, so that a learned
policy's progress can be compared with the video it followed.
"""

from __future__ import annotations

from hostbot.sim.world import World
from hostbot.types import Event

QUIET = 3
"""Frames that a touch must last, or be over, to count: contacts flicker."""


class Witness:
    """Looks at a world after every step and notes touches and releases."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.first_touched = ""
        """The first thing any hand touched."""
        self._touched: set[str] = set()
        self._since: dict[str, int] = {}
        self._frame = 0

    def look(self, world: World) -> None:
        """Note what changed; call it once a control step."""
        self._frame += 1
        for name in world.shapes:
            if world.in_hand(name) == (name in self._touched):
                self._since.pop(name, None)
                continue
            begun = self._since.setdefault(name, self._frame)
            if self._frame - begun + 1 >= QUIET:
                self._change(name, begun)

    def _change(self, name: str, frame: int) -> None:
        self._since.pop(name)
        if name in self._touched:
            self._touched.discard(name)
            self.events.append(Event(name=f"leave {name}", frame=frame))
            return
        self._touched.add(name)
        self.events.append(Event(name=f"touch {name}", frame=frame))
        self.first_touched = self.first_touched or name

"""Hands that do nothing in particular: they go anywhere, lean, open, close, push what stands there, knock it over.

No task, no drill: nothing is asked for and nothing is done in the end. What hands look like in any posture can be
learned from them, for whoever reads hands of deeds that were never shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hostbot.sim import drills
from hostbot.sim.arms import MAX_OPENING
from hostbot.sim.keys import Goal, Key
from hostbot.sim.moves import Move, Pick, Stage
from hostbot.sim.task import Task
from hostbot.sim.world import World

NAME = "roam"
SECONDS = 6.0
_POINTS = 24
"""Places a hand goes to, more than there is time for."""
_X, _Y = (0.17, 0.45), (-0.09, 0.27)
"""Metres of the table that a left hand gets to; a right hand's lie mirrored."""
_LOW, _HIGH, _LEANING_LOW = 0.012, 0.20, 0.05
_AT_THING, _ASIDE = 0.5, 0.025
"""How often a hand goes for a thing, and metres by which it then goes beside its middle."""
_LEANS, _LEAN, _UPRIGHT = 0.4, (-1.9, 0.7), 0.2
"""How often and how far a hand leans, in radians; how far otherwise."""
_TURNS, _GRIPS, _SHUTS, _STAYS = 0.4, 0.5, 0.4, 0.4
_SPEED, _STAY_SECONDS = (0.4, 1.6), 0.6
_HOLDS, _LETS_GO, _BOTH = 0.4, 6, 0.15
"""How often something is taken first, after how many places the hand may open again, and how often both hands roam."""


@dataclass(frozen=True)
class Never:
    """Nothing to be done."""

    def holds(self, world: World) -> bool:
        """It never is."""
        return False


@dataclass(frozen=True, kw_only=True)
class Roam:
    """Go anywhere, with one hand or with both."""

    seed: int
    hands: int = 1
    holds: int = 0
    """Places before the hand that began may open."""

    def keys(self, stage: Stage) -> Sequence[Key]:
        """As the seed has it, things where they stand now."""
        rng = np.random.default_rng([self.seed, *NAME.encode()])
        return [self._key(stage, rng, number) for number in range(_POINTS)]

    def _key(self, stage: Stage, rng: np.random.Generator, number: int) -> Key:
        goals, grips = {}, {}
        for role in ("main", "other")[: self.hands]:
            goals[role] = _anywhere(stage, stage.limb(role), rng)
            shut, opening = rng.random(2)
            if rng.random() < _GRIPS and (role != "main" or number >= self.holds):
                grips[role] = 0.0 if shut < _SHUTS else opening * MAX_OPENING
        dwell = rng.uniform(0, _STAY_SECONDS) if rng.random() < _STAYS else 0.0
        speed = float(np.exp(rng.uniform(*np.log(_SPEED))))
        return Key(goals=goals, grips=grips, event="stroke", near=0.02, speed=speed, dwell=dwell)

    def achieved(self, stage: Stage) -> bool:
        """Always."""
        return True


def _anywhere(stage: Stage, limb: str, rng: np.random.Generator) -> Goal:
    leans = rng.random() < _LEANS
    tilt = float(rng.uniform(*(_LEAN if leans else (-_UPRIGHT, _UPRIGHT))))
    yaw = float(rng.uniform(-np.pi / 2, np.pi / 2)) if rng.random() < _TURNS else None
    low = _LEANING_LOW if leans else _LOW
    if rng.random() < _AT_THING:
        name = str(rng.choice(sorted(stage.world.shapes)))
        x, y = rng.normal(0, _ASIDE, 2)
        height = max(low, stage.world.shapes[name].height + float(rng.uniform(-0.05, 0.05)))
        return Goal(frame=name, at=(x, y, 0.0), yaw=yaw, tilt=tilt, height=height, fixed=True)
    side = 1.0 if limb == "left" else -1.0
    at = (float(rng.uniform(*_X)), side * float(rng.uniform(*_Y)), 0.0)
    return Goal(frame="table", at=at, yaw=yaw, tilt=tilt, height=float(rng.uniform(low, _HIGH)))


def roaming(seed: int) -> Task:
    """The scene of a seed, among a drill's things, and where hands go in it."""
    rng = np.random.default_rng([seed, *NAME.encode()])
    drilled = drills.drill(seed, int(rng.integers(drills.THINGS)), begun=False)
    hands = 2 if rng.random() < _BOTH else 1
    item = drilled.scene[int(rng.integers(len(drilled.scene)))]
    takes = rng.random() < _HOLDS and item.kind.__name__ not in drills.pressed()
    first: tuple[Move, ...] = (Pick(item=item.name),) if takes else ()
    roam = Roam(seed=seed, hands=hands, holds=_LETS_GO if takes else 0)
    return Task(
        name=NAME,
        family=NAME,
        things=drilled.scene,
        foils=(),
        script=(*first, roam),
        success=Never(),
        instructions=("Do nothing in particular.",),
        hands=hands,
    )

"""The moves scripts are made of; each one writes its keyframes when its turn comes."""

from hostbot.sim.moves.base import Move, Stage
from hostbot.sim.moves.hold import Lean, LiftBoth, Offer, Pick, Put, Release, Tip
from hostbot.sim.moves.rest import Home, Wait
from hostbot.sim.moves.touch import Drag, Path, Press, Shove, Turn

__all__ = [
    "Drag",
    "Home",
    "Lean",
    "LiftBoth",
    "Move",
    "Offer",
    "Path",
    "Pick",
    "Press",
    "Put",
    "Release",
    "Shove",
    "Stage",
    "Tip",
    "Turn",
    "Wait",
]

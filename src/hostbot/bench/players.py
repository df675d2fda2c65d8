"""Who can be evaluated: whoever keeps this protocol. Those that need no model are here.

Legend: H action steps, N steps of an episode, D action width, T video frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float32

from hostbot.bench.films import Filmed
from hostbot.bench.suites import Trial
from hostbot.bench.worker import Expert
from hostbot.types import ActionChunk, BadInput, Demonstration, Embodiment, Observation, bimanual

CHUNK = 16


class Player(Protocol):
    """Anything that can be put to the test. A session is whatever it wants to remember of one trial."""

    @property
    def identity(self) -> str:
        """Names it and its weights: results of different players are never mixed."""

    @property
    def looks(self) -> bool:
        """Whether it needs pictures."""

    @property
    def asks_expert(self) -> bool:
        """Whether it needs to know what the expert would do."""

    def begin(
        self, trial: Trial, video: Demonstration | None, instruction: str, expert: Expert | None
    ) -> Any:
        """A session for a trial: what it is shown, what it is told."""

    def act(self, sessions: Sequence[Any], observations: Sequence[Observation]) -> list[ActionChunk]:
        """One cycle for every session."""

    def end(self, session: Any) -> None:
        """A trial is over."""


def chunk_of(actions: Float32[np.ndarray, "H D"], embodiment: Embodiment | None = None) -> ActionChunk:
    """A chunk of somebody who believes nothing."""
    nan = float("nan")
    embodiment = embodiment or bimanual(16.0)
    return ActionChunk(actions=actions, embodiment=embodiment, progress=nan, confidence=nan)


@dataclass(frozen=True)
class Still:
    """Twenty zeros, or the pose it is in: what scores nothing if the bench is sound."""

    zero: bool
    looks = False
    asks_expert = False

    @property
    def identity(self) -> str:
        """Its name."""
        return "zero" if self.zero else "hold"

    def begin(
        self, trial: Trial, video: Demonstration | None, instruction: str, expert: Expert | None
    ) -> None:
        """Nothing to remember."""

    def act(self, sessions: Sequence[Any], observations: Sequence[Observation]) -> list[ActionChunk]:
        """The same whatever it sees."""
        still = [np.zeros_like(seen.state) if self.zero else seen.state for seen in observations]
        return [chunk_of(np.tile(one, (CHUNK, 1))) for one in still]

    def end(self, session: None) -> None:
        """Nothing to forget."""


class Replay:
    """The expert's actions in the very scene, replayed in chunks; scores what the bench says of the expert."""

    identity = "expert"
    looks = False
    asks_expert = True

    def begin(
        self, trial: Trial, video: Demonstration | None, instruction: str, expert: Expert | None
    ) -> dict[str, Any]:
        """Where in the recording a trial is."""
        assert expert is not None
        return {"actions": expert.actions, "at": 0}

    def act(self, sessions: Sequence[Any], observations: Sequence[Observation]) -> list[ActionChunk]:
        """The next steps; past its end the last action is held."""
        out = []
        for session, seen in zip(sessions, observations, strict=True):
            session["at"] += seen.executed or 0
            steps = np.minimum(session["at"] + np.arange(CHUNK), len(session["actions"]) - 1)
            out.append(chunk_of(session["actions"][steps]))
        return out

    def end(self, session: Any) -> None:
        """Nothing to give back."""


def shown_video(trial: Trial, film: Filmed | None) -> Demonstration | None:
    """The video a trial shows, its frames in random order where that is asked for."""
    if trial.shown == "none" or film is None or not film.views:
        return None
    order = np.arange(film.num_frames)
    if trial.shown == "shuffled":
        np.random.default_rng([trial.video_seed, film.num_frames]).shuffle(order)
    return Demonstration(
        views={view: frames[order] for view, frames in film.views.items()}, fps=film.film.rate_hz
    )


def instruction_of(trial: Trial, film: Filmed) -> str:
    """What the trial tells the robot: the words of whoever made the video, or nothing."""
    return film.instruction if trial.told else ""


def scripted(name: str) -> Player:
    """A player that needs no model, by name."""
    players: dict[str, Player] = {"expert": Replay(), "zero": Still(zero=True), "hold": Still(zero=False)}
    if name not in players:
        raise BadInput(
            f"there is no player {name!r}; it is one of {', '.join(players)}, a policy folder or ws://…"
        )
    return players[name]

"""A policy in this process as a player of the bench."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hostbot.bench.suites import Trial
from hostbot.bench.worker import Expert
from hostbot.policy.policy import Policy
from hostbot.policy.skill import Skill
from hostbot.types import ActionChunk, BadInput, Demonstration, Observation, bimanual


class Model:
    """A policy in this process; skills are acquired once a video and shared by its trials."""

    looks = True
    asks_expert = False

    def __init__(self, policy: Policy, pace: float | None = None) -> None:
        ours, theirs = bimanual(policy.embodiment.rate_hz), policy.embodiment
        if theirs.parts != ours.parts or set(theirs.views) - set(ours.views):
            raise BadInput(
                f"policy {policy.spec.name!r} is for {theirs.name!r} with {', '.join(theirs.views)}; the bench's robot "
                f"is {ours.name!r} with {', '.join(ours.views)}"
            )
        self.policy, self._pace = policy, pace
        self._skills: dict[tuple[Any, ...], Skill] = {}
        changes = policy.changes()
        self._identity = f"{policy.spec.name} {policy.fingerprint()[:16]}" + (
            f", {changes}" if changes else ""
        )

    @property
    def identity(self) -> str:
        """Name and hash of the weights, and how it decides where that is not as usual."""
        return self._identity

    def begin(
        self, trial: Trial, video: Demonstration | None, instruction: str, expert: Expert | None
    ) -> Any:
        """Acquire the skill if it is new, and start a session seeded by the trial."""
        key = (trial.shown_task, trial.video_seed, trial.shown, trial.shown_by, trial.told)
        if key not in self._skills:
            self._skills[key] = self.policy.acquire(video, instruction, pace=self._pace)
        return self.policy.start(self._skills[key], seed=trial.seed)

    def act(self, sessions: Sequence[Any], observations: Sequence[Observation]) -> list[ActionChunk]:
        """One batched cycle."""
        return list(self.policy.step_batch(sessions, observations))

    def end(self, session: Any) -> None:
        """A session holds nothing that must be given back."""

"""Closed-loop rollouts: many scenes in many processes, one batched policy, the same table for the same seeds.

Trials run in waves that are fixed beforehand. All robots of a wave decide together, so what is in a batch never depends
on which process happened to be quick: results are the same whatever the number of workers, and after an interruption.
Several waves are under way at once; while one decides, the others' physics goes on.

Legend: D action width, N steps.
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from hostbot.bench.crew import Crew
from hostbot.bench.films import Film, Filmed
from hostbot.bench.leads import keep_executed, lead_of
from hostbot.bench.players import Player, instruction_of, shown_video
from hostbot.bench.results import (
    TRIALS,
    Finished,
    RolloutConfig,
    Row,
    claim,
    read_results,
    result_of,
)
from hostbot.bench.suites import Trial, trials, waves
from hostbot.bench.worker import Begin, Run, Seen, WorkerConfig
from hostbot.config import append_to
from hostbot.sim.env import EnvConfig
from hostbot.types import ActionChunk, BadInput, Observation

Keep = Callable[[Trial], bool]


class Rollout:
    """One evaluation under way; iterate over :meth:`run` for finished trials."""

    def __init__(
        self,
        player: Player,
        config: RolloutConfig,
        image_size: tuple[int, int] = (64, 64),
        films: Path | None = None,
        keep_actions: bool = False,
    ) -> None:
        self.player, self.config, self._keep_actions = player, config, keep_actions
        self._env = EnvConfig(size=config.size, seconds=config.seconds, rate_hz=config.rate_hz)
        self._image_size, self._folder = image_size, films
        self._pictures = player.looks
        self._films: dict[Film, Filmed] = {}
        self._asked: set[Film] = set()
        self.num_changed = 0
        """Trials run again after an interruption that came out otherwise; the first result is kept."""

    def run(self, folder: Path, keep: Keep | None = None) -> Iterator[Finished]:
        """Run what the folder does not hold yet and append to it; trials that ``keep`` wants bring their pictures."""
        self._pictures = self.player.looks or keep is not None
        claim(folder, self.config, self.player.identity)
        done = read_results(folder)
        lost = [key for key in done if self._keep_actions and not lead_of(folder, *key).path.exists()]
        if lost:
            raise BadInput(f"{folder} has trials whose actions were not kept: give another folder")
        # A wave with anything missing runs again as a whole: a batch is then what it was, and so are its results.
        todo = deque(
            w for w in waves(trials(self.config.suite), self.config.wave) if any(t.key not in done for t in w)
        )
        if not todo:
            return
        count = min(self.config.in_flight, len(todo))
        slots = count * math.ceil(self.config.wave / self.config.workers)
        config = WorkerConfig(
            slots=slots,
            env=self._env,
            image_size=self._image_size,
            pictures=self._pictures,
            films=self._folder,
        )
        with Crew(self.config.workers, config) as crew, append_to(folder / TRIALS) as file:
            for finished in self._run(crew, todo, count, keep):
                if finished.result.key not in done:
                    if self._keep_actions:
                        executed = np.concatenate(finished.row.executed)[: finished.result.frames]
                        keep_executed(folder, *finished.result.key, executed)
                    file.write(json.dumps(asdict(finished.result)) + "\n")
                    file.flush()
                    yield finished
                else:
                    self.num_changed += finished.result != done[finished.result.key]
            os.fsync(file.fileno())

    def _run(self, crew: Crew, todo: deque[list[Trial]], count: int, keep: Keep | None) -> Iterator[Finished]:
        under_way: list[list[Row]] = []
        free = deque(range(count))
        lanes: dict[int, int] = {}
        rows: dict[tuple[int, int], Row] = {}
        while todo or under_way:
            while todo and free:
                lane = free.popleft()
                wave = self._seat(todo.popleft(), lane, crew)
                rows |= {(row.worker, row.slot): row for row in wave}
                lanes[id(wave)] = lane
                under_way.append(wave)
            self._set_up(under_way, crew, keep)
            for wave in [w for w in under_way if all(row.ready for row in w)]:
                active = [row for row in wave if row.result is None]
                if active:
                    self._decide(active, crew)
                else:
                    under_way.remove(wave)
                    free.append(lanes.pop(id(wave)))
            # Everybody still under way has been told what to do, so that somebody will answer.
            for worker, answer in crew.answers() if under_way else ():
                if isinstance(answer, Filmed):
                    self._films[answer.film] = answer
                else:
                    finished = self._hear(rows[worker, answer.slot], answer)
                    if finished is not None:
                        yield finished

    # A wave -------------------------------------------------------------------------------------------

    def _seat(self, listed: Sequence[Trial], lane: int, crew: Crew) -> list[Row]:
        """Give every trial of a wave a worker and a slot, and have its video filmed."""
        per_worker = math.ceil(self.config.wave / len(crew))
        wave = []
        for number, trial in enumerate(listed):
            worker, seat = number % len(crew), number // len(crew)
            wave.append(Row(trial=trial, worker=worker, slot=lane * per_worker + seat))
            film = self._film_of(trial)
            if film not in self._asked:
                self._asked.add(film)
                crew.order(worker, film)
        return wave

    def _film_of(self, trial: Trial) -> Film:
        return Film(
            task=trial.shown_task,
            seed=trial.video_seed,
            body=trial.shown_by,
            rate_hz=self._env.rate_hz,
            size=self._env.size,
            image_size=self._image_size if self._pictures else None,
        )

    def _set_up(self, under_way: Sequence[Sequence[Row]], crew: Crew, keep: Keep | None) -> None:
        """Begin the trials whose video is there."""
        for row in (row for wave in under_way for row in wave if row.film is None):
            film = self._films.get(self._film_of(row.trial))
            if film is not None:
                row.film = film
                expert = self.player.asks_expert or self.config.driver == "expert" or bool(self.config.after)
                crew.order(
                    row.worker,
                    Begin(
                        slot=row.slot,
                        trial=row.trial,
                        expert=expert,
                        keep=keep is not None and keep(row.trial),
                    ),
                )

    def _hear(self, row: Row, seen: Seen) -> Finished | None:
        """Take an answer; the first one of a trial also brings the expert's actions."""
        if seen.expert is not None:
            row.expert = seen.expert
        if seen.outcome is None:
            row.seen = seen
            return None
        row.result = result_of(row, seen.outcome, self.config.driver == "expert")
        self.player.end(row.session[0])
        return Finished(result=row.result, row=row, pictures=seen.outcome.pictures)

    def _decide(self, active: Sequence[Row], crew: Crew) -> None:
        """One cycle of a wave: everybody looks, all decide in one batch, everybody acts."""
        observations = []
        for row in active:
            if row.session is None:
                assert row.film is not None
                video = shown_video(row.trial, row.film)
                told = instruction_of(row.trial, row.film)
                row.session = (self.player.begin(row.trial, video, told, row.expert),)
            observations.append(self._observation(row, crew))
        chunks = self.player.act([row.session[0] for row in active], observations)
        for row, chunk in zip(active, chunks, strict=True):
            assert row.seen is not None
            row.chunks.append((row.seen.frame, chunk))
            actions = self._next_actions(row, chunk)
            row.executed.append(actions)
            row.seen = None
            crew.order(row.worker, Run(slot=row.slot, actions=actions))

    def _observation(self, row: Row, crew: Crew) -> Observation:
        assert row.seen is not None
        views: dict[str, Any] = {}
        if self.player.looks:
            pictures = crew.pictures[row.worker][row.slot]
            views = dict(zip(self._env.views, pictures, strict=True))
        executed = row.seen.frame - row.chunks[-1][0] if row.chunks else None
        return Observation(views=views, state=row.seen.state, executed=executed)

    def _handed_over(self, row: Row) -> int:
        """The frame from which the player acts, where the expert acts first."""
        assert row.expert is not None
        frames = {event.name: event.frame for event in reversed(row.expert.events)}
        if self.config.after not in frames:
            raise BadInput(
                f"the expert of {row.trial.task} notes no event {self.config.after!r}; it notes "
                f"{', '.join(sorted(frames, key=lambda name: frames[name]))}"
            )
        return frames[self.config.after]

    def _next_actions(self, row: Row, chunk: ActionChunk) -> Float32[np.ndarray, "N D"]:
        """What is carried out until the robot looks again.

        With a lead of d it looks d steps before a chunk's steps are over. These are then carried out while it thinks,
        and the new chunk is entered d steps in, since it was decided for the moment of looking.
        """
        execution, lead = self.config.execution, self.config.execution.lead
        if 2 * lead > execution.steps(len(chunk)):
            raise BadInput(
                f"a lead of {lead} is more than half of the {execution.steps(len(chunk))} steps executed of a chunk"
            )
        assert row.seen is not None
        execute = execution.steps_of(chunk, row.seen.state)
        if self.config.driver == "expert":
            assert row.expert is not None
            return row.expert.actions[
                np.minimum(row.seen.frame + np.arange(execute), len(row.expert.actions) - 1)
            ]
        if self.config.after and row.seen.frame < (until := self._handed_over(row)):
            assert row.expert is not None
            return row.expert.actions[row.seen.frame : min(row.seen.frame + execute, until)]
        before = chunk.actions[:lead] if row.pending is None else row.pending
        row.pending = chunk.actions[execute - lead : execute]
        return np.concatenate([before, chunk.actions[lead : execute - lead]])

"""Is the bench sound? Trials of every task by those who should succeed and those who should not.

The robot's expert and the human demonstrator must succeed; doing nothing, acting at random and the
expert of another task of the same scene must fail. Trials are appended to a file one a line, so that an
interrupted run goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from hostbot.config import append_to
from hostbot.sim.agents import random_agent, wandering_agent, zero_agent
from hostbot.sim.catalogue import siblings, task
from hostbot.sim.demonstrator import demonstrate
from hostbot.sim.env import EnvConfig, SimEnv, seeded
from hostbot.types import BadInput

AGENTS = ("expert", "human", "zero", "random", "wandering", "other")
LIMITS = {
    "expert": (0.95, None),
    "human": (0.95, None),
    "zero": (None, 0.01),
    "random": (None, 0.01),
    "wandering": (None, None),
    "other": (None, 0.03),
}
"""For each agent the least and the most it may succeed overall."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run of one task."""

    task: str
    family: str
    agent: str
    seed: int
    success: bool
    frames: int
    note: str = ""
    """For ``other``: whose expert it was."""


def run_trial(name: str, agent: str, seed: int) -> Trial:
    """Run one trial without pictures."""
    if agent not in AGENTS:
        raise BadInput(f"there is no agent {agent!r}; choose from {', '.join(AGENTS)}")
    one = task(name)
    if agent == "human":
        _, events, success = demonstrate(one, seed, pictures=False)
        frames = events[-1].frame if events else 0
        return Trial(task=name, family=one.family, agent=agent, seed=seed, success=success, frames=frames)
    env = SimEnv(one, EnvConfig(views=()))
    env.reset(seed=seed)
    limit = int(env.config.seconds * env.config.rate_hz)
    note = ""
    if agent in ("expert", "other"):
        script = one
        if agent == "other":
            others = siblings(one)
            script = others[int(seeded(one, seed, "other").integers(len(others)))]
            note = script.name
        actor = env.expert(script)
        idle = 0
        while env.frame < limit and idle <= env.config.rate_hz and not env.advance(actor.act()):
            idle += actor.finished
    else:
        chance = random_agent if agent == "random" else wandering_agent
        act = zero_agent(env) if agent == "zero" else chance(env, seed)
        while env.frame < limit and not env.advance(act()):
            pass
    return Trial(
        task=name, family=one.family, agent=agent, seed=seed, success=env.success, frames=env.frame, note=note
    )


def _batch(jobs: Sequence[tuple[str, str, int]]) -> list[Trial]:
    return [run_trial(*job) for job in jobs]


def read_trials(path: Path) -> list[Trial]:
    """Trials already in a file; a line cut short by an interruption is dropped."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(Trial(**json.loads(line)))
        except (json.JSONDecodeError, TypeError):
            continue
    return found


def run_trials(
    names: Sequence[str], agents: Sequence[str], seeds: Sequence[int], out: Path, workers: int
) -> Iterator[Trial]:
    """Run what the file does not hold yet, in parallel, and append to it as results come in."""
    done = {(t.task, t.agent, t.seed) for t in read_trials(out)}
    jobs = [
        [job for seed in seeds if (job := (name, agent, seed)) not in done]
        for name in names
        for agent in agents
    ]
    jobs = [batch for batch in jobs if batch]
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        append_to(out) as file,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
    ):
        waiting = [pool.submit(_batch, batch) for batch in jobs]
        try:
            for future in as_completed(waiting):
                for trial in future.result():
                    file.write(json.dumps(asdict(trial)) + "\n")
                    yield trial
                file.flush()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a set of trials says."""

    rates: dict[str, float]
    """Success of each agent over all trials."""
    worst: dict[str, float]
    """The expert's success on each task where it is below 80 %."""
    complaints: tuple[str, ...]


def judge(trials: Iterable[Trial]) -> Verdict:
    """Compare success rates with the bench's promises."""
    listed = list(trials)
    rates = {a: _rate(t for t in listed if t.agent == a) for a in AGENTS if any(t.agent == a for t in listed)}
    complaints = []
    for agent, rate in rates.items():
        low, high = LIMITS[agent]
        if low is not None and rate < low:
            complaints.append(f"{agent} succeeds in {rate:.1%} of trials; at least {low:.0%} are asked for")
        if high is not None and rate > high:
            complaints.append(f"{agent} succeeds in {rate:.1%} of trials; at most {high:.0%} are allowed")
    by_task = {
        name: _rate(t for t in listed if t.agent == "expert" and t.task == name)
        for name in sorted({t.task for t in listed if t.agent == "expert"})
    }
    worst = {name: rate for name, rate in by_task.items() if rate < 0.8}
    complaints += [
        f"the expert succeeds in {rate:.0%} of {name}; at least 80 % are asked for"
        for name, rate in worst.items()
    ]
    return Verdict(rates=rates, worst=worst, complaints=tuple(complaints))


def _rate(trials: Iterable[Trial]) -> float:
    values = [t.success for t in trials]
    return float(np.mean(values)) if values else float("nan")


def table(trials: Iterable[Trial]) -> str:
    """Success by family and agent, as Markdown."""
    listed = list(trials)
    agents = [a for a in AGENTS if any(t.agent == a for t in listed)]
    families = list(dict.fromkeys(t.family for t in sorted(listed, key=lambda t: t.family)))
    head = "| family | tasks | " + " | ".join(agents) + " | expert frames | human frames |"
    lines = [head, "|" + " --- |" * (len(agents) + 4)]
    for family in [*families, "all"]:
        rows = [t for t in listed if family in ("all", t.family)]
        cells = [f"{_rate(t for t in rows if t.agent == a):.1%}" for a in agents]
        spans = [[t.frames for t in rows if t.agent == a and t.success] for a in ("expert", "human")]
        means = [f"{np.mean(s):.0f}" if s else "" for s in spans]
        count = len({t.task for t in rows})
        lines.append(f"| {family} | {count} | " + " | ".join(cells + means) + " |")
    return "\n".join(lines) + "\n"


def summary(trials: Iterable[Trial]) -> dict[str, dict[str, str]]:
    """Successes out of trials for every task and agent."""
    out: dict[str, dict[str, str]] = {}
    counts: dict[tuple[str, str], list[bool]] = {}
    for trial in trials:
        counts.setdefault((trial.task, trial.agent), []).append(trial.success)
    for (name, agent), values in sorted(counts.items()):
        out.setdefault(name, {})[agent] = f"{sum(values)}/{len(values)}"
    return out

"""How well two videos of a task can be aligned at all: by the shipped weights, by hands known exactly, by both.

    python benchmarks/align_limits.py              # three minutes on two cores

Both bodies do every other training task once. Their hands' true heights, speeds and openings stand in for an observer
who sees those perfectly, or with errors of millimetres; the same smooth DTW matches them. Nothing is learned here, and
no novel task is looked at.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import measure
import numpy as np
import torch
from align_novel import truths

from hostbot.align.aligner import Aligner, load_aligner
from hostbot.align.cost import MatchConfig
from hostbot.align.evaluate import clock_event_error, event_error
from hostbot.align.maps import correspondence
from hostbot.align.posture import motion
from hostbot.sim.catalogue import split, task
from hostbot.sim.demonstrator import VIEW, DemonstratorConfig, Recording
from hostbot.sim.env import EnvConfig
from hostbot.sim.episode import robot_episode
from hostbot.types import EpisodeInfo, Event, Frames

SEED = 630_000
WEIGHTS = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""Of the hands, beside an embedding on the unit sphere or alone; every figure names the one it is best with."""


@dataclass(frozen=True, kw_only=True)
class Take:
    """One execution: what was seen, where the hands were, what happened when."""

    views: dict[str, Frames]
    hands: np.ndarray
    rate_hz: float
    happened: tuple[Event, ...]

    def events(self, index: int) -> tuple[Event, ...]:
        return self.happened

    def episode(self, index: int) -> EpisodeInfo:
        return EpisodeInfo(index=0, length=len(self.hands), instruction="", tasks=())


def robot(name: str, seed: int, rate_hz: float, views: Sequence[str]) -> Take | None:
    made = robot_episode(task(name), seed, EnvConfig(views=tuple(views), rate_hz=rate_hz))
    path = made.trajectory
    if not made.success:
        return None
    return Take(views=dict(path.views), hands=path.state, rate_hz=rate_hz, happened=path.events)


def human(name: str, seed: int, rate_hz: float, pictures: bool) -> Take | None:
    take = Recording(task(name), seed, DemonstratorConfig(rate_hz=rate_hz))
    frames, hands, going = [], [], True
    while going:
        frames += [take.picture()] if pictures else []
        hands.append(take.world.body.vector(take.world.data))
        going = take.advance()
    take.close()
    if not take.judge.success:
        return None
    events = tuple(e for e in take.actor.events if e.frame < len(hands))
    views = {VIEW: np.stack(frames)} if pictures else {}
    return Take(views=views, hands=np.stack(hands), rate_hz=rate_hz, happened=events)


def pairs(names: Sequence[str], rate_hz: float, pictures: bool) -> list[tuple[Take, Take]]:
    """Execution and demonstration of each task that both bodies did."""
    found = []
    for number, name in enumerate(names):
        ours = robot(name, SEED, rate_hz, EnvConfig().views if pictures else ())
        theirs = human(name, SEED, rate_hz, pictures)
        found += [(ours, theirs)] if ours and theirs else []
        print(f"{rate_hz:.0f} Hz: {number + 1} of {len(names)} tasks", end="\r", flush=True)
    print()
    return found


Points = Callable[[Take], np.ndarray]


def error(taken: Sequence[tuple[Take, Take]], points: Points, match: MatchConfig) -> dict[str, float]:
    """Mean absolute progress error at the events of both bodies, as ``align_novel`` counts it."""
    errors = []
    for ours, theirs in taken:
        there, back = truths(ours, 0, theirs, 0)  # type: ignore[arg-type]
        found = correspondence(torch.from_numpy(points(theirs)), torch.from_numpy(points(ours)), match)
        errors.append([event_error(found.robot_to_demo, there), event_error(found.demo_to_robot, back)])
    values = np.nanmean(errors, 1)
    return {"mean": round(float(np.nanmean(values)), 4), "median": round(float(np.nanmedian(values)), 4)}


def best(
    taken: Sequence[tuple[Take, Take]], metres: float, match: MatchConfig, seen: Points | None = None
) -> dict[str, float]:
    """With hands whose places and openings are so far off in every frame, alone or beside an embedding."""
    found = []
    for weight in WEIGHTS:
        hands = hands_off_by(metres, weight)
        found.append({"weight": weight} | error(taken, hands if seen is None else beside(seen, hands), match))
    return min(found, key=lambda one: one["mean"])


def hands_off_by(metres: float, weight: float) -> Points:
    rng = np.random.default_rng(0)
    return lambda take: weight * motion(take.hands + rng.normal(0, metres, take.hands.shape), take.rate_hz)


def seen_by(aligner: Aligner) -> Points:
    known: dict[int, np.ndarray] = {}

    def points(take: Take) -> np.ndarray:
        if id(take) not in known:
            known[id(take)] = aligner.embed(take.views)
        return known[id(take)]

    return points


def beside(one: Points, other: Points) -> Points:
    return lambda take: np.concatenate([one(take), other(take)], 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=2, help="of the training tasks, in alphabetical order")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    aligner = load_aligner()
    match, names = aligner.config.match, sorted(split().train)[:: given.every]
    taken = pairs(names, 16.0, pictures=True)
    seen = seen_by(aligner)
    figures = {"shipped weights": error(taken, seen, match)}
    for millimetres in (0, 1, 2, 4):
        told = f"hands known to {millimetres} mm" if millimetres else "hands known exactly"
        figures[told] = best(taken, millimetres / 1000, match)
        figures[f"shipped weights and {told}"] = best(taken, millimetres / 1000, match, seen)
    clock = [clock_event_error(truths(ours, 0, theirs, 0)[0]) for ours, theirs in taken]  # type: ignore[arg-type]
    frames = np.array([[len(ours.hands), len(theirs.hands)] for ours, theirs in taken]).mean(0)
    faster = pairs(names, 32.0, pictures=False)
    found = {
        "seed": SEED,
        "pairs": len(taken),
        "frames a robot, a human video": frames.round(1).tolist(),
        "clock time": round(float(np.nanmean(clock)), 4),
        "at 16 Hz": figures,
        "at 32 Hz": {"hands known exactly": best(faster, 0.0, match)},
        "hardware": measure.hardware(torch.device("cpu")),
        "commit": measure.commit(),
    }
    measure.save(given.out, "align_limits-cpu", found)


if __name__ == "__main__":
    main()

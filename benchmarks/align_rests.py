"""Which rests and false starts the alignment weights that ship bear: the settings ``rest`` and ``begin`` of an aligner.

    python benchmarks/align_rests.py OUT           # three minutes on two cores

OUT is the folder of a finished ``align_hands.py``, with its recordings. Validation pairs of training tasks are aligned
as they are, with the demonstration standing still for one to six times its length somewhere, and with a part of it
shown and undone before it begins, as by somebody who tries again. No novel task is looked at.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import measure
import numpy as np
import torch
from align_hands import BEGIN, BODIES, REST, Kept
from align_postures import matched
from align_truth import truths

from hostbot.align.aligner import Aligner, load_aligner
from hostbot.align.evaluate import Truth, event_error
from hostbot.align.videos import Embedded, align_whole, embed_episode

RESTS, BEGINS = (0.0, 0.02, 0.05, 0.1, 0.15), (None, 12.0, 8.0, 6.0, 5.0, 4.0)


@dataclass(frozen=True)
class Pair:
    """A demonstration and an execution, embedded, and what is known of the two."""

    demo: np.ndarray
    robot: np.ndarray
    there: Truth
    back: Truth


Change = Callable[[Pair, np.random.Generator], Pair]


def as_it_is(pair: Pair, rng: np.random.Generator) -> Pair:
    return pair


def with_rest(pair: Pair, rng: np.random.Generator) -> Pair:
    """Standing still somewhere."""
    num = len(pair.demo)
    at, long = int(rng.uniform(0.2, 0.9) * num), int(rng.uniform(1, 6) * num)
    shown = np.concatenate([np.arange(at), np.full(long, at), np.arange(at, num)])
    events = pair.back.robot_events
    return _shown(pair, shown, np.where(events > at, events + long, events))


def with_false_start(pair: Pair, rng: np.random.Generator) -> Pair:
    """A part of it, and twice as fast back again, before it begins."""
    num = len(pair.demo)
    return _begun_before(pair, _tried(rng.uniform(0.3, 0.7) * num, 2))


def with_tries(pair: Pair, rng: np.random.Generator) -> Pair:
    """One or two tries that get far or all the way, and three times as fast back again, before it begins."""
    num = len(pair.demo)
    tries = int(rng.integers(1, 3))
    return _begun_before(pair, np.concatenate([_tried(rng.uniform(0.6, 1.0) * num, 3) for _ in range(tries)]))


def _tried(upto: float, faster: int) -> np.ndarray:
    part = np.arange(int(upto))
    return np.concatenate([part, part[::-faster]])


def _begun_before(pair: Pair, before: np.ndarray) -> Pair:
    """Some of its frames shown before it begins; they are no progress."""
    num = len(pair.demo)
    moved = _shown(pair, np.concatenate([before, np.arange(num)]), pair.back.robot_events + len(before))
    outside = np.arange(len(moved.demo)) < len(before)
    there = replace(moved.there, demo_progress=np.where(outside, 0.0, moved.there.demo_progress))
    back = replace(moved.back, robot_progress=np.where(outside, 0.0, moved.back.robot_progress))
    return replace(moved, there=there, back=back)


def _shown(pair: Pair, shown: np.ndarray, events: np.ndarray) -> Pair:
    """Other frames of the demonstration in another order."""
    there = replace(pair.there, demo_progress=pair.there.demo_progress[shown])
    back = replace(pair.back, robot_progress=pair.back.robot_progress[shown], robot_events=events)
    return replace(pair, demo=pair.demo[shown], there=there, back=back)


def error(aligner: Aligner, pairs: Sequence[Pair], change: Change) -> float:
    """Mean absolute progress error at the events of both."""
    rng, errors = np.random.default_rng(0), []
    for pair in pairs:
        changed = change(pair, rng)
        demo, robot = (
            Embedded(points=points, steps=np.arange(len(points)), times_s=np.arange(len(points)) / 16)
            for points in (changed.demo, changed.robot)
        )
        found = align_whole(aligner, demo, robot).found
        errors.append(
            (
                event_error(found.robot_to_demo, changed.there),
                event_error(found.demo_to_robot, changed.back),
            )
        )
    return round(float(np.nanmean(errors)), 4)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="OUT of align_hands.py")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    aligner = load_aligner()
    takes = [take for take in Kept(given.folder / "work").takes() if take.part == "valid"]
    pairs = []
    for robot, r, human, h in matched(takes, 1):
        points = embed_episode(aligner, human, h).points, embed_episode(aligner, robot, r).points
        pairs.append(Pair(*points, *truths(robot, r, human, h)))
        print(f"{len(pairs)} pairs", end="\r", flush=True)
    changes = {
        "as they are": as_it_is, "a rest": with_rest, "a false start": with_false_start,
        "one or two whole tries": with_tries,
    }  # fmt: skip
    settings = [(rest, None) for rest in RESTS] + [(REST, begin) for begin in BEGINS[1:]]
    figures = []
    for rest, begin in settings:
        tried = Aligner(
            aligner.encoder, replace(aligner.config, rest=rest, begin=begin), company=aligner.company
        )
        found = {name: error(tried, pairs, change) for name, change in changes.items()}
        figures.append({"rest": rest, "begin": begin} | found)
        print(figures[-1], flush=True)
    result = {
        "pairs": len(pairs),
        "bodies": list(BODIES),
        "progress error at the events of both": figures,
        "ships": {"rest": REST, "begin": BEGIN},
        "weights": aligner.identity,
        "hardware": measure.hardware(torch.device("cpu")),
        "commit": measure.commit(),
    }
    measure.save(given.out, "align_rests-cpu", result)


if __name__ == "__main__":
    main()

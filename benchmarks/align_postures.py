"""Search how much each number of a posture counts when frames are compared, on training tasks alone.

    python benchmarks/align_postures.py OUT --minutes 8

OUT is the folder of a finished ``align_hands.py``, with its recordings. Pairs of training tasks have postures as the
renderer knows them, off by as much as the reader is in validation pairs; those have them as the reader tells them.
Searched are the weights, from where on far is far, and the two temperatures of the matching; what ships is rounded, and
leaves the temperatures alone. Half of the families can be held out to see whether what is found carries over.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import measure
import numpy as np
import torch
from align_hands import Kept
from align_train import BODIES, Take, Takes, base
from align_truth import truths

from hostbot.align.aligner import load_aligner
from hostbot.align.cost import MatchConfig
from hostbot.align.encoders import on_hand, whole_clips
from hostbot.align.evaluate import Truth, event_error
from hostbot.align.hands import HandReader
from hostbot.align.maps import correspondence
from hostbot.align.posture import POSTURE, WEIGHTS, WIDEST, on_circles
from hostbot.align.small import SmallFrameEncoder
from hostbot.sim.catalogue import task

BEFORE = (2.0, 1.0, 0.5, 2.0, 2.0, 1.0, 1.0, 0.5, 0.5, 1.0, 2.0)
"""Where the search begins: weights, the temperatures of frames and of the path, how wide."""
STEP, LEAST, CHANGED = 0.4, 0.12, 0.35
"""Deviation of a change of a logarithm, at first and at last; share of the numbers that one try changes."""
TOLD = 0.35
"""How much pairs with postures as they are told count."""


@dataclass(frozen=True)
class Pair:
    """Postures of a demonstration and an execution, and what is known of the two."""

    family: str
    demo: torch.Tensor
    robot: torch.Tensor
    there: Truth
    back: Truth


def told(reader: HandReader, take: Take) -> np.ndarray:
    clips = whole_clips(
        torch.from_numpy(np.stack(list(take.views.values()), 1))[None],
        riding=torch.tensor([[on_hand(view) for view in take.views]]),
    )
    with torch.no_grad():
        found: np.ndarray = reader(clips, clips.present[None], 128).posture[0, 0].numpy()
    return found


def matched(takes: Sequence[Take], per_task: int) -> list[tuple[Takes, int, Takes, int]]:
    """Executions and demonstrations of the same bench task; people seen by two cameras count once."""
    sources = {body: Takes(body, [t for t in takes if t.body == body]) for body in BODIES}
    places: dict[str, dict[str, list[int]]] = {}
    for body, source in sources.items():
        for k, take in enumerate(source.takes):
            places.setdefault(take.task, {b: [] for b in BODIES})[body].append(k)
    found = []
    for of in places.values():
        people = of["human"][::2] if len(of["human"]) > 1 else of["human"]
        for r, h in list(zip(of["robot"], people, strict=False))[:per_task]:
            found.append((sources["robot"], r, sources["human"], h))
    return found


def errors(pairs: Sequence[Pair], values: np.ndarray) -> tuple[float, float]:
    """At the robots' events, and at the people's."""
    *weights, frames, path, widest = np.exp(values).tolist()
    match = MatchConfig(gamma_f=frames, gamma=path)
    found = []
    for pair in pairs:
        maps = correspondence(*(on_circles(x, weights, widest) for x in (pair.demo, pair.robot)), match)
        found.append(
            (event_error(maps.robot_to_demo, pair.there), event_error(maps.demo_to_robot, pair.back))
        )
    robot, human = np.nanmean(found, 0)
    return float(robot), float(human)


def score(known: Sequence[Pair], seen: Sequence[Pair], values: np.ndarray) -> float:
    """What is made small: robots' events count twice, they have fewer frames."""
    (a, b), (c, d) = errors(known, values), errors(seen, values)
    return (1 - TOLD) * (2 * a + b) / 3 + TOLD * (2 * c + d) / 3


def searched(known: Sequence[Pair], seen: Sequence[Pair], seconds: float, seed: int) -> np.ndarray:
    """Random changes, kept where they help."""
    rng, best = np.random.default_rng(seed), np.log(BEFORE)
    lowest, step, until = score(known, seen, best), STEP, time.time() + seconds
    while time.time() < until:
        tried = best + step * rng.standard_normal(len(best)) * (rng.random(len(best)) < CHANGED)
        tried[-1] = min(tried[-1], np.log(3.1))
        found = score(known, seen, tried)
        if found < lowest:
            best, lowest, step = tried, found, min(0.6, 1.3 * step)
            print(round(found, 5), np.round(np.exp(tried), 3).tolist(), flush=True)
        else:
            step = max(LEAST, 0.97 * step)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="OUT of align_hands.py")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--held-out", action="store_true", help="search on every other family only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    takes = Kept(given.folder / "work").takes()
    encoder = load_aligner(given.folder).encoder
    assert isinstance(encoder, SmallFrameEncoder)
    assert encoder.hands is not None
    rng = np.random.default_rng(given.seed)

    seen, off = [], {body: [] for body in BODIES}  # type: ignore[var-annotated]
    for robot, r, human, h in matched([t for t in takes if t.part == "valid"], 1):
        one, other = robot.takes[r], human.takes[h]
        postures = [told(encoder.hands, take) for take in (other, one)]
        seen.append(
            Pair(task(one.task).family, *map(torch.from_numpy, postures), *truths(robot, r, human, h))
        )
        for take, posture in zip((other, one), postures, strict=True):
            off[take.body].append(np.square(posture - take.annotations.posture).mean(0))
    noise = {body: np.sqrt(np.mean(found, 0)) for body, found in off.items()}
    known = []
    own = [t for t in takes if t.part == "train" and t.task == base(t.task) and t.task != "drill"]
    for robot, r, human, h in matched(own, 2):
        postures = []
        for take in (human.takes[h], robot.takes[r]):
            posture = take.annotations.posture
            apart = rng.standard_normal((len(posture) + 2, len(POSTURE)))
            near = (apart[:-2] + apart[1:-1] + apart[2:]) / np.sqrt(3)  # neighbours err alike
            postures.append((posture + noise[take.body] * near).astype(np.float32))
        family = task(robot.takes[r].task).family
        known.append(Pair(family, *map(torch.from_numpy, postures), *truths(robot, r, human, h)))

    families = sorted({pair.family for pair in known})
    learned = set(families[::2] if given.held_out else families)
    parts = {"searched on": learned, "held out": set(families) - learned}
    of = {name: [[p for p in ps if p.family in part] for ps in (known, seen)] for name, part in parts.items()}
    best = searched(*of["searched on"], 60 * given.minutes, given.seed)
    rounded = np.log([*WEIGHTS, *BEFORE[len(POSTURE) : -1], WIDEST])
    result = {
        "numbers": [*POSTURE, "temperature of frames", "temperature of the path", "widest"],
        "found": np.round(np.exp(best), 3).tolist(),
        "ships": np.exp(rounded).round(3).tolist(),
        "noise": {body: np.round(found, 3).tolist() for body, found in noise.items()},
        "errors at robots' and at people's events": {
            name: {
                f"{kind}, {which}": np.round(errors(pairs, values), 4).tolist()
                for kind, pairs in zip(("known and noise", "told"), both, strict=True)
                for which, values in (("before", np.log(BEFORE)), ("found", best), ("ships", rounded))
            }
            for name, both in of.items()
            if both[0]
        },
        "pairs": {name: list(map(len, both)) for name, both in of.items()},
        "settings": {k: str(v) for k, v in vars(given).items() if k not in ("folder", "out")},
        "hardware": measure.hardware(torch.device("cpu")),
        "commit": measure.commit(),
    }
    measure.save(given.out, "align_postures-cpu" + ("-held-out" if given.held_out else ""), result)


if __name__ == "__main__":
    main()

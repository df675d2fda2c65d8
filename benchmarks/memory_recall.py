"""Are recurring tasks found and novel ones recognised, over the threshold δ? 57 stored skills, 1,140 queries a kind.

Stored: the 50 novel tasks and the 7 mastered ones, each by a person's video and its first phrasing. Recurring queries:
5 other phrasings (two of the task's own, three of phrasings/measured.json, which nothing was chosen with) × 4 scenes
that the robot sees. Novel queries: as many of the other 222 training tasks, in their own scenes, all phrasings; most
families have both kinds. Weights were chosen, ω and δ kept, by ``--development``: training tasks alone, six memories.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from measure import commit, hardware, save

from hostbot.align.aligner import load_aligner
from hostbot.bench.films import Film, make
from hostbot.memory import Match, Pair, Retrieval, TextOnly, open_memory
from hostbot.memory.phrases import PhraseVectors
from hostbot.memory.scenes import AlignedScenes
from hostbot.memory.words import WordVectors
from hostbot.sim.catalogue import split, task
from hostbot.sim.env import SimEnv
from hostbot.types import Image
from hostbot.video import VideoWriter

HERE = Path(__file__).parent
SCENES, FIRST_SCENE, VIDEO_SEED = 4, 3_000, 8_000
DELTAS = np.round(np.arange(0, 1.0001, 0.005), 3)


@dataclass(frozen=True)
class Query:
    task: str
    words: str
    seed: int


@dataclass(frozen=True)
class Answered:
    query: Query
    best: str
    score: float
    own: float
    """Of the query's own task, where it is stored."""
    told_apart: bool
    """At the default threshold and margin: one match, and no other as near."""


def phrasings(name: str, ways: dict[str, list[str]]) -> list[str]:
    """The task's own second and third phrasing and three more."""
    family, *parts = name.split("-")
    key = f"{family}-{parts[1]}" if family in ("place_beside", "turn_knob") else family
    if family == "place_beside":
        parts = [parts[0], parts[2]]
    slots = [part.replace("_", " ") for part in parts]
    return [*task(name).instructions[1:], *(way.format(*slots) for way in ways[key])]


class Pictures:
    """What the robot sees before it begins, drawn once."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[str, int], Image] = {}

    def __call__(self, name: str, seed: int) -> Image:
        if (name, seed) not in self._drawn:
            env = SimEnv(task(name))
            env.reset(seed=seed)
            self._drawn[name, seed] = env.pictures()["third_person"]
            env.close()
        return self._drawn[name, seed]


def remember(memory, names: list[str], videos: Path) -> None:
    """A person's video of every task, filmed once."""
    for name in names:
        path = videos / f"{name}.mp4"
        if not path.exists():
            film = make(Film(task=name, seed=VIDEO_SEED, image_size=(96, 96)))
            with VideoWriter(path, (96, 96), film.film.rate_hz) as writer:
                for frame in film.views["third_person"]:
                    writer.write(frame)
        memory.add(path, task(name).instructions[0], name=name.lower())


class Once:
    """An embedder that looks at no picture twice."""

    def __init__(self, embedder) -> None:
        self.inner, self.identity = embedder, embedder.identity
        self.embed_text, self._seen = embedder.embed_text, {}

    def embed_scene(self, images: list[Image]) -> np.ndarray:
        for image in images:
            if image.tobytes() not in self._seen:
                self._seen[image.tobytes()] = self.inner.embed_scene([image])[0]
        return np.stack([self._seen[image.tobytes()] for image in images])


def ask(memory, queries: list[Query], scene: Pictures | None, omega: float) -> list[Answered]:
    found = []
    for query in queries:
        seen = None if scene is None else scene(query.task, query.seed)
        near = memory.query(query.words, seen, Retrieval(omega=omega, delta=-1, margin=0))
        own = [c.score for c in (near.best, *near.others) if c.entry.name == query.task.lower()]
        sure = isinstance(memory.query(query.words, seen, Retrieval(omega=omega)), Match)
        found.append(Answered(query, near.best.entry.name, near.best.score, max(own, default=-1.0), sure))
    return found


def recurring(stored: list[str], ways) -> list[Query]:
    scenes = range(FIRST_SCENE, FIRST_SCENE + SCENES)
    return [Query(n, words, seed) for n in stored for words in phrasings(n, ways) for seed in scenes]


def novel(others: list[str], ways, count: int) -> list[Query]:
    """Every phrasing of every task in one scene, then again in the next, until there are as many."""
    listed = [
        Query(n, words, FIRST_SCENE + scene)
        for scene in range(SCENES)
        for n in others
        for words in phrasings(n, ways)
    ]
    return listed[:count]


def curve(again: list[Answered], new: list[Answered]) -> dict[str, list[float]]:
    right = np.array([a.best == a.query.task.lower() for a in again])
    score, other = np.array([a.score for a in again]), np.array([a.score for a in new])
    return {
        "delta": DELTAS.tolist(),
        "recall": [round(float((right & (score >= d)).mean()), 4) for d in DELTAS],
        "novelty": [round(float((other < d).mean()), 4) for d in DELTAS],
    }


def summary(found: dict[str, list[float]], delta: float) -> dict[str, float]:
    worse = np.minimum(found["recall"], found["novelty"])
    at, best = int(np.abs(DELTAS - delta).argmin()), int(worse.argmax())
    step = float(DELTAS[1])
    return {
        "delta": delta, "recall": found["recall"][at], "novelty": found["novelty"][at],
        "best_delta": float(DELTAS[best]), "worse_of_both_there": float(worse[best]),
        "band_of_0.9": round(step * int((worse >= 0.9).sum()), 3),
        "band_of_0.95": round(step * int((worse >= 0.95).sum()), 3),
    }  # fmt: skip


def confused(again: list[Answered], new: list[Answered], delta: float) -> dict[str, list[str]]:
    missed = Counter(
        f"{a.query.words} -> {a.best} ({a.score:.2f}; own {a.own:.2f})"
        for a in again
        if a.best != a.query.task.lower() or a.score < delta
    )
    believed = Counter(f"{a.query.words} -> {a.best} ({a.score:.2f})" for a in new if a.score >= delta)
    return {
        name: [f"{count} x {text}" for text, count in c.most_common()]
        for name, c in (("missed", missed), ("taken_for_stored", believed))
    }


def draw(path: Path, rows: dict[str, dict[str, list[float]]], delta: float) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(rows), figsize=(4.2 * len(rows), 3.4), sharey=True)
    for ax, (title, found) in zip(axes, rows.items(), strict=True):
        both = np.minimum(found["recall"], found["novelty"]) >= 0.9
        if both.any():
            ax.axvspan(DELTAS[both].min(), DELTAS[both].max(), color="#e8efe9", label="both at least 0.9")
        ax.plot(DELTAS, found["recall"], color="#2e7d50", label="recall of stored tasks")
        ax.plot(DELTAS, found["novelty"], color="#3a68c4", label="novel tasks recognised")
        ax.axvline(delta, color="#888", lw=1, ls=":")
        ax.axhline(0.95, color="#bbb", lw=0.8)
        ax.set(title=title, xlabel="threshold δ", xlim=(0.2, 1), ylim=(0, 1.02))
    axes[0].legend(loc="lower left", fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def development(out: Path, seed: int, ways) -> None:
    """Six memories of 57 training tasks each, the other 172 novel: what the encoder was developed with."""
    embedder, scene, told = Once(Pair(PhraseVectors(), AlignedScenes(load_aligner()))), Pictures(), {}
    draws = [list(np.random.default_rng([seed, n]).permutation(split().train)) for n in range(6)]
    with tempfile.TemporaryDirectory() as folder:
        memories = [open_memory(Path(folder) / str(n), embedder) for n in range(6)]
        for memory, order in zip(memories, draws, strict=True):
            remember(memory, order[:57], Path(folder))
        for omega in (1.0, 0.9, 0.8, 0.7, 0.5, 0.0):
            rows = []
            for memory, order in zip(memories, draws, strict=True):
                again = ask(memory, recurring(order[:57], ways), scene, omega)
                new = ask(memory, novel(order[57:], ways, len(again)), scene, omega)
                top1 = float(np.mean([a.best == a.query.task.lower() for a in again]))
                rows.append({**summary(curve(again, new), Retrieval().delta), "top1": top1})
            told[str(omega)] = {key: round(float(np.mean([row[key] for row in rows])), 4) for key in rows[0]}
            print(omega, told[str(omega)], flush=True)
    result = {"hardware": hardware(torch.device("cpu")), "commit": commit(), "seed": seed, "omega": told}
    save(out, "memory_recall_development", result, quiet=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--picture", type=Path, default=HERE.parent / "docs" / "memory_recall.png")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--development", action="store_true")
    arguments = parser.parse_args()
    if arguments.development:
        development(
            arguments.out, arguments.seed, json.loads((HERE / "phrasings" / "development.json").read_text())
        )
        return
    ways = json.loads((HERE / "phrasings" / "measured.json").read_text())
    stored = [*split().novel, *split().mastered]
    others = [name for name in split().train if name not in stored]
    again, scene = recurring(stored, ways), Pictures()
    new = novel(others, ways, len(again))
    embedders = {
        "instruction and scene": Once(Pair(PhraseVectors(), AlignedScenes(load_aligner()))),
        "instruction": TextOnly(PhraseVectors()),
        "mean of word vectors": TextOnly(WordVectors()),
    }
    curves, told = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for title, embedder in embedders.items():
            memory = open_memory(Path(folder) / title, embedder)
            remember(memory, stored, Path(folder))
            seen = scene if memory.sees_scenes else None
            rule = memory.retrieval
            found, unknown = (ask(memory, queries, seen, rule.omega) for queries in (again, new))
            curves[title] = curve(found, unknown)
            told[title] = {
                "embedder": embedder.identity, "omega": rule.omega if seen is not None else 1.0,
                **summary(curves[title], rule.delta),
                "top1": round(float(np.mean([a.best == a.query.task.lower() for a in found])), 4),
                "matched_for_sure": round(float(np.mean([a.told_apart for a in found])), 4),
                **confused(found, unknown, rule.delta),
            }  # fmt: skip
            print(title, {k: v for k, v in told[title].items() if not isinstance(v, list)}, flush=True)
    result = {
        "hardware": hardware(torch.device("cpu")), "commit": commit(), "seed": arguments.seed,
        "stored": len(stored), "recurring_queries": len(again), "novel_queries": len(new),
        "novel_tasks": len(others), "embedders": told, "curves": curves,
    }  # fmt: skip
    save(arguments.out, "memory_recall", result, quiet=True)
    draw(arguments.picture, curves, Retrieval().delta)


if __name__ == "__main__":
    main()

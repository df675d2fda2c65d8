"""Are recurring tasks found and novel ones recognised, by instruction alone, over the threshold δ?

Stored: the 50 novel tasks and 7 training tasks by their first phrasing. Recurring queries: their other phrasings; novel
queries: every phrasing of every other training task. Scenes take part once a trained scene encoder does.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from measure import commit, hardware, save

from hostbot.memory import Retrieval, TextOnly, open_memory
from hostbot.memory.words import WordVectors
from hostbot.sim.catalogue import split, task


def top(memory, instruction: str):
    answer = memory.query(instruction, retrieval=Retrieval(delta=-1, margin=0))
    return answer.best.entry.name, answer.best.score


def curve(memory, stored: list[str], others: list[str]) -> dict[str, list[float]]:
    found = [(name, *top(memory, text)) for name in stored for text in task(name).instructions[1:]]
    right = np.array([name.lower() == best for name, best, _ in found])
    score = np.array([s for *_, s in found])
    novel = np.array([top(memory, text)[1] for name in others for text in task(name).instructions])
    deltas = np.round(np.arange(0, 1.001, 0.01), 2)
    return {
        "delta": deltas.tolist(),
        "recall": [float((right & (score >= d)).mean()) for d in deltas],
        "novelty": [float((novel < d).mean()) for d in deltas],
        "top1": [float(right.mean())],
        "queries": [len(right), len(novel)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tasks = split()
    mastered = list(np.random.default_rng(arguments.seed).permutation(tasks.train)[:7])
    stored = [*tasks.names("novel"), *map(str, mastered)]
    others = [name for name in tasks.train if name not in mastered]
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "v.mp4"
        from memory import write_clip

        write_clip(video)
        memory = open_memory(Path(folder) / "m", TextOnly(WordVectors()))
        for name in stored:
            memory.add(video, task(name).instructions[0], name=name.lower())
        found = curve(memory, stored, others)
    worse = np.minimum(found["recall"], found["novelty"])
    best = int(worse.argmax())
    chosen = {key: found[key][best] for key in ("delta", "recall", "novelty")}
    result = {
        "hardware": hardware(torch.device("cpu")), "commit": commit(), "seed": arguments.seed,
        "embedder": memory.embedder.identity, "chosen": chosen,
        "band_where_both_reach_0.9": round(0.01 * int((worse >= 0.9).sum()), 2), **found,
    }  # fmt: skip
    save(arguments.out, "memory_recall", result, quiet=True)
    print(
        {key: result[key] for key in ("embedder", "chosen", "top1", "queries", "band_where_both_reach_0.9")}
    )


if __name__ == "__main__":
    main()

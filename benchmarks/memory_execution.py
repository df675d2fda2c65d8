"""Does a robot do as well from a video that its memory found as from a fresh one?

python benchmarks/memory_execution.py OUT --trials 2

57 skills are stored: the 50 novel tasks and the 7 mastered ones, each by a person's video (mp4) and its first phrasing.
Then every task is done in the same scenes twice. Fresh: the robot is shown a video filmed for the occasion, as in
``hostbot eval``. Remembered: it is told the words alone, sees its scene, and follows what memory finds; where memory
finds nothing, or several, the robot stays where it is. Interrupted, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import commit, hardware, save
from memory_recall import remember

from hostbot.align.aligner import load_aligner
from hostbot.bench.metrics import wilson
from hostbot.bench.model import Model
from hostbot.bench.players import chunk_of
from hostbot.bench.results import Result, RolloutConfig, read_results
from hostbot.bench.rollout import Rollout
from hostbot.bench.suites import SuiteConfig
from hostbot.cli.policies import policy_folder
from hostbot.memory import DemonstrationMemory, Match, Pair, open_memory
from hostbot.memory.phrases import PhraseVectors
from hostbot.memory.scenes import AlignedScenes
from hostbot.policy.execution import ExecutionConfig
from hostbot.policy.policy import Policy, PolicyConfig
from hostbot.sim.catalogue import split


class Remembering:
    """A policy that is shown nothing: what it follows it finds in memory by its words and its scene."""

    looks = True
    asks_expert = False

    def __init__(self, model: Model, memory: DemonstrationMemory) -> None:
        self._model, self._memory = model, memory
        self._skills: dict[str, Any] = {}
        self.found: dict[tuple[str, int], str] = {}
        """By trial: the stored task that was followed; empty where none was."""
        self.identity = f"{model.identity}, from memory"

    def begin(self, trial, video, instruction, expert) -> dict[str, Any]:
        return {"trial": trial, "told": instruction, "inner": None}

    def act(self, sessions, observations) -> list[Any]:
        for session, seen in zip(sessions, observations, strict=True):
            if session["inner"] is None and session["told"]:
                self._recall(session, seen.views["third_person"])
        going = [i for i, session in enumerate(sessions) if session["inner"] is not None]
        chunks: list[Any] = [chunk_of(np.tile(seen.state, (16, 1))) for seen in observations]
        if going:
            acted = self._model.act([sessions[i]["inner"] for i in going], [observations[i] for i in going])
            for i, chunk in zip(going, acted, strict=True):
                chunks[i] = chunk
        return chunks

    def _recall(self, session: dict[str, Any], scene) -> None:
        trial, policy = session["trial"], self._model.policy
        answer = self._memory.query(session["told"], scene)
        session["told"] = ""  # asked once
        if not isinstance(answer, Match):
            self.found[trial.task, trial.seed] = ""
            return
        entry = answer.best.entry
        self.found[trial.task, trial.seed] = entry.name
        if entry.id not in self._skills:
            self._skills[entry.id] = policy.acquire(self._memory.video(entry), entry.instruction)
        session["inner"] = policy.start(self._skills[entry.id], seed=trial.seed)

    def end(self, session: Any) -> None:
        pass


def run(player, folder: Path, config: RolloutConfig, size: tuple[int, int]) -> dict[tuple[str, int], Result]:
    for finished in Rollout(player, config, size).run(folder):
        print(folder.name, finished.result.task, finished.result.seed, finished.result.success, flush=True)
    return read_results(folder)


def counted(results: dict[tuple[str, int], Result]) -> dict[str, Any]:
    done, of = sum(one.success for one in results.values()), len(results)
    return {"succeeded": done, "of": of, "rate": round(done / of, 4), "interval": wilson(done, of)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder for videos, memory and trials")
    parser.add_argument("--policy", type=Path, default=Path("shipped"))
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=6000)
    parser.add_argument("--execute", type=int, default=None)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--wave", type=int, default=8)
    parser.add_argument("--tasks", nargs="*", default=[], help="only these, to try it")
    parser.add_argument("--results", type=Path, help="folder for the figures; without it OUT")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    stored = [*split().novel, *split().mastered]
    tried = flags.tasks or stored
    (flags.out / "videos").mkdir(parents=True, exist_ok=True)
    sizes = (flags.wave,) if device == "cuda" else tuple(2**n for n in range(flags.wave.bit_length() + 1))
    policy = Policy.load(policy_folder(flags.policy), device=device, config=PolicyConfig(batch_sizes=sizes))
    config = RolloutConfig(
        suite=SuiteConfig(tasks=tuple(tried), trials=flags.trials, first_seed=flags.first_seed),
        wave=flags.wave, execution=ExecutionConfig(execute=flags.execute), workers=flags.workers,
    )  # fmt: skip
    embedder = Pair(PhraseVectors(), AlignedScenes(load_aligner()))
    with open_memory(flags.out / "memory", embedder) as memory:
        if not memory.entries():
            remember(memory, stored, flags.out / "videos")
        fresh = run(Model(policy), flags.out / "fresh", config, policy.spec.image_size)
        player = Remembering(Model(policy), memory)
        remembered = run(player, flags.out / "remembered", config, policy.spec.image_size)
    both = [key for key in fresh if key in remembered]
    found = {
        "benchmark": "memory_execution", "commit": commit(), "hardware": hardware(torch.device(device)),
        "policy": policy.fingerprint(),
        "stored": len(stored), "tasks": len(tried), "trials": flags.trials, "first_seed": flags.first_seed,
        "execute": flags.execute, "fresh": counted(fresh), "remembered": counted(remembered),
        "points_between": round(100 * (counted(remembered)["rate"] - counted(fresh)["rate"]), 2),
        "only_fresh_succeeded": sum(fresh[k].success and not remembered[k].success for k in both),
        "only_remembered_succeeded": sum(remembered[k].success and not fresh[k].success for k in both),
        "recalled_now": {
            "own": sum(name == task.lower() for (task, _), name in player.found.items()),
            "another": sum(bool(name) and name != task.lower() for (task, _), name in player.found.items()),
            "none": sum(not name for name in player.found.values()),
        },
    }  # fmt: skip
    save(flags.results or flags.out, "memory_execution", found)


if __name__ == "__main__":
    main()

"""One family of tasks from nothing to closed-loop success, within minutes on one GPU: record, see, couple, train, try.

    python benchmarks/family.py --family press                  # ten minutes on one H200 with 16 cores
    python benchmarks/family.py --family press --vae RUN        # with a VAE that is there already
    python benchmarks/family.py --family press --rehearse       # every step in small, on a laptop: proves the way only

Scenes tried are never those recorded (seeds 6000 and up against 10,000 and up), and the demonstration shown is of yet
another scene. Recorded robots stray from their way and get back, so that a policy knows how to. Every step is a command
that anybody can type; they are written down with the result. A step that fails ends the run and tells why.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import torch
from measure import commit, hardware, save

from hostbot.cli.steps import Steps
from hostbot.types import BadInput


def settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default="press")
    parser.add_argument(
        "--episodes", type=int, default=900, help="robot episodes a task, each in a scene of its own"
    )
    parser.add_argument(
        "--stray", type=float, default=1.0, help="how far recorded robots stray, and get back"
    )
    parser.add_argument("--states", type=int, default=10, help="states of an episode that are learned from")
    parser.add_argument("--minutes", type=float, default=9.5, help="of everything")
    parser.add_argument("--vae", type=Path, help="a VAE to see with, or to go on from")
    parser.add_argument("--vae-minutes", type=float, help="of its training; 0 with --vae, else 2")
    parser.add_argument("--match-minutes", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--shared", type=int, default=4)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--point", type=float, default=0.3)
    parser.add_argument(
        "--fuse",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="fuse layers while data is recorded",
    )
    parser.add_argument("--execute", type=int, default=8, help="steps of a chunk's 16 before it looks again")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--eval-minutes", type=float, default=0.9, help="kept for the evaluation")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep", type=Path, help="folder for data, runs and the policy; else they are not kept"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--rehearse", action="store_true")
    flags = parser.parse_args()
    if flags.vae_minutes is None:
        flags.vae_minutes = 0.0 if flags.vae else 2.0
    if flags.rehearse:
        flags.episodes, flags.trials, flags.states, flags.batch = 8, 1, 4, min(flags.batch, 16)
        flags.minutes, flags.eval_minutes, flags.vae_minutes = 4.5, 1.5, min(flags.vae_minutes, 0.2)
    return flags


def record(run: Steps, flags: argparse.Namespace, name: str, episodes: int, first_seed: int) -> None:
    """Begin to record robot episodes that stray and get back."""
    run.begin(
        f"record-{name}", "sim", "record", "--out", run.folder / name, "--episodes-per-task", episodes, "--families",
        flags.family, "--embodiment", "robot", "--stray", flags.stray, "--first-seed", first_seed, "--workers",
        flags.workers,
    )  # fmt: skip


def see(run: Steps, flags: argparse.Namespace) -> Path:
    """The VAE, from frames of all training tasks, unless there is one. Returns its folder."""
    if flags.vae_minutes <= 0:
        assert isinstance(flags.vae, Path)
        return flags.vae
    few: list[object] = ["--families", flags.family] if flags.rehearse else []
    run.do(
        "record-all", "sim", "record", "--out", run.folder / "all", "--episodes-per-task", 1, "--workers",
        flags.workers, *few,
    )  # fmt: skip
    seen = [run.folder / "all" / body for body in ("robot", "human")]
    source: list[object] = ["--from", flags.vae] if flags.vae else []
    small: list[object] = (
        ["--batch", 4, "--clips", 60] if flags.rehearse else ["--batch", 128, "--clips", 6000]
    )
    run.do(
        "vae", "train", "vae", "--data", *seen, "--out", run.folder / "vae", "--seed", flags.seed, *small, *source,
        "--minutes", flags.vae_minutes, "--fit", "--log-every", 20, "--validate-every", 200,
    )  # fmt: skip
    return run.folder / "vae"


def store(run: Steps, flags: argparse.Namespace, name: str, vae: Path) -> Path:
    """Pair, couple and encode a recording. Returns the samples' folder."""
    data, split, out = (
        run.folder / name / "robot",
        run.folder / f"{name}.json",
        run.folder / f"samples-{name}",
    )
    run.do(f"pairs-{name}", "data", "pairs", data, "--out", split, "--validation", 0)
    run.do(
        f"samples-{name}", "train", "samples", "--robot", data, "--split", split, "--vae", vae, "--statistics",
        run.folder / "held-out/robot/meta/hostbot/statistics.json", "--cameras", "bench", "--labels", "events",
        "--body", "robot", "--out", out, "--states", flags.states, "--demos", 1, "--workers", flags.workers,
    )  # fmt: skip
    return out


def train(run: Steps, flags: argparse.Namespace) -> Path:
    """Record, see, couple, and learn with the time that is left. Returns the policy's folder.

    While the many episodes are recorded, a few of scenes that nothing is learned from give what actions are normalised
    by, are made ready to validate on, and have layers fused for them: the run finds these in the compiler's cache.
    """
    record(run, flags, "data", flags.episodes, 10_000)
    record(run, flags, "held-out", 2 if flags.rehearse else 20, 900_000)
    run.end("record-held-out")
    run.do("stats", "data", "stats", run.folder / "held-out/robot", "--horizon", 16)
    vae = see(run, flags)
    held_out = store(run, flags, "held-out", vae)
    common: list[object] = [
        "--vae", vae, "--batch", flags.batch, "--shared", flags.shared, "--lr", flags.lr, "--optimiser", "muon",
        "--one-view", 0, "--text-dropout", 0.3, "--seed", flags.seed, "--graphs",
    ]  # fmt: skip
    stage: list[object] = [
        "train", "policy", "--stage", 1, "--demo-dropout", 0, "--point", flags.point, "--compile", str(flags.fuse),
    ]  # fmt: skip
    if flags.fuse:
        run.begin("fuse", *stage, *common, "--samples", held_out, "--steps", 2, "--out", run.folder / "fuse")
    run.end("record-data")
    samples = store(run, flags, "data", vae)
    run.end("fuse")
    more: list[object] = [
        "--samples", samples, "--validation", held_out, "--validate-every", 8 if flags.rehearse else 400,
        "--save-every", 10**6, "--fit",
    ]  # fmt: skip
    if flags.match_minutes > 0:
        match = run.folder / "match"
        run.do("match", "train", "match", "--out", match, "--minutes", flags.match_minutes, *common, *more)
        more += ["--from", match]
    out = run.folder / "stage1"
    run.do("train", *stage, *common, *more, "--out", out, "--minutes", run.left(flags.eval_minutes))
    return out / "policy"


def main() -> None:
    flags = settings()
    with tempfile.TemporaryDirectory() as scratch:
        run = Steps(flags.keep or Path(scratch), flags.minutes)
        if run.commands:
            raise SystemExit(f"{run.folder} holds a run already: give another folder with --keep")
        try:
            policy = train(run, flags)
        finally:
            run.drop()
        trained = run.seconds
        run.do(
            "eval", "eval", "--policy", policy, "--suite", "train", "--families", flags.family, "--body", "robot",
            "--trials", flags.trials, "--execute", flags.execute, "--workers", flags.workers, "--films", 2, "--out",
            run.folder / "eval",
        )  # fmt: skip
        report = json.loads((run.folder / "eval" / "report.json").read_text())
        lines = (run.folder / "stage1" / "log.jsonl").read_text().splitlines()
        log = [json.loads(line) for line in lines]
        found = {
            "benchmark": "family",
            "family": flags.family,
            "rehearsal": flags.rehearse,
            "seed": flags.seed,
            "commit": commit(),
            "hardware": hardware(torch.device("cuda" if torch.cuda.is_available() else "cpu")),
            "minutes_to_the_trained_policy": round(trained / 60, 2),
            "minutes": round(run.seconds / 60, 2),
            "report": {name: report[name] for name in ("all", "tasks") if name in report},
            "log": log[:: max(1, len(log) // 20)] + log[-1:],
            "commands": list(run.commands.values()),
        }
        name = f"family-{flags.family}" + ("-rehearsal" if flags.rehearse else "")
        for line in log[:: max(1, len(log) // 8)] + log[-1:]:
            print(json.dumps(line))
        save(flags.out, name, found, quiet=True)
        print(json.dumps(found["report"]["all"], indent=1))


if __name__ == "__main__":
    try:
        main()
    except BadInput as mistake:
        raise SystemExit(str(mistake)) from None

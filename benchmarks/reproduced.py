"""What a run of ``hostbot reproduce`` has left, in one file: its steps, its validations, evaluations of its policies.

python benchmarks/reproduced.py RUN --evals RUN/eval/refine OTHER --hardware "one NVIDIA H200" --out results/NAME.json
python benchmarks/reproduced.py --evals LATER --hardware "2 CPU cores" --out results/NAME.json  # more evaluations

Evaluations are folders that ``hostbot eval`` wrote; each is told with how it was made. Of a run that is still going on
there is what it has written so far.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

_PIECES = ("see", "match", "act", "refine", "polish")
_DIGITS = 4


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?", help="left out: evaluations are added to what is there")
    parser.add_argument("--evals", type=Path, nargs="*", default=[])
    parser.add_argument("--hardware", default="", help="where it ran, in words")
    parser.add_argument("--commit", help="as of which commit it ran, where the run itself does not know")
    parser.add_argument("--out", type=Path, required=True)
    flags = parser.parse_args()
    if flags.run is None:
        found = _read(flags.out)
        where = {"hardware": flags.hardware} if flags.hardware else {}
        found["evaluations"] += [_evaluation(folder) | where for folder in flags.evals]
        flags.out.write_text(json.dumps(found, indent=1) + "\n")
        print(f"added {len(flags.evals)} to {flags.out}")
        return
    if not flags.hardware:
        parser.error("--hardware tells where the run ran")
    recipe = _read(flags.run / "recipe.json")
    pieces = {piece: _piece(flags.run, piece) for piece in _PIECES if (flags.run / "pieces" / piece).is_dir()}
    commits = {made["commit"] for made in pieces.values() if made.get("commit")}
    found = {
        "benchmark": "reproduce",
        "made_by": "benchmarks/reproduced.py",
        "hardware": flags.hardware,
        "commit": flags.commit or ", ".join(sorted(commits)),
        "seed": recipe["seed"],
        "gone on from a policy": recipe["from"] is not None,
        "recipe": recipe["recipe"],
        "pieces": pieces,
        "evaluations": [_evaluation(folder) for folder in flags.evals],
    }
    flags.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"wrote {flags.out}")


def _piece(run: Path, piece: str) -> dict[str, Any]:
    steps, log = run / "pieces" / piece / "steps.json", run / piece / "log.jsonl"
    made: dict[str, Any] = {
        "seconds": {k: v["seconds"] for k, v in _read(steps).items()} if steps.exists() else {}
    }
    rounds = sorted((run / "pieces" / piece / "data/rounds").glob("*/steps.json"))
    if rounds:  # what was recorded while it learned, where it was kept
        made["rounds"] = {
            path.parent.name: {k: v["seconds"] for k, v in _read(path).items()} for path in rounds
        }
    if not log.exists():
        return made
    about = _read(run / piece / "run.json")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    validations = [_validation(row) for row in rows if any(key.startswith("val") for key in row)]
    lines = [row for row in rows if not any(key.startswith("val") for key in row)]
    note = run / piece / "joined.jsonl"
    joined = [json.loads(line) for line in note.read_text().splitlines()] if note.exists() else []
    if joined:
        made["joined"] = {"/".join(Path(one["samples"]).parts[-4:-1:2]): one["step"] for one in joined}
    made |= {
        "commit": about["commit"][:7] + ("+" if about["uncommitted_changes"] else ""),
        "date": about["date"][:10],
        "command": _command(about["command"][1:]),
        "validations": validations,
        "last": lines[-1] if lines else None,
    }
    return made


def _command(words: list[str]) -> str:
    """What a piece was told, wherever its run lay then."""
    where = str(Path(words[words.index("--out") + 1]).parent) if "--out" in words else "RUN"
    return " ".join(
        f"RUN{word[len(where) :]}" if f"{word}/".startswith(f"{where}/") else word for word in words
    )


def _validation(row: dict[str, Any]) -> dict[str, Any]:
    figures = {key.split("/", 1)[1]: value for key, value in row.items() if key.startswith("val")}
    return {"step": row.get("step")} | {
        k: round(v, _DIGITS) for k, v in figures.items() if isinstance(v, float)
    }


def _evaluation(folder: Path) -> dict[str, Any]:
    report, evaluation = _read(folder / "report.json"), _read(folder / "evaluation.json")
    config = evaluation["config"]
    trials = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    families: dict[str, Counter[str]] = defaultdict(Counter)
    for trial in trials:
        families[trial["family"]] += Counter(
            trials=1,
            successes=int(trial["success"]),
            touched=int(bool(trial["touched"])),
            right_first=int(bool(trial["touched"]) and trial["touched"] == trial["meant"]),
            followed=int(bool(trial["followed"])),
        )
    whole = sum(families.values(), Counter[str]())
    return {
        "player": evaluation["player"],
        "suite": config["suite"],
        "execution": config["execution"],
        "after": config.get("after", ""),
        "tasks_above_zero": sum(task["successes"] > 0 for task in report["tasks"]),
        "tasks": len(report["tasks"]),
        **{key: whole[key] for key in ("trials", "successes", "touched", "right_first", "followed")},
        "families": {name: dict(count) for name, count in sorted(families.items())},
    }


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


if __name__ == "__main__":
    main()

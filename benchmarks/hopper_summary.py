"""What a run of ``hopper.py`` found, short enough to keep: from its own files, written by the run or later.

python benchmarks/hopper_summary.py FOLDER --device "NVIDIA H200" --out benchmarks/results
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LAYERS, OF_PASS = 30, 8
PER_CYCLE = {"o": 21, "a": 20, "p": 9}
"""Passes of each kind in a cycle: o's 20 steps and its clean keys; p's first step rides with the observation."""
CUT = ("outputs", "blocks", "w_stages", "x_stages", "cluster", "shares", "half")


def is_other(way: Any) -> bool:
    """Whether a way is the library's or Triton's."""
    return isinstance(way, int) or "w_stages" not in way


def way_in_short(way: Any) -> str:
    """Outputs/blocks/w_stages/x_stages/cluster/shares/half of the Hopper product."""
    if isinstance(way, int):
        return f"library x{way}"
    if is_other(way):
        return "triton " + "/".join(str(v) for v in way.values())
    return "/".join(str(int(way[key])) for key in CUT)


def of_shape(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fastest right ways of one shape: others', ours, and ours by size of cluster."""
    timed = sorted((r for r in rows if r.get("right") and "us" in r), key=lambda r: r["us"])
    ours = [r for r in timed if not is_other(r["way"]) and r["overlap"] and not r["packed"]]

    def shown(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {"way": way_in_short(r["way"]), "us": r["us"], "tbytes_per_s": r["tbytes_per_s"]} for r in found
        ]

    by_cluster = {
        str(size): shown([r for r in ours if r["way"]["cluster"] == size][:1]) for size in (1, 2, 4)
    }
    return {
        "others": shown([r for r in timed if is_other(r["way"])]),
        "hopper": shown(ours[:3]),
        "by_cluster": {size: found[0] for size, found in by_cluster.items() if found},
    }


def estimates(passes: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Milliseconds of a cycle that a pass's gain would save, by how the gain is read."""
    found = {}
    for name, of_pass in passes.items():
        cycle = 1e-3 * LAYERS / OF_PASS * PER_CYCLE[name]
        gains = {"first_to_last_us": of_pass["before_us"] - of_pass["after_us"]}
        listed = [timed for timed in of_pass["choices"].values() if len(timed) > 1]
        # In a run that profiled first only times after the profile compare: the old way's, as first tried.
        old = [[row["pass_us"] for row in timed if not _hopper(row["cut"])] for timed in listed]
        if all(old) and old:
            gains["old_ways_to_last_us"] = old[0][0] - of_pass["after_us"]
            gains["choices_added_up_us"] = sum(
                was[0] - timed[0]["pass_us"] for was, timed in zip(old, listed, strict=True)
            )
        found[name] = {key: round(us, 1) for key, us in gains.items()}
        found[name] |= {key.replace("_us", "_ms"): round(us * cycle, 2) for key, us in gains.items()}
    return found


def _hopper(cut: Any) -> bool:
    return isinstance(cut, dict) and "w_stages" in cut


def unfinished(log: Path, passes: dict[str, Any]) -> list[str]:
    """What a run's log says of passes that its files do not hold."""
    found, inside = [], False
    for line in log.read_text().splitlines() if log.exists() else []:
        inside = line in set(PER_CYCLE) - set(passes) or (inside and line.startswith("  "))
        if inside or (re.match(r"[oap] \d+x", line) and line[0] not in passes):
            found.append(line.strip())
    return found


def shared_out(of_pass: dict[str, Any]) -> dict[str, Any]:
    """A pass whose kernels also say what they take of it until the next begins; all of them add up to the pass."""
    listed = {when: of_pass[when] for when in ("before_kernels", "after_kernels") if when in of_pass}
    return of_pass | {
        when: [row | {"of_pass_us": round(row["calls"] * (row["us"] + row["gap_us"]), 1)} for row in rows]
        for when, rows in listed.items()
    }


def summarise(folder: Path) -> dict[str, Any]:
    """A run's folder as one result."""
    products = json.loads((folder / "hopper-products.json").read_text())
    path = folder / "hopper-passes.json"
    chosen: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"passes": {}}
    shapes: dict[str, list[dict[str, Any]]] = {}
    for row in products["products"]:
        shapes.setdefault(f"{row['rows']}x{row['outputs']}x{row['inputs']}", []).append(row)
    wrong = [row for row in products["products"] if not row.get("right")]
    return {
        "benchmark": "hopper",
        "commit": products["commit"],
        "hardware": chosen.get("hardware", "not recorded by the run"),
        "columns": "/".join(CUT),
        "jobs": len(products["products"]),
        "right": len(products["products"]) - len(wrong),
        "wrong": [
            {
                "shape": [row[k] for k in ("rows", "outputs", "inputs")],
                "way": way_in_short(row["way"]),
                "why": str(row.get("failed", row.get("error"))).splitlines()[0],
            }
            for row in wrong
        ],
        "products": {
            name: of_shape(rows) for name, rows in shapes.items() if any("us" in row for row in rows)
        },
        "passes": {name: shared_out(of_pass) for name, of_pass in chosen["passes"].items()},
        "passes_unfinished": unfinished(folder / "hopper.log", chosen["passes"]),
        "estimated_gain": estimates({k: v for k, v in chosen["passes"].items() if "after_us" in v}),
        "cascade": chosen.get("cascade", "not run"),
        "kept": chosen.get("kept", "nothing"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", help="the card, where the run did not record it")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    result = summarise(args.folder)
    if args.device:
        result["hardware"] = {"device": args.device, "said_by": "whoever made this file, not the run"}
    (args.out / "hopper-h200.json").write_text(json.dumps(result, indent=1) + "\n")
    print({k: v for k, v in result.items() if k not in ("products", "passes")})


if __name__ == "__main__":
    main()

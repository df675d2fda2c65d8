"""``hostbot eval --open-loop``: predicted against recorded actions, as a table and a plot an episode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hostbot.cli.show import print_json, print_table, progress

if TYPE_CHECKING:
    from hostbot.cli.eval import Eval
    from hostbot.policy.policy import Policy


def compare_dataset(flags: Eval, dataset: Path, policy: Policy) -> None:
    """Compare, plot, and tell."""
    from hostbot.bench.open_loop import OpenLoopConfig, compare_all, errors, plot
    from hostbot.config import provenance, write_json
    from hostbot.data.sources import open_source

    source = open_source(dataset)
    demos = None if flags.demos is None else open_source(flags.demos)
    config = OpenLoopConfig(demo=flags.open_loop_demo, every=flags.execute)
    flags.out.mkdir(parents=True, exist_ok=True)
    names, compared = policy.embodiment.axis_names(), []
    with progress("episodes", len(flags.episodes)) as tick:
        for one in compare_all(policy, source, flags.episodes, config, demos):
            plot(flags.out / f"open_loop-{one.episode:04d}.png", one, names, source.fps)
            compared.append(one)
            tick()
    found = errors(policy, compared)
    about = {
        "policy": policy.fingerprint(),
        "decides": policy.changes(),
        "dataset": source.name,
        "demo": flags.open_loop_demo,
    }
    write_json(flags.out / "open_loop.json", {**about, **found.plain(), "provenance": provenance()})
    if flags.json:
        print_json({**about, **found.plain()})
        return
    columns = ["dimension", "MAE", "MSE", "MAE standing still"]
    rows = zip(found.names, found.mae.tolist(), found.mse.tolist(), found.mae_still.tolist(), strict=True)
    print_table(f"{source.name}: {found.num_frames} frames", columns, list(rows))
    print(f"wrote {flags.out}: a plot an episode and open_loop.json")

"""Draw an alignment: the cost of matching any two frames, beta, the path, and clock time for comparison.

Legend: T demo steps, N robot steps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from hostbot.align.aligner import Aligner
from hostbot.align.cost import cost
from hostbot.align.dtw import alignment
from hostbot.align.steps import clock_map
from hostbot.align.videos import Embedded, align_whole
from hostbot.types import BadInput


def matrices(
    aligner: Aligner, demo: Embedded, robot: Embedded
) -> tuple[Float[np.ndarray, "T N"], Float[np.ndarray, "T N"]]:
    """c of eq:sim_cost, and beta from robot to demo (eq:sdtw_beta) with the demo upwards."""
    ours, theirs = torch.from_numpy(robot.points)[None], torch.from_numpy(demo.points)[None]
    with torch.no_grad():
        costs = cost(theirs, ours, config=aligner.config.match)[0]
        beta = alignment(theirs, ours, config=aligner.config.match).robot_to_demo[0].T
    return costs.numpy(), beta.numpy()


def plot_alignment(
    aligner: Aligner, demo: Embedded, robot: Embedded, out: Path, names: tuple[str, str]
) -> None:
    """Write a picture of two panels and the confidence below them; ``names`` are the demo's and the robot's."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput("plots need matplotlib; install it with `pip install hostbot[plot]`") from None

    found = align_whole(aligner, demo, robot)
    frames = np.arange(robot.num_frames)
    clock = clock_map(robot.num_frames, demo.num_frames)
    figure = Figure(figsize=(11, 6), layout="constrained")
    panels = figure.subplots(2, 2, height_ratios=(4, 1), sharex=True)
    extent = (0, robot.num_frames, 0, demo.num_frames)
    for panel, values, title in zip(
        panels[0], matrices(aligner, demo, robot), ("cost c", "matching β"), strict=True
    ):
        drawn = panel.imshow(values, origin="lower", aspect="auto", extent=extent, cmap="viridis")
        panel.plot(frames, clock, "w--", linewidth=1, label="clock time")
        panel.plot(frames, found.found.robot_to_demo, "r-", linewidth=1.5, label="aligned")
        panel.set(title=title, ylabel=f"frame of {names[0]}")
        figure.colorbar(drawn, ax=panel)
    panels[0][0].legend(loc="upper left")
    for panel in panels[1]:
        panel.fill_between(frames, found.found.robot_confidence, alpha=0.5)
        panel.set(ylim=(0, 1), ylabel="sure", xlabel=f"frame of {names[1]}")
    figure.suptitle(f"confidence {found.confidence:.2f}, path cost {found.found.cost:.2f} a step")
    figure.savefig(out, dpi=120)

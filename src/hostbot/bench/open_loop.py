"""Predicted against recorded actions on a dataset: no robot moves, nothing is judged but the numbers.

At every chunk's start the policy sees what the robot saw and felt; its chunk is laid beside what was really done. By
default the demonstration is the episode's own video: coupled actions follow the demonstration's clock (eq:pred_target),
and only then is that the recording's clock, so that step i of the chunk is comparable with step i of the recording.

Legend: N frames of an episode, H action steps, D action width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Float64

from hostbot.data.pairs import task_key
from hostbot.data.stats import ACTION, STATE
from hostbot.policy.policy import Policy
from hostbot.types import BadInput, DataError, Demonstration, EpisodeSource, Observation

Demo = Literal["self", "other", "none"]


@dataclass(frozen=True, kw_only=True)
class OpenLoopConfig:
    """What is compared."""

    demo: Demo = "self"
    """The episode's own video, another episode's of the same task, or the instruction alone."""
    every: int | None = None
    """Frames between two chunks; None lays chunk after chunk."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One episode's numbers; ``predicted`` is NaN where no chunk reaches."""

    episode: int
    instruction: str
    recorded: Float32[np.ndarray, "N D"]
    predicted: Float32[np.ndarray, "N D"]
    held: Float32[np.ndarray, "N D"]
    """What standing still since the chunk's start would have been: the error to beat."""
    starts: tuple[int, ...]
    progress: tuple[float, ...]
    """Estimated place in the demonstration at every start."""


def compare(
    policy: Policy,
    source: EpisodeSource,
    episode: int,
    config: OpenLoopConfig,
    demos: EpisodeSource | None = None,
) -> Comparison:
    """Predict one episode chunk by chunk."""
    info, rows = source.episode(episode), source.rows(episode, [STATE, ACTION])
    state, action = (np.asarray(rows[name], np.float32) for name in (STATE, ACTION))
    if action.shape[1] != policy.embodiment.dim:
        raise DataError(
            f"{source.name} has actions of {action.shape[1]} numbers, the policy of {policy.embodiment.dim}: convert it"
        )
    if abs(source.fps - policy.embodiment.rate_hz) > 1e-6:
        raise DataError(
            f"{source.name} is at {source.fps:g} Hz, the policy at {policy.embodiment.rate_hz:g}: convert it first"
        )
    starts = range(0, info.length, config.every or policy.horizon)
    seen = {
        v: source.frames(episode, v, list(starts), policy.spec.image_size) for v in policy.embodiment.views
    }
    skill = policy.acquire(_demonstration(policy, source, episode, config, demos), info.instruction)
    session = policy.start(skill, config.seed)
    predicted, held = np.full_like(action, np.nan), np.full_like(action, np.nan)
    progress = []
    for number, start in enumerate(starts):
        views = {name: frames[number] for name, frames in seen.items()}
        executed = starts.step if number else None
        out = policy.step(session, Observation(views=views, state=state[start], executed=executed))
        end = min(start + policy.horizon, info.length)
        predicted[start:end], held[start:end] = out.actions[: end - start], state[start]
        progress.append(out.progress)
    return Comparison(
        episode=episode,
        instruction=info.instruction,
        recorded=action,
        predicted=predicted,
        held=held,
        starts=tuple(starts),
        progress=tuple(progress),
    )


def _demonstration(
    policy: Policy,
    source: EpisodeSource,
    episode: int,
    config: OpenLoopConfig,
    demos: EpisodeSource | None,
) -> Demonstration | None:
    if config.demo == "none":
        return None
    shown, index = source, episode
    if config.demo == "other":
        shown, index = demos or source, _same_task(demos or source, source, episode)
    views = [view for view in shown.views if view in policy.embodiment.views]
    if not views:
        raise BadInput(
            f"{shown.name} has views {', '.join(shown.views)}, the policy {', '.join(policy.embodiment.views)}: "
            "none is shared"
        )
    length = shown.episode(index).length
    frames = {view: shown.frames(index, view, list(range(length)), policy.spec.image_size) for view in views}
    return Demonstration(views=frames, fps=shown.fps)


def _same_task(demos: EpisodeSource, source: EpisodeSource, episode: int) -> int:
    """The next episode of the same task that is not the episode itself."""
    wanted = task_key(source.episode(episode).instruction)
    for step in range(1, len(demos) + 1):
        index = (episode + step) % len(demos)
        if (demos is not source or index != episode) and task_key(demos.episode(index).instruction) == wanted:
            return index
    raise BadInput(
        f"{demos.name} has no other episode of {source.episode(episode).instruction!r}: use --open-loop-demo self"
    )


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Mean absolute and squared errors of every dimension, and those of standing still."""

    names: tuple[str, ...]
    mae: Float64[np.ndarray, " D"]
    mse: Float64[np.ndarray, " D"]
    mae_still: Float64[np.ndarray, " D"]
    num_frames: int

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        values = zip(self.mae.tolist(), self.mse.tolist(), self.mae_still.tolist(), strict=True)
        keys = ("mae", "mse", "mae_standing_still")
        return {
            "frames": self.num_frames,
            "dimensions": {
                name: dict(zip(keys, row, strict=True)) for name, row in zip(self.names, values, strict=True)
            },
        }


def errors(policy: Policy, compared: Sequence[Comparison]) -> Errors:
    """Over all frames that a chunk reaches."""
    gaps, still = (
        np.concatenate([(getattr(c, name) - c.recorded).astype(np.float64) for c in compared])
        for name in ("predicted", "held")
    )
    known = np.isfinite(gaps).all(axis=1)
    return Errors(
        names=tuple(policy.embodiment.axis_names()),
        mae=np.abs(gaps[known]).mean(0),
        mse=(gaps[known] ** 2).mean(0),
        mae_still=np.abs(still[known]).mean(0),
        num_frames=int(known.sum()),
    )


def compare_all(
    policy: Policy,
    source: EpisodeSource,
    episodes: Sequence[int],
    config: OpenLoopConfig,
    demos: EpisodeSource | None = None,
) -> Iterator[Comparison]:
    """Episode after episode."""
    for episode in episodes:
        if not 0 <= episode < len(source):
            raise BadInput(f"{source.name} has episodes 0..{len(source) - 1}, asked for {episode}")
        yield compare(policy, source, episode, config, demos)


def plot(path: Path, compared: Comparison, names: Sequence[str], rate_hz: float) -> None:
    """One panel a dimension: recorded and predicted, with the chunks' boundaries."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise BadInput("plots need matplotlib: pip install 'hostbot[plot]'") from None

    columns = 4
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(4 * columns, 2 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    seconds = np.arange(len(compared.recorded)) / rate_hz
    for place, name in enumerate(names):
        axes = figure.add_subplot(lines, columns, place + 1)
        for start in compared.starts:
            axes.axvline(start / rate_hz, color="0.85", linewidth=0.8)
        axes.plot(seconds, compared.recorded[:, place], color="0.35", linewidth=1.4, label="recorded")
        axes.plot(seconds, compared.predicted[:, place], color="tab:orange", linewidth=1.0, label="predicted")
        axes.set_title(name, fontsize=8)
        axes.tick_params(labelsize=6)
        axes.set_xlabel("seconds" if place >= len(names) - columns else "", fontsize=6)
        if place == 0:
            axes.legend(fontsize=6)
    figure.suptitle(f"episode {compared.episode}: {compared.instruction}", fontsize=9)
    figure.savefig(path, dpi=110)

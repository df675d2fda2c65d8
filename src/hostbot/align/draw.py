"""Training pairs: which two videos, which of their frames and views, and how those look.

Every draw is a function of (seed, step, slot) alone: training resumes without remembering an order, and two
processes that share the slots of a step see what one would.

Legend: B pairs, F frames of a video, T steps of a clip, V views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from hostbot.align.cache import FrameCache
from hostbot.align.encoders import Clips, on_hand
from hostbot.align.look import WIDTH, Look, LookConfig, draw_look
from hostbot.types import BadInput, DataError

Tasks = Mapping[str, Mapping[str, Sequence[int]]]
"""Task -> body ("robot", "human") -> episodes of that body's dataset."""


@dataclass(frozen=True, kw_only=True)
class DrawConfig:
    """How pairs are drawn."""

    human_robot: float = 0.5
    """Share of human-robot pairs, where a task has any."""
    human_human: float = 0.0
    """Share of human-human pairs; the rest is robot-robot."""
    max_steps: int = 64
    """Of a clip; longer ones are sampled, one frame from each of as many equal stretches."""
    outside_only: float = 0.3
    """How often a clip keeps only the views that ride on no hand, so that it is seen as a person's video is."""
    two_looks: bool = False
    """Every view gets a look of its own, and a clip whose views are all of one kind is there twice.

    Otherwise all views of a clip look alike, as in the paper.
    """
    look: LookConfig = field(default_factory=LookConfig)

    def __post_init__(self) -> None:
        for name in ("human_robot", "human_human", "outside_only"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(f"{name} must be in [0, 1], got {getattr(self, name)}")
        if self.human_robot + self.human_human > 1:
            raise BadInput(f"shares add up to more than 1: {self.human_robot} and {self.human_human}")
        if self.max_steps < 2:
            raise BadInput(f"a clip needs at least 2 steps, got {self.max_steps}")


@dataclass(frozen=True, kw_only=True)
class Clip:
    """One video of a pair, as drawn."""

    body: str
    episode: int
    steps: Int[np.ndarray, " T"]
    views: tuple[int, ...]
    """Of the cache; one may be there twice."""
    second: tuple[bool, ...]
    """Which of them make up the second look."""
    looks: tuple[Look, ...]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one step learns from."""

    clips: Clips
    """Of twice as many videos as pairs."""
    second: Bool[Tensor, "2B V"]
    looks: Float[Tensor, "2B V look"]
    tasks: Int[Tensor, " B"]
    """Each pair's task, by number."""


class Pairs:
    """Same-task pairs over cached datasets."""

    def __init__(self, caches: Mapping[str, FrameCache], tasks: Tasks, config: DrawConfig, seed: int) -> None:
        self.caches, self.tasks, self.config, self.seed = caches, tasks, config, seed
        self.names = [name for name in sorted(tasks) if self._kinds(name)]
        if not self.names:
            raise DataError("no task has two executions to pair: record more episodes of the same tasks")

    def _kinds(self, task: str) -> dict[tuple[str, str], float]:
        """Which bodies can be paired in a task, and how often they are."""
        have = {body: len(self.tasks[task].get(body, ())) for body in ("human", "robot")}
        across, same = self.config.human_robot, self.config.human_human
        shares = {
            ("human", "robot"): across,
            ("human", "human"): same,
            ("robot", "robot"): 1 - across - same,
        }
        able = {k: s for k, s in shares.items() if all(have[body] >= k.count(body) for body in k)}
        return {k: s for k, s in able.items() if s > 0} or dict.fromkeys(able, 1.0)

    def draw(self, step: int, slot: int) -> tuple[str, Clip, Clip]:
        """Task, demonstration and execution of one slot of a step; a step's slots go round the tasks."""
        order = np.random.default_rng([self.seed, step]).permutation(len(self.names))
        task = self.names[int(order[slot % len(order)])]
        rng = np.random.default_rng([self.seed, step, slot])
        kinds = self._kinds(task)
        shares = np.array(list(kinds.values()))
        bodies = list(kinds)[int(rng.choice(len(kinds), p=shares / shares.sum()))]
        pools = [self.tasks[task][body] for body in bodies]
        if bodies[0] == bodies[1]:
            first, second = rng.choice(len(pools[0]), 2, replace=False)
        else:
            first, second = (rng.integers(len(pool)) for pool in pools)
        demo, robot = pools[0][int(first)], pools[1][int(second)]
        return task, self._clip(bodies[0], demo, rng), self._clip(bodies[1], robot, rng)

    def _clip(self, body: str, episode: int, rng: np.random.Generator) -> Clip:
        cache, config = self.caches[body], self.config
        outside = [v for v, name in enumerate(cache.views) if not on_hand(name)]
        views = list(range(len(cache.views)))
        if 0 < len(outside) < len(views) and rng.random() < config.outside_only:
            views = outside
        second = [v not in outside for v in views]
        if config.two_looks and len(set(second)) == 1:
            second, views = [False] * len(views) + [True] * len(views), [*views, *views]
        looks = [draw_look(config.look, rng) for _ in (views if config.two_looks else views[:1])]
        return Clip(
            body=body,
            episode=episode,
            steps=stratified(int(cache.lengths[episode]), config.max_steps, rng),
            views=tuple(views),
            second=tuple(second),
            looks=tuple(looks if config.two_looks else looks * len(views)),
        )

    def batch(self, step: int, slots: Sequence[int]) -> Batch:
        """Demonstrations, then executions, of these slots."""
        drawn = [self.draw(step, slot) for slot in slots]
        tasks = torch.tensor([self.names.index(task) for task, _, _ in drawn])
        return self.load([demo for _, demo, _ in drawn] + [robot for _, _, robot in drawn], tasks)

    def load(self, clips: Sequence[Clip], tasks: Int[Tensor, " B"]) -> Batch:
        """The clips' whole videos, padded to the longest and to the most views."""
        lengths = [int(self.caches[c.body].lengths[c.episode]) for c in clips]
        num_frames, num_views = max(lengths), max(len(c.views) for c in clips)
        frames = self._frames(clips, num_frames, num_views)
        present, riding, second = torch.zeros(3, len(clips), num_views, dtype=torch.bool)
        picked = torch.zeros(len(clips), max(len(c.steps) for c in clips), dtype=torch.int64)
        looks = torch.tensor(astuple(Look())).repeat(len(clips), num_views, 1)
        for place, clip in enumerate(clips):
            views, names = len(clip.views), self.caches[clip.body].views
            present[place, :views] = True
            riding[place, :views] = torch.tensor([on_hand(names[v]) for v in clip.views])
            second[place, :views] = torch.tensor(clip.second)
            picked[place, : len(clip.steps)] = torch.from_numpy(clip.steps)
            looks[place, :views] = torch.tensor([astuple(look) for look in clip.looks]).view(views, WIDTH)
        loaded = Clips(
            frames=frames,
            present=present,
            riding=riding,
            lengths=torch.tensor(lengths),
            picked=picked,
            num_picked=torch.tensor([len(c.steps) for c in clips]),
        )
        return Batch(clips=loaded, second=second, looks=looks, tasks=tasks)

    def _frames(self, clips: Sequence[Clip], num_frames: int, num_views: int) -> UInt8[Tensor, "B F V s s 3"]:
        """All frames, one reading a body; what is padded repeats a last frame and a first view."""
        found: Tensor | None = None
        for body in sorted({clip.body for clip in clips}):
            places = [place for place, clip in enumerate(clips) if clip.body == body]
            ours = [clips[place] for place in places]
            views = np.array([[*c.views, *c.views[:1] * (num_views - len(c.views))] for c in ours])
            read = self.caches[body].padded(np.array([c.episode for c in ours]), num_frames, views)
            if len(ours) == len(clips):
                return read
            found = read.new_empty(len(clips), *read.shape[1:]) if found is None else found
            found[torch.tensor(places, device=read.device)] = read
        assert found is not None
        return found


def stratified(length: int, max_steps: int, rng: np.random.Generator) -> Int[np.ndarray, " T"]:
    """All frames of a short video, or one drawn from each of ``max_steps`` equal stretches of a long one."""
    if length <= max_steps:
        return np.arange(length)
    edges = np.arange(max_steps) * length / max_steps
    return (edges + rng.random(max_steps) * (length / max_steps)).astype(np.int64)

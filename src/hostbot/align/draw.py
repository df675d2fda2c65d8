"""Training pairs: which two videos, which of their frames and views, and how they are recoloured.

Every draw is a function of (seed, step, slot) alone: training resumes without remembering an order, and two
processes that share the slots of a step see what one would.

Legend: B pairs, T steps of a clip, V views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hostbot.align.cache import FrameCache
from hostbot.align.encoders import Clips
from hostbot.types import BadInput, DataError

Tasks = Mapping[str, Mapping[str, Sequence[int]]]
"""Task -> body ("robot", "human") -> episodes of that body's dataset."""


@dataclass(frozen=True, kw_only=True)
class DrawConfig:
    """How pairs are drawn; flip, brightness and contrast are the paper's augmentation."""

    human_share: float = 0.5
    """Of human-robot pairs, where there are any; the rest is robot-robot."""
    max_steps: int = 64
    """Of a clip; longer ones are sampled, one frame from each of as many equal stretches."""
    view_dropout: float = 0.3
    """How often a clip of several views keeps only some of them."""
    flip: float = 0.5
    """How often a clip is mirrored."""
    brightness: tuple[float, float] = (0.7, 1.3)
    contrast: tuple[float, float] = (0.7, 1.3)

    def __post_init__(self) -> None:
        for name in ("human_share", "view_dropout", "flip"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(f"{name} must be in [0, 1], got {getattr(self, name)}")
        if self.max_steps < 2:
            raise BadInput(f"a clip needs at least 2 steps, got {self.max_steps}")


@dataclass(frozen=True, kw_only=True)
class Clip:
    """One video of a pair, as drawn."""

    body: str
    episode: int
    steps: Int[np.ndarray, " T"]
    views: tuple[int, ...]
    flip: bool
    brightness: float
    contrast: float


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one step learns from."""

    clips: Clips
    """Of twice as many videos as pairs."""
    looks: Float[Tensor, "2B 3"]
    """Each clip's flip, brightness and contrast."""
    tasks: Int[Tensor, " B"]
    """Each pair's task, by number."""


class Pairs:
    """Same-task pairs over cached datasets."""

    def __init__(self, caches: Mapping[str, FrameCache], tasks: Tasks, config: DrawConfig, seed: int) -> None:
        self.caches, self.tasks, self.config, self.seed = caches, tasks, config, seed
        names = sorted(tasks)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._same = [t for t in names if len(tasks[t].get("robot", ())) >= 2]
        self._across = [t for t in names if tasks[t].get("robot") and tasks[t].get("human")]
        if not self._same and not self._across:
            raise DataError("no task has two executions to pair: record more episodes of the same tasks")

    def draw(self, step: int, slot: int) -> tuple[str, Clip, Clip]:
        """Task, demonstration and robot execution of one slot of a step."""
        rng = np.random.default_rng([self.seed, step, slot])
        across = bool(rng.random() < self.config.human_share)
        across = bool(self._across) and (across or not self._same)
        choices = self._across if across else self._same
        task = choices[int(rng.integers(len(choices)))]
        robots = self.tasks[task]["robot"]
        if across:
            humans = self.tasks[task]["human"]
            demo = ("human", humans[int(rng.integers(len(humans)))])
            robot = ("robot", robots[int(rng.integers(len(robots)))])
        else:
            first, second = rng.choice(len(robots), 2, replace=False)
            demo, robot = ("robot", robots[first]), ("robot", robots[second])
        return task, self._clip(*demo, rng), self._clip(*robot, rng)

    def _clip(self, body: str, episode: int, rng: np.random.Generator) -> Clip:
        cache, config = self.caches[body], self.config
        num_views = len(cache.views)
        kept: Sequence[int] = range(num_views)
        if num_views > 1 and rng.random() < config.view_dropout:
            kept = sorted(rng.choice(num_views, int(rng.integers(1, num_views)), replace=False).tolist())
        return Clip(
            body=body,
            episode=episode,
            steps=stratified(int(cache.lengths[episode]), config.max_steps, rng),
            views=tuple(kept),
            flip=bool(rng.random() < config.flip),
            brightness=float(rng.uniform(*config.brightness)),
            contrast=float(rng.uniform(*config.contrast)),
        )

    def batch(self, step: int, slots: Sequence[int]) -> Batch:
        """Demonstrations, then robot executions, of these slots."""
        drawn = [self.draw(step, slot) for slot in slots]
        clips, looks = self.clips([demo for _, demo, _ in drawn] + [robot for _, _, robot in drawn])
        tasks = torch.tensor([self._numbers[task] for task, _, _ in drawn])
        return Batch(clips=clips, looks=looks, tasks=tasks)

    def clips(self, clips: Sequence[Clip]) -> tuple[Clips, Float[Tensor, "B 3"]]:
        """The clips' frames, padded to the longest and to the most views."""
        read = [self.caches[c.body].read(c.episode, c.steps)[:, list(c.views)] for c in clips]
        num_steps, num_views = max(len(r) for r in read), max(r.shape[1] for r in read)
        frames = read[0].new_zeros(len(clips), num_steps, num_views, *read[0].shape[2:])
        present = torch.zeros(len(clips), num_views, dtype=torch.bool)
        for place, pixels in enumerate(read):
            frames[place, : pixels.shape[0], : pixels.shape[1]] = pixels
            present[place, : pixels.shape[1]] = True
        lengths = torch.tensor([len(c.steps) for c in clips])
        looks = torch.tensor([(float(c.flip), c.brightness, c.contrast) for c in clips])
        return Clips(frames=frames, present=present, lengths=lengths), looks


def stratified(length: int, max_steps: int, rng: np.random.Generator) -> Int[np.ndarray, " T"]:
    """All frames of a short video, or one drawn from each of ``max_steps`` equal stretches of a long one."""
    if length <= max_steps:
        return np.arange(length)
    edges = np.arange(max_steps) * length / max_steps
    return (edges + rng.random(max_steps) * (length / max_steps)).astype(np.int64)


def recolour(clips: Clips, looks: Float[Tensor, "B 3"]) -> Clips:
    """Mirror, brighten and contrast whole clips, each with its own numbers, alike in every frame and view."""
    flip, brightness, contrast = (looks[:, i].view(-1, 1, 1, 1, 1, 1) for i in range(3))
    frames = torch.where(flip > 0, clips.frames.flip(-2), clips.frames)
    light = (frames.float() * brightness).clamp(0, 255)
    grey = (light @ light.new_tensor([0.299, 0.587, 0.114])).mean((-2, -1))[..., None, None, None]
    light = (contrast * light + (1 - contrast) * grey).clamp(0, 255)
    return Clips(frames=light.round().to(torch.uint8), present=clips.present, lengths=clips.lengths)

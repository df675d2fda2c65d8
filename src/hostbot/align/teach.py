"""Teach a reader of hands what a renderer knows: first what single moments show, then how they follow one another.

Every draw is a function of seed and step, so that a run that was stopped goes on as if it had not been.

Legend: F frames of all videos, E videos, V views, H hands, B moments of a step, M pictures, T steps of a video,
D width.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from hostbot.align.checkpoint import Saved, save, step_folders
from hostbot.align.encoders import Clips, whole_clips
from hostbot.align.hands import HandReader, Light
from hostbot.align.muon import Muon
from hostbot.align.posture import Annotations, in_order, motion_seen
from hostbot.config import to_dict
from hostbot.types import BadInput

_FOLLOWING = ("enter.", "follow.", "tell.")
"""Parts that are learned once single moments are known."""
_OUTPUTS = ("once.", "moving.", "gate.", "role.", "tell.")
"""Matrices that are no steps on the way: what they give is not turned into anything else."""
_MOVING = 0.3
"""How much motion in the picture counts beside postures and places."""
_AT_ONCE, _ON_DEVICE = 128, 32
"""Pictures that are seen at once when nothing is learned, and how many times as many on a device."""
_UPLOADED = 8192
_KEPT = ("momentum_buffer", "step", "exp_avg", "exp_avg_sq")
"""What an optimiser knows of a parameter."""
_COUNTS = (2.0, 1.2, 0.8, 1.6, 1.6, 1.0, 1.0, 0.8)
"""How much an error in each number of a posture counts."""


@dataclass(frozen=True, kw_only=True)
class TeachConfig:
    """How long, how much at once, how different it is made to look."""

    steps: int = 6000
    """Of single moments."""
    follow_steps: int = 2000
    """Of whole videos, once single moments are known."""
    moments: Mapping[str, int]
    """Drawn a step, of each source."""
    weights: Mapping[str, float]
    """Of each source's errors."""
    videos: int = 16
    """Drawn a step, of each source."""
    longest: int = 128
    """Steps of a video that are followed at once."""
    learning_rate: float = 2e-3
    follow_rate: float = 1e-3
    warmup: int = 100
    falling: float = 0.6
    """Share of the steps, the last ones, in which the learning rate falls to nothing."""
    weight_decay: float = 0.02
    farther: float = 5.0
    """How many times as long steps of matrices are."""
    clip: float = 1.0
    own: float = 0.7
    """Share of glimpses that are cut where the reader itself finds hands, once it does; the others near true places."""
    contrast: float = 0.25
    tint: float = 0.15
    brightness: float = 0.15
    dropped: float = 0.25
    """Share of views that are left out, one staying."""
    bf16: bool = True
    seed: int = 0
    save_every: int = 500


class Videos:
    """Annotated videos of one kind, somewhere in one array, which may lie on disk: only what is drawn is read.

    They may lie on a device as well, which then draws the pictures itself.
    """

    def __init__(
        self,
        views: tuple[str, ...],
        pictures: UInt8[np.ndarray, "n V s s 3"] | UInt8[Tensor, "n V s s 3"],
        lengths: Int[np.ndarray, " E"],
        known: Annotations,
        riding: tuple[bool, ...],
        first: Int[np.ndarray, " E"] | None = None,
    ) -> None:
        self.starts = np.cumsum(lengths) - lengths
        first = self.starts if first is None else first
        if (
            len(known.posture) != lengths.sum()
            or len(pictures) < (first + lengths).max()
            or not pictures.shape[1] == known.spots.shape[1] == len(views)
        ):
            raise BadInput(
                f"videos of {lengths.sum()} frames and {len(views)} views need as many pictures and annotations, "
                f"got {pictures.shape[:2]} and {known.spots.shape[:2]}"
            )
        self.views, self.lengths, self.known = views, lengths, known
        self.riding = torch.tensor(riding)
        self.video = np.repeat(np.arange(len(lengths)), lengths)
        self.pictures, self._moved = pictures, first - self.starts
        self.moving = motion_seen(known.spots, lengths)

    def __len__(self) -> int:
        """Frames of all videos."""
        return len(self.video)

    def frames(
        self, rows: Int[np.ndarray, " *n"], video: Int[np.ndarray, " *n"]
    ) -> UInt8[Tensor, "*n V s s 3"]:
        """Pictures of frames, counted over all videos, and which video each is of."""
        at = rows + self._moved[video]
        if isinstance(self.pictures, Tensor):
            return self.pictures[torch.from_numpy(at).to(self.pictures.device)]
        return torch.from_numpy(np.asarray(self.pictures[at]))

    @property
    def device(self) -> torch.device:
        """Where pictures are drawn."""
        return self.pictures.device if isinstance(self.pictures, Tensor) else torch.device("cpu")

    def held(self, device: torch.device) -> Videos:
        """The same, all pictures on a device."""
        pictures = torch.empty(self.pictures.shape, dtype=torch.uint8, device=device)
        for first in range(0, len(pictures), _UPLOADED):
            part = np.ascontiguousarray(self.pictures[first : first + _UPLOADED])
            pictures[first : first + _UPLOADED] = torch.from_numpy(part).to(device)
        first = self.starts + self._moved
        riding = tuple(self.riding.tolist())
        return Videos(self.views, pictures, self.lengths, self.known, riding, first)

    def moments(self, rows: Int[np.ndarray, " B"], reach: int) -> Clips:
        """Frames with their neighbours, each a clip of which one step is read."""
        video = self.video[rows]
        first = self.starts[video]
        last = first + self.lengths[video] - 1
        around = np.clip(rows[:, None] + np.arange(-reach, reach + 1), first[:, None], last[:, None])
        num = len(rows)
        return Clips(
            frames=self.frames(around, video[:, None]),
            present=torch.ones(num, len(self.views), dtype=torch.bool),
            riding=self.riding.expand(num, -1),
            lengths=torch.full((num,), 2 * reach + 1),
            picked=torch.full((num, 1), reach),
            num_picked=torch.ones(num, dtype=torch.int64),
        )


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Moments of one source, as they are shown."""

    clips: Clips
    views: Bool[Tensor, "1 B V"]
    posture: Float[Tensor, "B P"]
    moving: Float[Tensor, "B 3"]
    spots: Float[Tensor, "M H 2"]
    light: Light

    def to(self, device: torch.device) -> Lesson:
        """The same on a device."""
        if device.type == "cpu":
            return self
        names = ("clips", "views", "posture", "moving", "spots")
        light = (self.light[0].to(device), self.light[1].to(device))
        return Lesson(light=light, **{name: getattr(self, name).to(device) for name in names})


@dataclass(frozen=True)
class Report:
    """What one step did, by source."""

    step: int
    posture: dict[str, float]
    spots: dict[str, float]
    """Mean squared distance, in halves of a side."""


def rate(step: int, steps: int, config: TeachConfig, highest: float) -> float:
    """Linear warm-up, constant, then linear to nothing."""
    rising = min(1.0, (step + 1) / config.warmup)
    return highest * rising * min(1.0, (1 - step / steps) / config.falling)


def lesson(videos: Videos, num: int, reach: int, config: TeachConfig, rng: np.random.Generator) -> Lesson:
    """Moments drawn from all frames, mirrored and in other light, some views left out."""
    rows = np.sort(rng.integers(len(videos), size=num))
    clips, width = videos.moments(rows, reach), len(videos.views)
    mirrored = torch.from_numpy(rng.random((num, width)) < 0.5)
    turned = mirrored.to(clips.frames.device)[:, None, :, None, None, None]
    clips = replace(clips, frames=torch.where(turned, clips.frames.flip(4), clips.frames))
    spots = torch.from_numpy(videos.known.spots[rows])
    spots[..., 0] = torch.where(mirrored[..., None], -spots[..., 0], spots[..., 0])
    kept = torch.from_numpy(rng.random((1, num, width)) >= config.dropped)
    kept[..., -1] |= ~kept.any(-1)
    return Lesson(
        clips=clips,
        views=kept,
        posture=torch.from_numpy(videos.known.posture[rows]),
        moving=torch.from_numpy(videos.moving[rows]),
        spots=in_order(spots).flatten(0, 1),
        light=_light(num * width, config, rng),
    )


def _light(num: int, config: TeachConfig, rng: np.random.Generator) -> Light:
    """Contrast is about mid grey."""
    contrast = 1 + config.contrast * rng.uniform(-1, 1, (num, 1))
    tint = 1 + config.tint * rng.uniform(-1, 1, (num, 3))
    shift = 0.5 * (1 - contrast) + config.brightness * rng.uniform(-1, 1, (num, 1))
    return torch.from_numpy(contrast * tint).float(), torch.from_numpy(shift).float()


def moment_loss(
    reader: HandReader, given: Lesson, own: float, rng: np.random.Generator
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
    """Errors of postures, of motion seen, and of places; all views are searched, those that are kept tell."""
    num, width = given.views.shape[1:]
    places = given.clips.places(torch.ones_like(given.views[0]))
    around, spots = reader.searched(given.clips, places, given.light)
    at = _looked_at(spots.detach().float(), given.spots, own, rng)
    seen = reader.closely(given.clips, places, at, around, given.light)
    hidden = reader.pooled(seen.float().view(num, 1, width, -1), given.views)[0, :, 0]
    told, moving = reader.once(hidden), reader.moving(hidden)
    return (
        posture_error(told, given.posture),
        F.smooth_l1_loss(moving, given.moving),
        (spots - given.spots).square().sum(-1).mean(),
    )


def _looked_at(
    found: Float[Tensor, "M G 2"], known: Float[Tensor, "M G 2"], own: float, rng: np.random.Generator
) -> Float[Tensor, "M G 2"]:
    """Where hands are found or, for some pictures, near where they are: glimpses are to be read in either case."""
    mine = torch.from_numpy(rng.random((len(found), 1, 1)) < own).to(found.device)
    off = torch.from_numpy(rng.standard_normal(found.shape)).float().to(found.device)
    at = torch.where(mine, found + 0.03 * off, known + 0.08 * off)
    return torch.where((known[:, :1] == known[:, 1:]).all(-1, keepdim=True), at[:, :1], at)


def posture_error(told: Float[Tensor, "*n P"], wanted: Float[Tensor, "*n P"]) -> Float[Tensor, ""]:
    """Squared where it is small, absolute where it is large."""
    off = 2 * F.smooth_l1_loss(told, wanted, reduction="none")
    return (off * off.new_tensor(_COUNTS)).mean()


def optimiser_of(named: Mapping[str, nn.Parameter], config: TeachConfig, learning_rate: float) -> Muon:
    """For some of a reader's parameters."""
    return Muon(
        named, learning_rate, weight_decay=config.weight_decay, farther=config.farther, outputs=_OUTPUTS
    )


class Teacher:
    """One run in a folder of its own, with ``step-...`` checkpoints; single moments first."""

    def __init__(
        self, reader: HandReader, sources: Mapping[str, Videos], config: TeachConfig, folder: Path
    ) -> None:
        if set(sources) != set(config.moments) or set(sources) != set(config.weights):
            raise BadInput(
                f"moments and weights are of {sorted(config.moments)}, videos of {sorted(sources)}"
            )
        self.reader, self.sources, self.config, self.folder = reader, sources, config, folder
        self.device = next(iter(sources.values())).device
        reader.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.named = {n: p for n, p in reader.named_parameters() if not n.startswith(_FOLLOWING)}
        self.optimiser = optimiser_of(self.named, config, config.learning_rate)
        looks = (*reader.config.far, *reader.config.near)
        self._reach = max(map(abs, looks))
        self.step, self.stopping = 0, False

    def run(self) -> Iterator[Report]:
        """To the end, or until told to stop; a checkpoint is written then, and on the way."""
        self.reader.train()
        with ThreadPoolExecutor(1) as ahead:
            waiting = ahead.submit(self._lessons, self.step)
            while self.step < self.config.steps and not self.stopping:
                lessons = waiting.result()
                waiting = ahead.submit(self._lessons, self.step + 1)
                yield self._one(lessons)
                if self.step % self.config.save_every == 0:
                    self.save()
            waiting.cancel()
        self.save()

    def _rng(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng((self.config.seed, *numbers))

    def _lessons(self, step: int) -> dict[str, Lesson]:
        return {
            name: lesson(
                videos, self.config.moments[name], self._reach, self.config, self._rng(0, step, k)
            ).to(self.device)
            for k, (name, videos) in enumerate(sorted(self.sources.items()))
        }

    def _one(self, lessons: Mapping[str, Lesson]) -> Report:
        config, share = self.config, self.step / self.config.steps
        own = min(config.own, max(0.0, 5 * (share - 0.05)))
        for group in self.optimiser.param_groups:
            group["lr"] = rate(self.step, config.steps, config, config.learning_rate)
        self.optimiser.zero_grad(set_to_none=True)
        posture, spots, total = {}, {}, torch.zeros((), device=self.device)
        for k, (name, given) in enumerate(lessons.items()):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.bf16):
                told, moving, where = moment_loss(self.reader, given, own, self._rng(1, self.step, k))
            total = total + config.weights[name] * (told + _MOVING * moving + where)
            posture[name], spots[name] = told.detach(), where.detach()
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.named.values(), config.clip)
        if not math.isfinite(float(total.detach())):
            raise BadInput(
                f"the loss was not finite at step {self.step}; go on from the last checkpoint in {self.folder}"
            )
        self.optimiser.step()
        self.step += 1
        numbers = ({name: float(value) for name, value in found.items()} for found in (posture, spots))
        return Report(self.step, *numbers)

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Everything a run needs to go on, by name."""
        for name, parameter in self.named.items():
            yield f"model/{name}", parameter.detach().contiguous()
            for key, value in self.optimiser.state.get(parameter, {}).items():
                yield f"{key}/{name}", value.contiguous()

    def save(self) -> None:
        """Write a checkpoint and forget the one before."""
        older = step_folders(self.folder)
        target = self.folder / f"step-{self.step:08d}"
        if not target.exists():
            save(target, self.state(), {"step": self.step, "config": to_dict(self.config)}, writes=True)
            for _, folder in older:
                shutil.rmtree(folder)

    @torch.no_grad()
    def resume(self) -> int:
        """Go on from the newest checkpoint, if there is one; says from which step."""
        if not (found := step_folders(self.folder)):
            return 0
        saved = Saved(found[-1][1])
        if saved.note["config"] != json.loads(json.dumps(to_dict(self.config))):
            raise BadInput(
                f"{saved.folder} was taught with other settings; give the same ones, or another folder"
            )
        for name, parameter in self.named.items():
            parameter.copy_(saved.tensor(f"model/{name}"))
            keys = [key for key in _KEPT if f"{key}/{name}" in saved.names()]
            self.optimiser.state[parameter] = {
                key: saved.tensor(f"{key}/{name}")
                .to(parameter.device)
                .clone(memory_format=torch.preserve_format)
                for key in keys
            }
        self.step = int(saved.note["step"])
        return self.step


@torch.no_grad()
def shown(reader: HandReader, videos: Videos, bf16: bool = False) -> Float[Tensor, "F V D"]:
    """What every picture alone shows, as the reader finds and sees it."""
    reader.eval()
    device = videos.device
    at_once = _AT_ONCE if device.type == "cpu" else _ON_DEVICE * _AT_ONCE
    found = torch.empty(len(videos), len(videos.views), reader.config.width, device=device)
    for k, (start, length) in enumerate(zip(videos.starts, videos.lengths, strict=True)):
        rows = np.arange(start, start + length)
        frames = videos.frames(rows, np.full(length, k))
        clips = whole_clips(frames[None], riding=videos.riding[None]).to(device)
        places = clips.places(clips.present)
        parts = []
        for chunk in places.split(at_once):
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                around, spots = reader.searched(clips, chunk)
                parts.append(reader.closely(clips, chunk, spots, around))
        found[rows] = torch.cat(parts).view(length, len(videos.views), -1)
    return found


def follow(
    reader: HandReader, sources: Mapping[str, Videos], config: TeachConfig
) -> Iterator[tuple[int, dict[str, float]]]:
    """Learn what neighbours tell of a moment, from all that single pictures show; nothing else changes."""
    seen = {name: shown(reader, videos, config.bf16) for name, videos in sorted(sources.items())}
    named = {n: p for n, p in reader.named_parameters() if n.startswith(_FOLLOWING)}
    optimiser = optimiser_of(named, config, config.follow_rate)
    reader.train()
    for step in range(config.follow_steps):
        rng = np.random.default_rng((config.seed, 2, step))
        for group in optimiser.param_groups:
            group["lr"] = rate(step, config.follow_steps, config, config.follow_rate)
        errors = {
            name: _followed_error(reader, seen[name], videos, config, rng)
            for name, videos in sorted(sources.items())
        }
        optimiser.zero_grad(set_to_none=True)
        torch.stack([config.weights[name] * error for name, error in errors.items()]).sum().backward()
        torch.nn.utils.clip_grad_norm_(named.values(), config.clip)
        optimiser.step()
        yield step + 1, {name: float(error.detach()) for name, error in errors.items()}
    reader.eval()


def _followed_error(
    reader: HandReader,
    seen: Float[Tensor, "F V D"],
    videos: Videos,
    config: TeachConfig,
    rng: np.random.Generator,
) -> Float[Tensor, ""]:
    """Of stretches of some videos, each by some of its views."""
    chosen = rng.integers(len(videos.lengths), size=config.videos)
    lengths = np.minimum(videos.lengths[chosen], config.longest)
    first = videos.starts[chosen] + (rng.random(len(chosen)) * (videos.lengths[chosen] - lengths + 1)).astype(
        int
    )
    rows = first[:, None] + np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
    there = torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])
    kept = torch.from_numpy(rng.random((1, len(chosen), len(videos.views))) >= config.dropped)
    kept[..., -1] |= ~kept.any(-1)
    kept, there = kept.to(seen.device), there.to(seen.device)
    with torch.no_grad():
        hidden = reader.pooled(seen[torch.from_numpy(rows).to(seen.device)], kept)[0]
    told = reader.followed(hidden, torch.from_numpy(lengths).to(seen.device))
    wanted = torch.from_numpy(videos.known.posture[rows]).to(seen.device)
    return posture_error(told[there], wanted[there])

"""``hostbot align train``: from datasets to weights, interrupted or not."""

from __future__ import annotations

import math
import signal
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from hostbot.cli.align_common import Device, by_task, dataset_at
from hostbot.cli.show import Tick, progress
from hostbot.config import record_run
from hostbot.types import BadInput, EpisodeSource

if TYPE_CHECKING:
    from hostbot.align.cache import FrameCache
    from hostbot.align.distributed import World
    from hostbot.align.draw import DrawConfig
    from hostbot.align.train import Trainer


@dataclass(frozen=True)
class Train:
    """Train a frame encoder on same-task pairs; also under torchrun. Ctrl-C saves, --resume goes on."""

    robot: Annotated[Positional[Path], arg(metavar="ROBOT")]
    """Robot dataset."""
    out: Annotated[Positional[Path], arg(metavar="OUT")]
    """Folder of the run: checkpoints, log.jsonl, and align.json with align.safetensors in the end."""
    human: Annotated[Path | None, arg(metavar="DATASET")] = None
    """Dataset of people's videos, paired with the robot's by task."""
    split: Annotated[Path | None, arg(metavar="FILE")] = None
    """A split (`hostbot data pairs`): only its training part is learned from."""
    cache: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Where frames are kept decoded; OUT/cache by default."""
    qwen: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Fine-tune this Qwen3-VL-Embedding checkpoint, with the paper's settings, instead of a small encoder."""
    steps: Annotated[int | None, arg(metavar="N")] = None
    """Optimiser steps; the recipe says how many where this and the four below are left out."""
    batch_size: Annotated[int | None, arg(metavar="N")] = None
    """Pairs of a step, over all processes."""
    learning_rate: Annotated[float | None, arg(metavar="RATE")] = None
    """Of AdamW, after the warm-up."""
    human_robot: Annotated[float | None, arg(metavar="SHARE")] = None
    """Share of human-robot pairs among all."""
    frames: Annotated[int | None, arg(metavar="N")] = None
    """Most frames of a video in one step."""
    save_every: int = 500
    """Steps between checkpoints."""
    minutes: Annotated[float | None, arg(metavar="N")] = None
    """Stop cleanly after so many minutes; --resume goes on."""
    seed: int = 0
    resume: bool = False
    """Go on from the last checkpoint in OUT."""
    device: Device = None

    def run(self) -> None:
        """Decode once, train, calibrate, export."""
        from hostbot.align.distributed import joined

        with joined(self.device) as world:
            trainer = self._trainer(world)
            if self.resume:
                print(f"going on after step {trainer.resume()}") if world.leads else trainer.resume()
            elif any(self.out.glob("step-*")):
                raise BadInput(f"{self.out} holds a run; give --resume to go on with it, or another folder")
            if world.leads:
                record_run(self.out, self, {"align": self.seed})
            if self._train(trainer):
                self._export(trainer)

    def _trainer(self, world: World) -> Trainer:
        import torch

        from hostbot.align.aligner import build_encoder
        from hostbot.align.cache import CacheConfig, build_cache
        from hostbot.align.draw import Pairs
        from hostbot.align.qwen import QwenConfig
        from hostbot.align.recipe import paper_recipe, small_recipe
        from hostbot.align.small import SmallConfig
        from hostbot.align.train import Trainer

        sources = {"robot": dataset_at(self.robot)}
        if self.human is not None:
            sources["human"] = dataset_at(self.human)
        encoder = QwenConfig(folder=str(self.qwen)) if self.qwen else SmallConfig()
        kept = CacheConfig(size=encoder.size)
        caches = {}
        for body, source in sources.items():
            with _told(world, f"decoding {body}", len(source)) as tick:
                caches[body] = build_cache(source, self.cache or self.out / "cache", kept, tick)
        if world.device.type == "cuda":
            _hold(caches, world)
        draw = self._draw()
        recipe = paper_recipe if self.qwen else small_recipe
        chosen = {
            k: getattr(self, k)
            for k in ("steps", "batch_size", "learning_rate")
            if getattr(self, k) is not None
        }
        chosen |= {"bf16": world.device.type == "cuda"}  # a CPU is slower in bfloat16 than in float32
        config = recipe(draw=draw, seed=self.seed, save_every=self.save_every, **chosen)
        torch.manual_seed(self.seed)
        pairs = Pairs(caches, self._tasks(sources), draw, self.seed)
        return Trainer(build_encoder(encoder), pairs, config, self.out, world)

    def _draw(self) -> DrawConfig:
        from hostbot.align.draw import DrawConfig
        from hostbot.align.recipe import small_draw

        given = {"human_robot": self.human_robot, "max_steps": self.frames}
        chosen = {name: value for name, value in given.items() if value is not None}
        if self.human_robot is not None and not self.qwen:
            chosen["human_human"] = (1 - self.human_robot) / 2
        return (DrawConfig if self.qwen else small_draw)(**chosen)  # type: ignore[arg-type]

    def _tasks(self, sources: dict[str, EpisodeSource]) -> dict[str, dict[str, list[int]]]:
        from hostbot.data.pairs import load_split

        if self.split is not None:
            split = load_split(self.split, sources)  # type: ignore[arg-type]
            return {t.task: {body: list(found) for body, found in t.train.items()} for t in split.tasks}
        tasks: dict[str, dict[str, list[int]]] = {}
        for body, source in sources.items():
            for task, episodes in by_task(source).items():
                tasks.setdefault(task, {})[body] = episodes
        return tasks

    def _train(self, trainer: Trainer) -> bool:
        """Whether it came to the end."""
        until = time.monotonic() + 60 * self.minutes if self.minutes else math.inf
        signals = (
            signal.SIGINT,
            signal.SIGTERM,
        )  # clusters send the second before they take the machine away
        before = {each: signal.signal(each, lambda *_: self._asked(trainer)) for each in signals}
        try:
            with _told(trainer.world, "training", trainer.config.steps) as tick:
                tick(trainer.step)
                for report in trainer.run():
                    tick()
                    if time.monotonic() > until:
                        trainer.stop()
                    if trainer.world.leads and report.collapse and report.collapse.sentence:
                        print(f"step {report.step}: {report.collapse.sentence}")
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
        told = f"saved after step {trainer.step} of {trainer.config.steps}; go on with --resume"
        if trainer.step < trainer.config.steps and time.monotonic() < until:
            raise KeyboardInterrupt(told)
        if trainer.step < trainer.config.steps and trainer.world.leads:
            print(told)
        return trainer.step == trainer.config.steps

    @staticmethod
    def _asked(trainer: Trainer) -> None:
        if trainer.stopping:
            raise KeyboardInterrupt("the last checkpoint is whole, go on with --resume")
        trainer.stop()

    def _export(self, trainer: Trainer) -> None:
        from hostbot.align.aligner import Aligner, AlignerConfig, save_aligner
        from hostbot.align.calibrate import calibrate, summaries_of

        config = AlignerConfig(
            encoder=trainer.encoder.config,  # type: ignore[arg-type]
            match=trainer.config.loss.match,
        )
        aligner = Aligner(trainer.encoder, config, trainer.world.device)
        with _told(trainer.world, "calibrating", len(trainer.pairs.names)) as tick:
            summaries = summaries_of(aligner, trainer.pairs, tick=tick)
            calibrated = calibrate(aligner, trainer.pairs, summaries=summaries)
        aligner = aligner if calibrated is None else calibrated.of(aligner)
        path, notes = self.out / "align.json", {"steps": trainer.step}
        save_aligner(
            aligner.encoder, aligner.config, path, notes, company=aligner.company, writes=trainer.world.leads
        )
        if trainer.world.leads:
            print(f"{path}: trained for {trainer.step} steps; try `hostbot align eval`")


def _hold(caches: dict[str, FrameCache], world: World) -> None:
    """Keep frames on the GPU where they take at most a third of what is free."""
    import torch

    wanted, free = sum(c.nbytes for c in caches.values()), torch.cuda.mem_get_info(world.device)[0]
    where = "on the GPU" if 3 * wanted <= free else "on the disk"
    if world.leads:
        print(f"{wanted / 2**30:.1f} GiB of frames stay {where}; the GPU has {free / 2**30:.1f} GiB free")
    for cache in caches.values() if 3 * wanted <= free else ():
        cache.hold(world.device)


def _told(world: World, what: str, total: int) -> AbstractContextManager[Tick]:
    """A progress bar where this process leads; the others keep silent."""
    return progress(what, total) if world.leads else nullcontext(lambda steps=1, total=None: None)

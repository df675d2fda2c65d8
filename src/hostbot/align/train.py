"""Train a frame encoder on same-task pairs, self-supervised (supplement, "Training configuration").

Alone or under torchrun; a run that was stopped or killed goes on from its last checkpoint as if it had not been.

Legend: B pairs of a step over all processes, T steps of a clip.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hostbot.align.checkpoint import Saved, save, step_folders
from hostbot.align.collapse import Collapse, look_for_collapse
from hostbot.align.distributed import World, part_like, shard, whole
from hostbot.align.draw import Batch, Pairs
from hostbot.align.encoders import FrameEncoder
from hostbot.align.objective import StepLoss, step_loss
from hostbot.align.recipe import StepReport, TrainConfig, learning_rate
from hostbot.config import to_dict
from hostbot.types import BadInput


class Trainer:
    """One training run in a folder of its own: ``log.jsonl`` and ``step-...`` checkpoints."""

    def __init__(
        self,
        encoder: FrameEncoder,
        pairs: Pairs,
        config: TrainConfig,
        folder: Path,
        world: World | None = None,
    ) -> None:
        self.pairs, self.config, self.folder = pairs, config, folder
        self.world = world or World()
        self.slots = self.world.slots(config.batch_size)
        self.encoder = shard(encoder, self.world, bf16=config.bf16).train()
        self.named = dict(self.encoder.named_parameters())
        matrices = [p for p in self.named.values() if p.ndim > 1]
        others = [p for p in self.named.values() if p.ndim <= 1]  # biases and norms have nothing to decay to
        self.optimiser = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.eps,
        )
        self.step, self.stopping, self._skipped = 0, False, 0
        self._saved_at = -1

    def stop(self) -> None:
        """Save after the step that is running, and end."""
        self.stopping = True

    def run(self) -> Iterator[StepReport]:
        """Train to the end, or until told to stop; checkpoints are written on the way and at the end."""
        with ThreadPoolExecutor(1) as ahead:
            waiting = ahead.submit(self.pairs.batch, self.step, self.slots)
            while self.step < self.config.steps:
                batch = waiting.result()
                waiting = ahead.submit(self.pairs.batch, self.step + 1, self.slots)
                report, stop = self._one(batch)
                self._log(report)
                yield report
                if self.step % self.config.save_every == 0 or stop:
                    self.save()
                if stop:
                    break
            waiting.cancel()
        self.save()

    def loss(self, batch: Batch) -> StepLoss:
        """What a batch costs."""
        return step_loss(self.encoder, batch, self.config, self.world)

    def _one(self, batch: Batch) -> tuple[StepReport, bool]:
        rate = learning_rate(self.config, self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad(set_to_none=True)
        found = self.loss(batch)
        found.total.backward()
        norm = whole(torch.nn.utils.clip_grad_norm_(self.named.values(), self.config.clip))
        *told, stop = self._agreed(found, norm)
        skipped = not all(map(math.isfinite, told))
        if not skipped:
            self.optimiser.step()
        self._count(skipped)
        self.step += 1
        due = self.step % self.config.look_every == 0 or self.step == self.config.steps
        named = dict(zip(("tcc", "dtw", "two_looks", "negatives", "total", "gradient"), told, strict=True))
        look = self.look() if due else None
        report = StepReport(step=self.step, learning_rate=rate, skipped=skipped, collapse=look, **named)
        return report, stop > 0

    def _agreed(self, found: StepLoss, norm: Tensor) -> list[float]:
        """One message for all that processes must agree on; a stop asked of any of them stops all."""
        stop = torch.tensor(float(self.stopping), device=norm.device)
        figures = [found.tcc, found.dtw, found.two_looks, found.negatives, found.total, norm, stop]
        means: list[float] = self.world.mean(torch.stack([f.detach().float() for f in figures])).tolist()
        return means

    def _count(self, skipped: bool) -> None:
        self._skipped = self._skipped + 1 if skipped else 0
        if self._skipped >= self.config.patience:
            raise BadInput(
                f"the loss was not finite {self._skipped} steps in a row, at step {self.step}; the last checkpoint in "
                f"{self.folder} is sound: go on from it with a lower learning rate"
            )

    @torch.no_grad()
    def look(self, num: int = 16) -> Collapse | None:
        """Embed clips of several tasks and look for collapse; None where there is one task only."""
        drawn = [self.pairs.draw(2**31, slot) for slot in range(num)]
        clips = self.pairs.load([demo for _, demo, _ in drawn], torch.arange(num)).clips
        self.encoder.eval()
        found = self.encoder(clips.to(self.world.device)).float().cpu().numpy()
        self.encoder.train()
        tasks = [task for task, _, _ in drawn]
        if len(set(tasks)) < 2:
            return None
        videos = [video[:length] for video, length in zip(found, clips.num_picked.tolist(), strict=True)]
        return look_for_collapse(videos, tasks, self.config.collapse)

    def _log(self, report: StepReport) -> None:
        if self.world.leads:
            self.folder.mkdir(parents=True, exist_ok=True)
            entry = {k: _json_number(v) for k, v in asdict(report).items()} | {"time": round(time.time(), 3)}
            with (self.folder / "log.jsonl").open("a") as file:
                file.write(json.dumps(entry, allow_nan=False) + "\n")

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Everything a run needs to go on, whole, by name."""
        for name, parameter in self.named.items():
            yield f"model/{name}", whole(parameter.detach())
            for key, value in self.optimiser.state.get(parameter, {}).items():
                yield f"{key}/{name}", whole(value)
        yield "rng/cpu", torch.get_rng_state()

    def save(self) -> None:
        """Write a checkpoint and forget the oldest ones."""
        if self._saved_at == self.step:
            return
        note = {"step": self.step, "skipped": self._skipped, "config": to_dict(self.config)}
        target = self.folder / f"step-{self.step:08d}"
        if self.world.leads and target.exists():
            shutil.rmtree(target)
        save(target, self.state(), note, writes=self.world.leads)
        self._saved_at = self.step
        if self.world.leads:
            for _, old in step_folders(self.folder)[: -self.config.keep]:
                shutil.rmtree(old)
        self.world.wait()

    def resume(self) -> int:
        """Go on from the newest checkpoint in the folder; says from which step."""
        found = step_folders(self.folder)
        if not found:
            raise BadInput(f"{self.folder} holds no checkpoint to go on from; train without --resume")
        saved = Saved(found[-1][1])
        _same_settings(saved.note["config"], to_dict(self.config), found[-1][1])
        names = {f"model/{name}" for name in self.named}
        if missing := sorted(names - saved.names()):
            raise BadInput(f"{found[-1][1]} is of another encoder: it lacks {missing[0]}")
        for name, parameter in self.named.items():
            self._restore(name, parameter, saved)
        torch.set_rng_state(saved.tensor("rng/cpu"))
        self.step, self._skipped = int(saved.note["step"]), int(saved.note["skipped"])
        self._saved_at = self.step
        if self.world.leads:
            _forget_after(self.folder / "log.jsonl", self.step)
        self.world.wait()
        return self.step

    @torch.no_grad()
    def _restore(self, name: str, parameter: Tensor, saved: Saved) -> None:
        tensor = saved.tensor(f"model/{name}")
        if tensor.shape != parameter.shape:
            raise BadInput(f"{name} is {tuple(tensor.shape)} in {saved.folder}, not {tuple(parameter.shape)}")
        parameter.copy_(part_like(parameter, tensor))
        if f"step/{name}" in saved.names():
            moments = {key: saved.tensor(f"{key}/{name}") for key in ("exp_avg", "exp_avg_sq")}
            state: dict[str, Any] = {key: part_like(parameter, value) for key, value in moments.items()}
            self.optimiser.state[parameter] = state | {"step": saved.tensor(f"step/{name}")}


def _json_number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _same_settings(saved: dict[str, Any], now: dict[str, Any], where: Path) -> None:
    odd = [k for k in now if saved.get(k) != json.loads(json.dumps(now[k]))]
    if odd:
        told = ", ".join(f"{k} ({saved.get(k)}, now {now[k]})" for k in odd)
        raise BadInput(f"{where} was trained with other settings: {told}; give the same ones to go on")


def _forget_after(log: Path, step: int) -> None:
    """Drop what a killed run logged after the checkpoint; those steps are done again."""
    if not log.exists():
        return
    kept = []
    for line in log.read_text().splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (json.JSONDecodeError, KeyError):
            continue
    aside = log.with_name(".log.jsonl.tmp")
    aside.write_text("".join(f"{line}\n" for line in kept))
    os.replace(aside, log)

"""Training the tiny VAE on frames of datasets: absolute and squared error, a little KL.

Legend: B clips, T frames (1 + 4 k), h w pixels.
"""

# mypy: disable-error-code="attr-defined,no-untyped-call"
# (diffusers has no types)

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hostbot.data.batches import generator_for
from hostbot.data.clips import collect_clips
from hostbot.model.vae import VaeShape, calibrate, channels_last, load_vae, save_vae, tiny_vae
from hostbot.train.config import TrainConfig
from hostbot.train.contract import Outcome
from hostbot.train.distributed import World, joined
from hostbot.train.runs import RunOptions, claim_together, resumed
from hostbot.types import BadInput, EpisodeSource

_CALIBRATION = 256


class VaeLoss(nn.Module):
    """A VAE as a module whose call is its training loss."""

    def __init__(
        self, vae: AutoencoderKLWan, kl: float = 1e-6, focus: float = 0.0, chroma: float = 0.0
    ) -> None:
        super().__init__()
        self.vae, self.kl, self.focus, self.chroma = vae, kl, focus, chroma

    def forward(self, clips: UInt8[Tensor, "B T h w 3"], generator: torch.Generator) -> dict[str, Tensor]:
        """Losses of a batch of clips."""
        pixels = to_pixels(clips)
        posterior = self.vae.encode(pixels).latent_dist
        rebuilt = self.vae.decode(posterior.sample(generator)).sample.float()
        gap = rebuilt - pixels
        apart = gap.abs()
        seen = apart if self.chroma == 0 else apart + self.chroma * (gap - gap.mean(1, keepdim=True)).abs()
        weighed = seen if self.focus == 0 else seen * (1 + self.focus * contrast(pixels))
        error = (weighed + weighed * seen).mean()
        kl = posterior.kl().mean()
        return {"total": error + self.kl * kl, "l1": apart.mean().detach(), "kl": kl.detach()}


def contrast(pixels: Float[Tensor, "B 3 T h w"], around: int = 9) -> Float[Tensor, "B 1 T h w"]:
    """How much each pixel stands out from those around it, 1 on average: things do, the table under them does not."""
    flat = pixels.transpose(1, 2).flatten(0, 1)
    mean = F.avg_pool2d(flat, around, stride=1, padding=around // 2, count_include_pad=False)
    out = (flat - mean).abs().mean(1, keepdim=True)
    out = out / out.mean(dim=(1, 2, 3), keepdim=True).clamp(min=1e-3)
    return out.unflatten(0, (len(pixels), -1)).transpose(1, 2)


def to_pixels(clips: UInt8[Tensor, "B T h w 3"]) -> Float[Tensor, "B 3 T h w"]:
    """Clips in [-1, 1] as the VAE takes them."""
    return clips.permute(0, 4, 1, 2, 3).float() / 127.5 - 1


@dataclass(frozen=True, kw_only=True)
class VaeStage:
    """Clips in memory, drawn by number."""

    module: VaeLoss
    clips: UInt8[Tensor, "N T h w 3"]
    held_out: UInt8[Tensor, "M T h w 3"]
    micro: int
    seed: int

    def batch(self, step: int, micro: int) -> UInt8[Tensor, "B T h w 3"]:
        """The micro-batch of this number."""
        g = generator_for(self.seed, step, micro)
        rows = torch.randint(len(self.clips), (self.micro,), generator=g)
        return self.clips[rows.to(self.clips.device)]

    def summary(self, means: dict[str, float]) -> dict[str, float]:
        """As they are."""
        return means

    @torch.no_grad()
    def validate(self, step: int) -> Mapping[str, float]:
        """Mean absolute error on held-out clips, of 255, through the mode of the posterior."""
        errors = []
        for clips in self.held_out.split(self.micro):
            pixels = to_pixels(clips)
            rebuilt = self.module.vae.decode(self.module.vae.encode(pixels).latent_dist.mode()).sample
            errors.append((rebuilt.float().clamp(-1, 1) - pixels).abs().mean((1, 2, 3, 4)))
        return {"error_of_255": float(torch.cat(errors).mean() * 127.5)}


def export_vae(stage: VaeStage, folder: Path) -> None:
    """Set the latents' scale from data and write the VAE as diffusers does; an older one is replaced.

    Its weights are rounded to float16 once and for all: samples, policies and what ships see with the very same ones.
    """
    vae = copy.deepcopy(stage.module.vae).eval().half().float()
    calibrate(vae, to_pixels(stage.clips[:_CALIBRATION]))
    vae.half()
    new = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    shutil.rmtree(new, ignore_errors=True)
    save_vae(vae, new)
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


@dataclass(frozen=True, kw_only=True)
class VaeRun:
    """What decides the outcome of a VAE's training."""

    train: TrainConfig
    size: tuple[int, int]
    fingerprints: tuple[str, ...]
    """Of the datasets, in order."""
    clips: int = 20_000
    held_out: int = 64
    frames: int = 9
    strides: tuple[int, int] = (1, 8)
    """Frames between two of a clip; each clip draws its own."""
    kl: float = 1e-6
    focus: float = 1.0
    """How much more a pixel counts that stands out from those around it; 0: all count alike."""
    chroma: float = 0.0
    """How much more an error in colour counts than one in brightness."""
    shape: VaeShape = field(default_factory=VaeShape)
    source: str = ""
    """A VAE to go on from, whose shape it keeps; empty: drawn from the seed."""


def train_vae(
    config: VaeRun,
    sources: Sequence[EpisodeSource],
    options: RunOptions,
    tick: Callable[[int], None] = lambda count: None,
    workers: int = 0,
) -> tuple[Outcome, Path]:
    """Train the tiny VAE and leave ``RUN/vae``."""
    with joined(options.mode, options.device) as world:
        claim_together(options.out, config, options.resume, world)
        if world.mode in ("fsdp", "hsdp"):
            raise BadInput(f"a VAE this small is not sharded: use --mode ddp, not {world.mode}")
        clips = _clips(config, sources, options.out, world, tick, workers)
        torch.manual_seed(config.train.seed)
        vae = load_vae(Path(config.source)) if config.source else tiny_vae(config.shape)
        # Every batch has the same shape, so trying out kernels once pays.
        torch.backends.cudnn.benchmark = world.device.type == "cuda"
        module = VaeLoss(channels_last(vae.train().to(world.device)), config.kl, config.focus, config.chroma)
        stage = VaeStage(
            module=module,
            clips=clips[config.held_out :],
            held_out=clips[: config.held_out],
            micro=config.train.micro,
            seed=config.train.seed,
        )
        call: nn.Module = module
        if world.mode == "ddp":
            call = DistributedDataParallel(module)
        trainer = resumed(stage, config.train, call, options, world)
        outcome = trainer.train()
        if world.is_main:
            export_vae(stage, options.out / "vae")
        world.wait()
        return outcome, options.out / "vae"


def _clips(
    config: VaeRun,
    sources: Sequence[EpisodeSource],
    run: Path,
    world: World,
    tick: Callable[[int], None],
    workers: int,
) -> UInt8[Tensor, "N T h w 3"]:
    """Collected by the first rank, read by all; on a GPU they lie in its memory."""

    def collect() -> np.ndarray:
        seed, size, num = config.train.seed, config.size, config.clips + config.held_out
        path = run / "clips.npy"
        return collect_clips(sources, num, config.frames, config.strides, size, seed, path, tick, workers)

    if world.is_main:
        collect()
    world.wait()
    return torch.from_numpy(np.array(collect())).to(world.device)

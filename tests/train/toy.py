"""A model of a few thousand weights and a run on toy samples, in this process or as a program of its own."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch

from hostbot.data.batches import DrawConfig, Mixture, Pool
from hostbot.data.samples import Store
from hostbot.model.experts import ExpertConfig
from hostbot.model.host import HostConfig, HostModel
from hostbot.model.tokens import GridConfig
from hostbot.train.config import OptimConfig, TrainConfig
from hostbot.train.contract import Hooks
from hostbot.train.distributed import distribute, joined
from hostbot.train.loop import Trainer
from hostbot.train.stages import LossWeights, Policy, PolicyStage

VIDEO = ExpertConfig(dim=32, ffn_dim=48, num_layers=2, num_heads=2, head_dim=12, text_dim=4, freq_dim=16)
MODEL = HostConfig(
    video=VIDEO,
    action=replace(VIDEO, dim=16, ffn_dim=24),
    grid=GridConfig(latent_channels=2, num_views=3, view_height=1, view_width=1, patch=1, demo_latents=4),
    action_dim=20,
    state_dim=20,
    horizon=4,
    text_length=3,
    action_head_norm=True,
    stem=3,
)
CONFIG = TrainConfig(
    steps=12,
    batch=8,
    micro=4,
    optim=OptimConfig(lr=1e-3, warmup=3, decay="cosine"),
    ema=0.9,
    precision="float32",
    log_every=2,
    save_every=3,
)


def make_stage(store: Path, seed: int = 0, model: HostConfig = MODEL, **draw: object) -> PolicyStage:
    opened = Store(store)
    g = torch.Generator().manual_seed(5)
    texts = torch.randn(len(opened.info.texts), 3, 4, generator=g)
    pool = Pool(opened, texts, torch.device("cpu"), True)
    torch.manual_seed(seed)
    policy = Policy(HostModel(model), LossWeights(flow=1.0, point=0.5), shared=2, cells=2)
    config = DrawConfig(micro=4, shared=2, **draw)  # type: ignore[arg-type]
    return PolicyStage(module=policy, samples=Mixture(pools=[pool], weights=[1.0]), draw=config, seed=seed)


def run(
    store: Path, out: Path, config: TrainConfig = CONFIG, mode="single", hooks=None, minutes=float("inf")
):
    """Train or go on; the trainer afterwards. On one thread, here as in a program: sums differ with their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _run(store, out, config, mode, hooks or Hooks(), minutes)
    finally:
        torch.set_num_threads(threads)


def _run(store: Path, out: Path, config: TrainConfig, mode: str, hooks: Hooks, minutes: float) -> Trainer:
    stage = make_stage(store, config.seed)
    with joined(mode, "cpu") as world:
        stage.module.model.checkpointing = config.checkpointing
        call = distribute(stage.module, stage.module.model, world, config.precision == "bfloat16")
        trainer = Trainer(
            stage=stage, config=config, run=out, world=world, call=call, hooks=hooks, minutes=minutes
        )
        trainer.resume()
        trainer.outcome = trainer.train()
        return trainer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mode", default="single")
    parser.add_argument("--config", type=json.loads, default={})
    args = parser.parse_args()
    run(args.store, args.out, replace(CONFIG, **args.config), args.mode)


if __name__ == "__main__":
    main()

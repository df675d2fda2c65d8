"""A training run as a process of its own: python -m tests.align.training OUT [steps] [--resume] [--slow]."""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import torch

from hostbot.align.cache import CacheConfig, build_cache
from hostbot.align.distributed import joined
from hostbot.align.draw import Pairs
from hostbot.align.qwen import QwenConfig, QwenFrameEncoder
from hostbot.align.recipe import TrainConfig, small_draw, small_recipe
from hostbot.align.small import SmallConfig, SmallFrameEncoder
from hostbot.align.train import Trainer
from tests.align.fakes import FilmSource, groups

ENCODER = SmallConfig(size=32, width=8, offsets=(-1, 0, 1), embedding=16)
CONFIG = TrainConfig(
    steps=12, batch_size=4, learning_rate=3e-4, warmup=3, bf16=False, save_every=4, look_every=6,
    draw=small_draw(max_steps=14), two_looks=0.5, negatives=0.1,
    loss=small_recipe().loss,
)  # fmt: skip


def make_pairs(root, config=CONFIG.draw, seed=0, **options):
    sources = {
        "robot": FilmSource("robot", views=("left_wrist", "right_wrist", "third_person"), seed=1, **options),
        "human": FilmSource("human", seed=2, **options),
    }
    caches = {
        body: build_cache(source, root / "cache", CacheConfig(size=32, max_frames=24))
        for body, source in sources.items()
    }
    return Pairs(caches, groups(**sources), config, seed)


def make_trainer(root, config=CONFIG, world=None, qwen=None, **options):
    torch.manual_seed(0)
    pairs = make_pairs(root, config.draw, config.seed, **options)
    if qwen is None:
        return Trainer(SmallFrameEncoder(ENCODER), pairs, config, root / "run", world)
    config = dataclasses.replace(config, steps=3, draw=dataclasses.replace(config.draw, max_steps=4))
    encoder = QwenFrameEncoder(QwenConfig(folder=str(qwen), size=32, embedding=16))
    return Trainer(encoder, Pairs(pairs.caches, pairs.tasks, config.draw, 0), config, root / "run", world)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--qwen", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with joined("cpu") as world:
        trainer = make_trainer(arguments.out, world=world, qwen=arguments.qwen)
        if arguments.resume:
            trainer.resume()
        losses = []
        for report in trainer.run():
            losses.append(report.total)
            print(report.step, flush=True)
            time.sleep(0.2 if arguments.slow else 0)
        if world.leads:
            (arguments.out / "losses.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main()

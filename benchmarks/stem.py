"""How exactly a small transformer sees where a held block is from where it belongs, with tokens made in several ways.

    python benchmarks/stem.py        # half an hour on two cores

Scenes are those of stacking one block on another; the robot has taken the one and holds it anywhere over the table.
From the latents of the third-person view, the hand's state and a number for the pair of colours the network tells how
far the block has to go, along and across the table. It is tried on scenes it has not learned from. Tokens are patches
of latents in a linear map, as in Wan, of sixteen or eight pixels, or sixteen with convolutions (`train --stem`).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from measure import commit, hardware, save
from torch import Tensor, nn
from vae_probe import latents_of

from hostbot.cli.policies import SHIPPED, policy_folder
from hostbot.model.layers import Linear
from hostbot.model.stem import Stem
from hostbot.model.tokens import GridConfig, patchify
from hostbot.sim.catalogue import task
from hostbot.sim.demonstrator import VIEW
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.video import fit_frames

PAIRS = tuple(permutations(("red", "green", "blue", "yellow"), 2))
PLACES = 6
"""Where a block is held, one after the other, in one scene."""
NEAR = 0.12
"""Metres from its place, in most cases."""
TABLE = ((0.16, -0.06), (0.38, 0.26))
DIM, DEPTH, HEADS = 128, 4, 4
KINDS = {"16 pixels": (4, False), "16 pixels, convolutions": (4, True), "8 pixels": (2, False)}
Held = tuple[np.ndarray, np.ndarray, np.ndarray, int]
"""Picture, the hand's state, metres to go, pair of colours."""


def scene(number: int) -> list[Held]:
    """A block held at several places of one scene."""
    pair = number % len(PAIRS)
    one = task("stack-{}_block-{}_block".format(*PAIRS[pair]))
    top, base = (thing.name for thing in one.things)
    env = SimEnv(one, EnvConfig(views=(VIEW,)))
    env.begin(700_000 + number)
    assert env.world is not None
    actor, rng = env.expert(steady=True), np.random.default_rng(number)
    while env.frame < 80 and not any(event.name == "lift" for event in actor.events):
        env.advance(actor.act())
    hand = slice(0, 10) if env.main == "left" else slice(10, 20)
    found: list[Held] = []
    for _ in range(PLACES):
        for told in actor.swerve(_away(env, base, env.state()[hand][:3], rng)):
            env.advance(told)
        if env.held().get(env.main) != top:
            break
        gap = (env.world.pose(base).pos - env.world.pose(top).pos)[:2]
        picture = fit_frames(env.pictures()[VIEW][None], (64, 64))[0]
        found.append((picture, env.state()[hand], gap, pair))
    env.close()
    return found


def _away(env: SimEnv, base: str, hand: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    assert env.world is not None
    if rng.random() < 0.6:
        angle, far = rng.uniform(0, 2 * math.pi), rng.uniform(0, NEAR)
        goal = env.world.pose(base).pos[:2] + far * np.array([math.cos(angle), math.sin(angle)])
    else:
        goal = rng.uniform(*TABLE) * (1, 1 if env.main == "left" else -1)
    height = env.world.ceiling + rng.uniform(0.05, 0.12)
    return np.array([*goal, height]) - hand


class Seer(nn.Module):
    """Tokens of one view, the hand and the colours; a read-out token says where to."""

    def __init__(self, grid: GridConfig, convolved: bool) -> None:
        super().__init__()
        self.grid, tokens = grid, grid.view_tokens
        self.patches = Linear(grid.patch_dim, DIM)
        self.stem = Stem(grid, 64, DIM) if convolved else None
        self.place = nn.Parameter(0.02 * torch.randn(1, tokens, DIM))
        self.pair, self.hand = nn.Embedding(len(PAIRS), DIM), nn.Linear(10, DIM)
        self.read = nn.Parameter(0.02 * torch.randn(1, 1, DIM))
        layer = nn.TransformerEncoderLayer(
            DIM, HEADS, 4 * DIM, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.out = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 2))

    def forward(self, latents: Tensor, hand: Tensor, pair: Tensor) -> Tensor:
        """Decimetres to go."""
        framed = latents[:, :, None]
        seen = self.patches(patchify(framed, self.grid.patch)) + self.place
        if self.stem is not None:
            seen = seen + self.stem(framed)
        asked = [self.read.expand(len(seen), -1, -1), self.pair(pair)[:, None], self.hand(hand)[:, None]]
        out: Tensor = self.out(self.layers(torch.cat([*asked, seen], 1))[:, 0])
        return out


def batches(rows: Tensor, size: int) -> Iterator[Tensor]:
    """All of them in another order."""
    yield from rows[torch.randperm(len(rows))].split(size)


def moved(latents: Tensor) -> Tensor:
    """By up to two latents, as a policy's pictures are while it learns."""
    wide = F.pad(latents, (2, 2, 2, 2), mode="replicate")
    down, across = (int(n) for n in torch.randint(5, (2,)))
    return wide[:, :, down : down + latents.shape[2], across : across + latents.shape[3]]


def learn(kind: str, data: dict[str, Tensor], learned: int, epochs: int, seed: int) -> dict[str, Any]:
    """Train one network and try it where it has not been."""
    torch.manual_seed(seed)
    patch, convolved = KINDS[kind]
    _, channels, height, width = data["latents"].shape
    grid = GridConfig(
        latent_channels=channels,
        num_views=1,
        view_height=height,
        view_width=width,
        patch=patch,
        demo_latents=1,
    )
    net = Seer(grid, convolved)
    optimiser = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.05)
    steps, size, done = epochs * math.ceil(learned / 64), 64, 0
    begun, curve = time.perf_counter(), []
    for epoch in range(epochs):
        for rows in batches(torch.arange(learned), size):
            rate = min(1.0, done / 100) * 0.5 * (1 + math.cos(math.pi * done / steps))
            for group in optimiser.param_groups:
                group["lr"] = 1e-3 * rate
            out = net(moved(data["latents"][rows].float()), data["hand"][rows], data["pair"][rows])
            loss = F.smooth_l1_loss(out, data["gap"][rows], beta=0.1)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            done += 1
        if epoch % 4 == 3:
            curve.append({"epoch": epoch + 1, **_tried(net, data, learned)})
            print(kind, curve[-1], flush=True)
    return {
        "tokens": grid.view_tokens,
        "seconds": round(time.perf_counter() - begun),
        "centimetres off": curve,
    }


@torch.no_grad()
def _tried(net: Seer, data: dict[str, Tensor], learned: int) -> dict[str, float]:
    net.eval()
    rows = torch.arange(learned, len(data["gap"]))
    parts = rows.split(256)
    out = torch.cat([net(data["latents"][r].float(), data["hand"][r], data["pair"][r]) for r in parts])
    net.train()
    off, far = 10 * (out - data["gap"][rows]).norm(dim=1), 10 * data["gap"][rows].norm(dim=1)
    return {
        "median": round(float(off.median()), 2),
        "mean": round(float(off.mean()), 2),
        "median within 8 cm": round(float(off[far < 8].median()), 2),
        "share below 2 cm": round(float((off < 2).float().mean()), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=2400)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    flags = parser.parse_args()
    with ProcessPoolExecutor(flags.workers, get_context("spawn")) as pool:
        scenes = list(pool.map(scene, range(flags.scenes), chunksize=20))
    held = [one for found in scenes for one in found]
    learned = sum(len(found) for found in scenes[: int(0.88 * len(scenes))])
    hands = torch.from_numpy(np.stack([one[1] for one in held])).float()
    data = {
        "latents": latents_of(policy_folder(SHIPPED) / "vae", np.stack([one[0] for one in held])).half(),
        "hand": (hands - hands[:learned].mean(0)) / (hands[:learned].std(0) + 1e-4),
        "gap": 10 * torch.from_numpy(np.stack([one[2] for one in held])).float(),
        "pair": torch.tensor([one[3] for one in held]),
    }
    print(f"{len(held)} states, {learned} of them to learn from", flush=True)
    result = {
        "benchmark": "stem",
        "commit": commit(),
        "hardware": hardware(torch.device("cpu")),
        "seed": flags.seed,
        "states": len(held),
        "learned": learned,
        "found": {kind: learn(kind, data, learned, flags.epochs, flags.seed) for kind in flags.kinds},
    }
    save(flags.out, "stem-cpu", result)


if __name__ == "__main__":
    main()

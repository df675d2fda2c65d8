"""Whether two whole videos show the same task, learned: one linear map for demonstrations, one for executions.

Closeness of matched frames says little of which task is shown: the losses that shape frames look at moments. What a
video's frames have in common, their mean, maximum and deviation, says more once it is known which of it tells tasks
apart. That is learned after the encoder, from same-task pairs against the other tasks of a batch, in seconds.

Legend: n pairs, d embedding width, f = 3 d numbers of a video, k numbers it is mapped to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, Int
from torch import nn

from hostbot.types import BadInput


@dataclass(frozen=True, kw_only=True)
class LikenessConfig:
    """How the maps are learned."""

    width: int = 64
    steps: int = 1000
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.3
    dropout: float = 0.5
    temperature: float = 0.1
    seed: int = 0


def summary(points: Float[np.ndarray, "T d"]) -> Float32[np.ndarray, " f"]:
    """What a video's frames have in common, in no order."""
    return np.concatenate([points.mean(0), points.max(0), points.std(0)]).astype(np.float32)


def likeness(
    demo: Float[np.ndarray, "T d"], robot: Float[np.ndarray, "N d"], maps: Float32[np.ndarray, "2 k f+1"]
) -> float:
    """Cosine of the two videos where the maps take them."""
    there, back = (m[:, :-1] @ summary(v) + m[:, -1] for m, v in zip(maps, (demo, robot), strict=True))
    return float(there @ back / (np.linalg.norm(there) * np.linalg.norm(back) + 1e-9))


def learn_likeness(
    demos: Float32[np.ndarray, "n f"],
    robots: Float32[np.ndarray, "n f"],
    tasks: Int[np.ndarray, " n"],
    config: LikenessConfig = LikenessConfig(),  # noqa: B008  frozen
) -> Float32[np.ndarray, "2 k f+1"]:
    """Maps by which a video finds the other body's of its task among those of a batch; offsets in the last column."""
    if len(np.unique(tasks)) < 2:
        raise BadInput(f"likeness needs two tasks to tell apart, got {len(np.unique(tasks))}")
    rng, own = np.random.default_rng(config.seed), torch.from_numpy(tasks)
    videos = np.stack([demos, robots])
    mean, std = videos.mean(1), videos.std(1) + 1e-3
    inputs = torch.from_numpy((videos - mean[:, None]) / std[:, None])
    torch_rng = torch.Generator().manual_seed(config.seed)
    start = torch.randn(config.width, videos.shape[2], generator=torch_rng) / np.sqrt(videos.shape[2])
    maps = nn.Parameter(start.repeat(2, 1, 1))
    optimiser = torch.optim.AdamW([maps], config.learning_rate, weight_decay=config.weight_decay)
    friends = {task: np.nonzero(tasks == task)[0] for task in np.unique(tasks)}
    for _ in range(config.steps):
        first = rng.permutation(len(tasks))[: config.batch_size]
        second = np.array([rng.choice(friends[task]) for task in tasks[first]])
        chosen = torch.stack([inputs[0, first], inputs[1, second]])
        kept = torch.rand(chosen.shape, generator=torch_rng) >= config.dropout
        found = F.normalize(torch.bmm(chosen * kept / (1 - config.dropout), maps.transpose(1, 2)), dim=-1)
        scores = found[0] @ found[1].T / config.temperature
        twins = (own[first][:, None] == own[first]) & ~torch.eye(len(first), dtype=torch.bool)
        scores, right = scores.masked_fill(twins, -torch.inf), torch.arange(len(first))
        loss = F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    scaled = maps.detach().numpy() / std[:, None]
    return np.concatenate([scaled, -(scaled @ mean[:, :, None])], 2).astype(np.float32)

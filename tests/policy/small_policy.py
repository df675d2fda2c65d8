"""A whole policy of random weights at 16 x 16 pixels: everything is there, nothing is learned, a cycle takes ms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from hostbot.data.stats import ACTION, RELATIVE, STATE, FeatureStats, Statistics
from hostbot.geometry import matrix_to_rot6d
from hostbot.model.experts import ExpertConfig
from hostbot.model.host import HostConfig, HostModel
from hostbot.model.text import HashedWords
from hostbot.model.tokens import GridConfig
from hostbot.model.vae import LatentCodec, tiny_vae
from hostbot.policy.bundle import PolicySpec
from hostbot.policy.contract import CascadeConfig
from hostbot.policy.policy import Policy, PolicyConfig
from hostbot.types import Demonstration, Observation, bimanual

VIDEO = ExpertConfig(dim=32, ffn_dim=48, num_layers=2, num_heads=2, head_dim=16, text_dim=16, freq_dim=16)
MODEL = HostConfig(
    video=VIDEO,
    action=replace(VIDEO, dim=16, ffn_dim=24),
    grid=GridConfig(latent_channels=16, num_views=3, view_height=2, view_width=2, demo_latents=5),
    action_dim=20,
    state_dim=20,
    horizon=16,
    text_length=24,
)
ROBOT = bimanual(rate_hz=16.0)
QUICK = CascadeConfig(steps_p=2, steps_o=2, steps_a=2, num_localisations=4)
HOME = np.tile(
    np.concatenate([[0.3, 0.1, 0.2], matrix_to_rot6d(np.diag([1.0, -1.0, -1.0])), [0.05]]), 2
).astype(np.float32)


def feature(low, high) -> FeatureStats:
    low, high = np.broadcast_to(low, 20).tolist(), np.broadcast_to(high, 20).tolist()
    middle = ((np.array(low) + high) / 2).tolist()
    rows = dict.fromkeys(("mean", "std", "q10", "q50", "q90"), tuple(middle))
    return FeatureStats(min=tuple(low), max=tuple(high), q01=tuple(low), q99=tuple(high), count=100, **rows)


def statistics(horizon: int = 16) -> Statistics:
    turn = np.concatenate([[0.0] * 3, matrix_to_rot6d(np.eye(3)), [0.04]])
    span = np.array([0.1] * 3 + [0.2] * 6 + [0.04])
    relative = feature(np.tile(turn - span, 2), np.tile(turn + span, 2))
    return Statistics(
        format=1,
        fingerprint="made-up",
        num_episodes=1,
        num_frames=100,
        num_removed=0,
        horizon=horizon,
        embodiment=ROBOT,
        features={STATE: feature(-1.0, 1.0), ACTION: feature(-1.0, 1.0), RELATIVE: relative},
    )


def small_vae(seed: int = 0):
    torch.manual_seed(seed)
    return tiny_vae()


def small_spec(vae, **changes) -> PolicySpec:
    spec = PolicySpec(
        name="small",
        embodiment=ROBOT,
        image_size=(16, 16),
        video_stride=4,
        text_encoder=HashedWords(16, 24).identity,
        codec=LatentCodec(vae).identity,
        cascade=QUICK,
    )
    return replace(spec, **changes)


def small_model(seed: int = 0) -> HostModel:
    torch.manual_seed(seed)
    model = HostModel(MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def small_policy(config: PolicyConfig | None = None, **changes) -> Policy:
    vae = small_vae()
    spec = small_spec(vae, **changes)
    return Policy(small_model(), LatentCodec(vae), HashedWords(16, 24), spec, statistics(), config)


def video(length: int = 100, seed: int = 0, views=("third_person",), size: int = 16, fps: float = 16.0):
    rng = np.random.default_rng(seed)
    frames = {view: rng.integers(0, 255, (length, size, size, 3), np.uint8) for view in views}
    return Demonstration(views=frames, fps=fps, instruction="Stack the bowls.")


def observation(seed: int = 0, size: int = 16) -> Observation:
    rng = np.random.default_rng(seed)
    state = HOME + rng.normal(0, 0.01, 20).astype(np.float32)
    pictures = {view: rng.integers(0, 255, (size, size, 3), np.uint8) for view in ROBOT.views}
    return Observation(views=pictures, state=state)

"""One human video and one robot trajectory of the bench, learned by heart by a small policy, and tried in the bench."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hostbot.couple import CoupleConfig
from hostbot.data.batches import DrawConfig, Mixture, Pool
from hostbot.data.pairs import Pair
from hostbot.data.sampling import SampleConfig
from hostbot.data.stats import StatsConfig, compute_statistics
from hostbot.model.experts import ExpertConfig
from hostbot.model.host import FlowConfig, HostConfig, HostModel
from hostbot.model.text import HashedWords
from hostbot.model.tokens import GridConfig
from hostbot.model.vae import LatentCodec, calibrate, tiny_vae
from hostbot.policy.policy import Policy as Acting
from hostbot.sim.catalogue import task
from hostbot.sim.demonstrator import DemonstratorConfig, demonstrate
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.episode import robot_episode
from hostbot.train.config import OptimConfig, TrainConfig
from hostbot.train.distributed import joined
from hostbot.train.export import export
from hostbot.train.latents import ClipEncoder
from hostbot.train.loop import Trainer
from hostbot.train.prepare import Preparation, labels_of, read_texts
from hostbot.train.stages import LossWeights, Policy, PolicyStage
from hostbot.types import Demonstration, EpisodeInfo, Trajectory
from hostbot.video import fit_frames

VIEWS = ("third_person",)
SIZE = 32
EXPERT = ExpertConfig(dim=96, ffn_dim=192, num_layers=3, num_heads=2, head_dim=48, text_dim=32, freq_dim=64)
MODEL = HostConfig(
    video=EXPERT,
    action=EXPERT,
    grid=GridConfig(latent_channels=16, num_views=1, view_height=4, view_width=4, demo_latents=5),
    action_dim=20,
    state_dim=20,
    horizon=16,
    text_length=12,
    action_head_norm=True,
    flow=FlowConfig(unseen_future=0.5, lambda_a=30.0),
)


@dataclass
class Recorded:
    """One execution as an episode source."""

    made: Trajectory | Demonstration
    name: str

    views = VIEWS
    fps = 16.0

    @property
    def embodiment(self):
        return self.made.embodiment if isinstance(self.made, Trajectory) else None

    @property
    def widths(self) -> Mapping[str, int]:
        return {"observation.state": 20, "action": 20} if isinstance(self.made, Trajectory) else {}

    def __len__(self) -> int:
        return 1

    def episode(self, index: int) -> EpisodeInfo:
        words = self.made.instruction
        return EpisodeInfo(index=0, length=len(self.made), instruction=words, tasks=(words,))

    def rows(self, index, names):
        return {"observation.state": self.made.state, "action": self.made.action}

    def frames(self, index, view, frame_indices, size=None):
        return fit_frames(self.made.views[view][list(frame_indices)], size)

    def events(self, index):
        return tuple(e for e in self.made.events if e.frame < len(self.made))


def record(name: str, seed: int) -> dict[str, Recorded]:
    made = robot_episode(task(name), seed, EnvConfig(size=SIZE, views=VIEWS))
    demo, _, done = demonstrate(task(name), seed, DemonstratorConfig(size=SIZE))
    assert made.success
    assert done
    return {"robot": Recorded(made.trajectory, "robot"), "human": Recorded(demo, "human")}


def learn(sources: dict[str, Recorded], out: Path, steps: int, batch: int = 32) -> Acting:
    torch.manual_seed(0)
    vae = tiny_vae()
    frames = torch.from_numpy(sources["human"].frames(0, "third_person", range(17), (SIZE, SIZE)))
    calibrate(vae, frames.permute(3, 0, 1, 2)[None].float() / 127.5 - 1)
    robot = sources["robot"].made.embodiment
    labels, name = labels_of("events", sources, "human")
    work = Preparation(
        sources=sources,
        pairs=[Pair(task="it", demo_body="human", demo=0, robot=0)],
        labels=labels,
        labels_name=name,
        statistics=compute_statistics(sources["robot"], StatsConfig(horizon=16), embodiment=robot),
        config=SampleConfig(
            couple=CoupleConfig(window=64, horizon=16, stride=4), embodiment=robot, image_size=(SIZE, SIZE)
        ),
        encoder=ClipEncoder(LatentCodec(vae)),
        text=HashedWords(32, 12),
        part="train",
        split="",
    )
    store, pieces = work.begin(out / "store", clips=64)
    list(work.go_on(store, pieces, 0, (0, 1)))
    texts, words = read_texts(store)
    pool = Pool(store.whole(), texts, torch.device("cpu"), True)
    policy = Policy(HostModel(MODEL), LossWeights(), shared=8)
    stage = PolicyStage(
        module=policy,
        samples=Mixture(pools=[pool], weights=[1.0]),
        draw=DrawConfig(micro=batch, shared=8, decisions=0.0, demo_dropout=0.0, one_view=0.0),
        seed=0,
    )
    config = TrainConfig(
        steps=steps,
        batch=batch,
        micro=batch,
        optim=OptimConfig(
            kind="muon", lr=2e-3, weight_decay=0.0, warmup=20, decay="cosine", decay_from=0.3, floor=0.01
        ),
        ema=0.98,
        precision="float32",
        save_every=10**6,
        log_every=50,
    )
    with joined("single", "cpu") as world:
        trainer = Trainer(stage=stage, config=config, run=out / "run", world=world, call=policy)
        trainer.train()
        folder = export(trainer, policy, store.info, name="pair", text=words, vae=vae, notes={})
    return Acting.load(folder)


def attempt(policy: Acting, sources: dict[str, Recorded], name: str, seed: int, noise: int) -> bool:
    """Closed loop from the pair's start state; ``noise`` seeds what the cascade starts from."""
    env = SimEnv(task(name), EnvConfig(size=SIZE, views=VIEWS))
    env.reset(seed=seed)
    skill = policy.acquire(sources["human"].made, sources["robot"].made.instruction)
    session, done = policy.start(skill, noise), False
    while not done and env.frame < 160 and not (session.finished and env.frame > 120):
        for action in policy.step(session, env.observe()).actions:
            done = env.advance(np.asarray(action)) or done
            if done:
                break
    env.close()
    return done

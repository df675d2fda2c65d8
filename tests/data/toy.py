"""Two bodies doing two tasks, every frame a grey that says which it is, and an "encoder" that averages greys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hostbot.couple import CoupleConfig
from hostbot.data.fill import fill, pieces_of
from hostbot.data.pairs import SplitConfig, make_split, pairs
from hostbot.data.plan import Planner
from hostbot.data.samples import Origin, create_store
from hostbot.data.sampling import SampleConfig, choose_pairs
from hostbot.data.stats import StatsConfig, compute_statistics, fingerprint
from hostbot.data.takes import TakeConfig
from hostbot.sim.progress import correspondence
from hostbot.types import Camera, Event, bimanual
from tests.data.fakes import MemorySource, robot_episode

COUPLE = CoupleConfig(window=12, horizon=4, stride=1)
ROBOT = bimanual(16.0)
SIZE = (4, 4)
ABOVE = Camera(
    view="third_person",
    position=(0.0, 0.0, 2.0),
    rotation=(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0),
    fov_y=90.0,
)


class GreySource(MemorySource):
    """Frame n of episode e is grey 3 e + n, one more for each view after the first."""

    def __init__(self, episodes, events, **options):
        super().__init__(episodes, **options)
        self._events = events

    def frames(self, index, view, frame_indices, size=None):
        grey = 3 * index + np.array(frame_indices) + self.views.index(view)
        return np.broadcast_to(grey[:, None, None, None], (len(grey), *(size or SIZE), 3)).astype(np.uint8)

    def events(self, index):
        return self._events[index]


class HumanSource(GreySource):
    @property
    def widths(self):
        return {}


def marks(*frames):
    return tuple(Event(name=n, frame=f) for n, f in zip(("contact", "push", "release"), frames, strict=False))


def sources(lengths=(20, 26, 31, 17), human=(40, 28), tasks=("push the cup", "open the lid")):
    rng = np.random.default_rng(0)
    robot = [(tasks[i % 2], robot_episode(rng, n, ROBOT)) for i, n in enumerate(lengths)]
    hands = [(tasks[i % 2], {"x": np.zeros((n, 1))}) for i, n in enumerate(human)]
    return {
        "robot": GreySource(
            robot, [marks(n // 4, n // 2) for n in lengths], name="robot", embodiment=ROBOT, views=ROBOT.views
        ),
        "human": HumanSource(
            hands, [marks(n // 3, n // 2) for n in human], name="human", views=("third_person",)
        ),
    }


def sample_config(**changes):
    given = {
        "couple": COUPLE,
        "embodiment": ROBOT,
        "image_size": SIZE,
        "demos": 2,
        "take": TakeConfig(clean=None),
    }
    return SampleConfig(**{**given, **changes})


@dataclass(frozen=True)
class Truth:
    """Correspondences from events, as the bench has them."""

    bodies: dict

    def __call__(self, pair):
        robot, demo = self.bodies["robot"], self.bodies[pair.demo_body]
        return correspondence(
            robot.events(pair.robot),
            demo.events(pair.demo),
            robot.episode(pair.robot).length,
            demo.episode(pair.demo).length,
        )


def truth(bodies):
    return Truth(bodies)


def averages(frames):
    """Latent f is the mean grey of its frames in every view: 2 channels, one number high and wide a view."""
    grey = frames[..., 0, 0, 0].astype(np.float32)
    first, rest = grey[..., :1], grey[..., 1:]
    latent = np.concatenate([first, rest.reshape(*rest.shape[:-1], -1, 4).mean(-1)], axis=-1)
    out = latent.transpose(0, 2, 1)[:, :, None, :, None]
    return np.concatenate([out, -out], axis=2).astype(np.float16)


def small(frames):
    """The same at the scale of latents."""
    return averages(frames) / np.float16(50)


def statistics_of(bodies):
    return compute_statistics(bodies["robot"], StatsConfig(horizon=4, clean=None), embodiment=ROBOT)


def make_plan(bodies, config, demo_body="robot", cameras=()):
    statistics = statistics_of(bodies)
    split = make_split(bodies, SplitConfig(validation=0))
    chosen = choose_pairs(pairs(split, "train", demo_body), config)
    return Planner(bodies, statistics, config, cameras).plan(chosen, truth(bodies)), chosen


def make_store(folder, bodies=None, config=None, demo_body="robot", cameras=(), filled=True, encode=averages):
    bodies, config = bodies or sources(), config or sample_config()
    plan, _ = make_plan(bodies, config, demo_body, cameras)
    pieces = pieces_of(plan, 16)
    origin = Origin(
        fingerprints={b: fingerprint(s) for b, s in bodies.items()},
        latents="grey",
        labels="events",
        part="train",
    )
    store = create_store(folder, plan, config, origin, statistics_of(bodies), (2, 3, 1), len(pieces))
    if filled:
        list(fill(store, pieces, bodies, encode))
    return store

import numpy as np
import pytest

from hostbot.sim.catalogue import task
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.perturb import PERTURBATIONS, perturbed
from hostbot.types import BadInput

NAME = "cover-red_book-cyan_cloth"


def first_picture(kind, seed=3):
    env = SimEnv(task(NAME), perturbed(EnvConfig(views=("third_person",)), kind, seed))
    seen, _ = env.reset(seed=seed)
    return seen["third_person"].astype(int)


@pytest.mark.parametrize("kind", ["light", "objects", "scene"])
def test_it_can_be_seen(kind):
    assert np.abs(first_picture(kind) - first_picture("none")).mean() > 1


@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_the_expert_still_succeeds(kind):
    done = []
    for seed in (500, 501):
        env = SimEnv(task(NAME), perturbed(EnvConfig(views=()), kind, seed))
        env.reset(seed=seed)
        actor = env.expert()
        while env.frame < 320 and not env.advance(actor.act()):
            pass
        done.append(env.success)
    assert any(done)


def test_the_hand_moves_the_thing_and_leaves():
    env = SimEnv(task(NAME), perturbed(EnvConfig(views=()), "disturb", 0))
    env.reset(seed=3)
    before = env.world.pose("red_book").pos.copy()
    home = env.world.body.home_vector()
    heights = []
    for _ in range(40):
        env.advance(home)
        heights.append(env.world.pose("meddler").pos[2])
    assert np.linalg.norm((env.world.pose("red_book").pos - before)[:2]) > 0.02
    assert max(heights) > 0
    assert heights[-1] < -0.5


def test_an_unknown_one_is_refused():
    with pytest.raises(BadInput, match="no perturbation 'rain'"):
        perturbed(EnvConfig(), "rain", 0)

"""Hands that do nothing in particular: anywhere, in any posture, among things that novel tasks do not bring."""

import numpy as np
import pytest

pytest.importorskip("mujoco")

from hostbot.bench.annotated import annotated_human, annotated_robot
from hostbot.sim.catalogue import split, task
from hostbot.sim.demonstrator import DemonstratorConfig, Recording
from hostbot.sim.env import EnvConfig, SimEnv
from hostbot.sim.layout import NoRoom
from hostbot.sim.roaming import NAME, Roam, roaming

SECONDS = 4.0


def person(seed):
    return Recording(roaming(seed), seed, DemonstratorConfig(seconds=SECONDS))


def robot(seed):
    env = SimEnv(roaming(seed), EnvConfig(seconds=SECONDS, views=()))
    env.begin(seed)
    return env


def many(make, num=12):
    """Some seeds' worlds; in a few scenes there is no room."""
    found, seed = [], 700
    while len(found) < num:
        try:
            found.append(make(seed))
        except NoRoom:
            assert seed < 700 + 2 * num
        seed += 1
    return found


def leant(world):
    """How far each hand leans from pointing straight down."""
    return [
        float(np.arccos(np.clip(-world.body.pose(world.data, n).rot[2, 2], -1, 1))) for n in world.body.limbs
    ]


@pytest.mark.parametrize("body", ["human", "robot"])
def test_hands_get_everywhere_in_every_posture(body):
    places, leans, openings, moved = [], [], [], []
    for made in many(person if body == "human" else robot):
        world = made.world
        actor = made.actor if body == "human" else made.expert()
        before = {name: world.pose(name).pos.copy() for name in world.shapes}
        for _ in range(int(SECONDS * 16)):
            if body == "human":
                assert made.advance() or actor.frame >= SECONDS * 16
            else:
                made.advance(actor.act().astype(np.float32))
            vector = world.body.vector(world.data)
            hand = int(np.argmin(vector[[2, 12]]))
            places.append(vector[10 * hand : 10 * hand + 3])
            openings.append(vector[10 * hand + 9])
            leans.append(max(leant(world)))
        moved.append(max(np.linalg.norm(world.pose(n).pos - before[n]) for n in before) > 0.03)
        made.close()
    spread = np.ptp(np.array(places), axis=0)
    assert (spread > (0.2, 0.3, 0.15)).all(), spread
    assert np.ptp(openings) > 0.06
    assert np.mean(np.array(leans) > 0.7) > 0.05
    assert 0.3 < np.mean(moved) <= 1  # things are pushed, or knocked over


def test_a_seed_is_one_motion():
    one, same, other = (Roam(seed=s) for s in (5, 5, 6))
    take = many(person, 1)[0]
    assert list(one.keys(take.actor)) == list(same.keys(take.actor))
    assert list(one.keys(take.actor)) != list(other.keys(take.actor))
    take.close()


def test_what_is_held_is_not_let_go_at_once():
    held = [
        roam for seed in range(60) for roam in roaming(seed).script if isinstance(roam, Roam) and roam.holds
    ]
    assert 10 < len(held) < 40
    take = many(person, 1)[0]
    keys = Roam(seed=3, holds=6).keys(take.actor)
    assert not any(key.grips for key in keys[:6])
    assert any(key.grips for key in keys[6:])
    take.close()


def test_nothing_that_only_novel_tasks_have_is_there():
    ours = {thing.kind.__name__ for seed in range(40) for thing in roaming(seed).scene}
    known, new = (
        {thing.kind.__name__ for name in names for thing in task(name).scene}
        for names in (split().train, split().novel)
    )
    assert len(ours) > 20
    assert not ours & (new - known)


def test_it_is_never_done_and_kept_only_where_that_is_wanted():
    seed = next(s for s in range(700, 720) if not _no_room(s))
    config, other = DemonstratorConfig(seconds=1.0), EnvConfig(seconds=1.0)
    made = annotated_human(roaming(seed), seed, config, cameras=2, anyhow=True)
    assert [len(one.annotations.posture) for one in made] == [16, 16]
    assert annotated_human(roaming(seed), seed, config) == []
    found = annotated_robot(roaming(seed), seed, other, anyhow=True)
    assert found is not None
    assert len(found.annotations.posture) == 16
    assert annotated_robot(roaming(seed), seed, other) is None
    assert roaming(seed).name == NAME


def _no_room(seed):
    try:
        person(seed).close()
    except NoRoom:
        return True
    return False

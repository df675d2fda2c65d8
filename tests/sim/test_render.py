"""What is drawn depends on the scene alone."""

import numpy as np

from hostbot.sim.catalogue import split, task
from hostbot.sim.env import SimEnv


def test_a_view_looks_the_same_whichever_views_are_drawn_with_it():
    env = SimEnv(task(split().names("novel")[0]))
    env.reset(seed=3)
    together = env.pictures()
    for view, picture in together.items():
        alone = env._painter.draw(env._world().data, [view])[view]
        np.testing.assert_array_equal(alone, picture)


def test_the_table_stays_lit_when_a_wrist_turns_away():
    env = SimEnv(task("pour-purple_cup-yellow_bowl"))
    env.reset(seed=1)
    actor = env.expert()
    corner = []
    for _ in range(70):
        corner.append(env.pictures()["third_person"][-12:, :12].mean())
        if env.advance(actor.act()):
            break
    assert np.ptp(corner) < 6

"""What is drawn depends on the scene alone."""

import os
import subprocess
import sys

import numpy as np

from hostbot.sim.catalogue import split, task
from hostbot.sim.env import SimEnv
from hostbot.sim.render import _ROWS


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


def test_pictures_come_out_even_where_mujoco_was_imported_first():
    script = (
        "import mujoco; from hostbot.sim.catalogue import split, task; from hostbot.sim.env import SimEnv; "
        "env = SimEnv(task(split().names('novel')[0])); env.reset(seed=0); "
        "assert env.pictures()['third_person'].max() > 0"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "DISPLAY")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_pictures_developed_together_are_those_drawn_one_by_one():
    names = split().names("novel")[:2]
    envs, actors = [SimEnv(task(name)) for name in names], []
    for env in envs:
        env.begin(2)
        actors.append(env.expert())
    drawn = [[], []]
    for step in range(2 * _ROWS + 3):
        for number in (0, 1) if step % 3 else (0,):  # the other scene draws in between
            drawn[number].append(envs[number].pictures())
            envs[number].advance(actors[number].act())
    again = [SimEnv(task(name)) for name in names]
    actors = []
    for env in again:
        env.begin(2)
        actors.append(env.expert())
    for step in range(2 * _ROWS + 3):
        for number in (0, 1) if step % 3 else (0,):
            again[number].expose()
            if step == 5:
                again[number].pictures()  # a look in between changes nothing
            again[number].advance(actors[number].act())
    for number in (0, 1):
        developed = again[number].develop()
        assert len(developed) == len(drawn[number])
        for one, other in zip(developed, drawn[number], strict=True):
            assert one.keys() == other.keys()
            for view in one:  # a pixel on an edge may round otherwise elsewhere in the target
                assert (one[view] != other[view]).any(-1).mean() < 0.01
        assert again[number].develop() == []


def test_one_that_develops_leaves_what_another_has_exposed():
    envs = [SimEnv(task(name)) for name in split().names("novel")[:2]]
    for env in envs:
        env.begin(2)
    wanted = [env.pictures() for env in envs]
    first, second = envs
    first.expose()
    second.expose()
    (mine,) = first.develop()
    first.expose()
    (theirs,) = second.develop()
    for got, drawn in ((mine, wanted[0]), (theirs, wanted[1])):
        for view in drawn:
            np.testing.assert_array_equal(got[view], drawn[view])


def test_scenes_of_one_process_do_not_draw_into_each_other():
    names = split().names("novel")[:3]
    alone = []
    for name in names:
        env = SimEnv(task(name))
        env.reset(seed=1)
        alone.append(env.pictures())
        env.close()
    envs = [SimEnv(task(name)) for name in names]
    for env in envs:
        env.reset(seed=1)
    for _ in range(2):
        for env, wanted in zip(envs, alone, strict=True):
            for view, picture in env.pictures().items():
                np.testing.assert_array_equal(picture, wanted[view])

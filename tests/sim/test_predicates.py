"""Edges of the predicates: almost placed, placed then knocked over, still held, too short."""

import mujoco
import numpy as np
import pytest

from hostbot.sim.catalogue import task
from hostbot.sim.demonstrator import DemonstratorConfig, Recording
from hostbot.sim.env import EnvConfig, Judge, SimEnv
from hostbot.sim.pose import quat_of, rot_x, rot_z


def world_of(name, seed=0):
    env = SimEnv(task(name), EnvConfig(views=()))
    env.reset(seed=seed)
    return env, env.world


def put(world, name, pos, rot=None):
    start = world.model.joint(name).qposadr[0]
    world.data.qpos[start : start + 3] = pos
    world.data.qpos[start + 3 : start + 7] = quat_of(np.eye(3) if rot is None else rot)
    start = world.model.joint(name).dofadr[0]
    world.data.qvel[start : start + 6] = 0


def settle(world, steps=12):
    home = world.body.home_vector()
    for _ in range(steps):
        world.step(home)


def test_inside_needs_the_thing_within_the_walls():
    env, world = world_of("place_in-red_apple-white_bowl")
    bowl = world.pose("white_bowl").pos
    put(world, "red_apple", bowl + np.array([0, 0, 0.03]))
    settle(world)
    assert env.task.success.holds(world)
    wide = world.shapes["white_bowl"].radius + 0.03
    put(world, "red_apple", bowl + np.array([wide, 0, 0]))
    settle(world)
    assert not env.task.success.holds(world)


def test_inside_does_not_count_what_hovers():
    env, world = world_of("place_in-red_apple-white_bowl")
    put(world, "red_apple", world.pose("white_bowl").pos + np.array([0, 0, 0.12]))
    mujoco.mj_forward(world.model, world.data)
    assert not env.task.success.holds(world)


def test_a_plate_that_was_pushed_off_the_table_is_not_wiped_and_nobody_goes_after_it():
    one = task("wipe-cyan_plate-yellow_sponge")
    take = Recording(one, 780001, DemonstratorConfig())
    world, lowest = take.world, 1.0
    while not any(event.name == "contact" and event.frame > 40 for event in take.actor.events):
        assert take.advance()
    world.wiped["cyan_plate"] = {f"stain{k}" for k in range(world.stains("cyan_plate"))}
    assert one.success.holds(world)
    put(world, "cyan_plate", (0.3, -0.9, -0.2))
    mujoco.mj_forward(world.model, world.data)
    assert not one.success.holds(world)
    for _ in range(96):
        going = take.advance()
        lowest = min(lowest, *(world.body.pose(world.data, limb).pos[2] for limb in world.body.limbs))
    assert world.fallen("cyan_plate")
    assert lowest > -0.02
    assert going
    assert not take.judge.success
    take.close()


def test_a_cup_that_is_put_down_in_a_bowl_with_its_ball_is_not_poured():
    env, world = world_of("pour-purple_cup-yellow_bowl")
    bowl = world.pose("yellow_bowl").pos
    inner = world.pose("orange_ball").pos - world.pose("purple_cup").pos
    put(world, "purple_cup", bowl + np.array([0, 0, 0.012]))
    put(world, "orange_ball", bowl + np.array([0, 0, 0.012]) + inner)
    settle(world)
    assert np.linalg.norm((world.pose("orange_ball").pos - bowl)[:2]) < world.shapes["yellow_bowl"].inner
    assert not env.task.success.holds(world)
    put(world, "purple_cup", bowl + np.array([0, 0, 0.3]))
    put(world, "orange_ball", bowl + np.array([0, 0, 0.02]))
    mujoco.mj_forward(world.model, world.data)
    assert env.task.success.holds(world)


def test_a_bowl_that_is_brought_with_what_is_in_it_is_not_taken_out_of():
    env, world = world_of("take_out-orange_plum-blue_bowl-purple_mat")
    mat = world.pose("purple_mat").pos
    put(world, "blue_bowl", mat + np.array([0, 0, 0.001]))
    put(world, "orange_plum", mat + np.array([0, 0, 0.012]))
    settle(world)
    assert not env.task.success.holds(world)
    put(world, "blue_bowl", mat + np.array([0, 0.25, 0.001]))
    put(world, "orange_plum", mat + np.array([0, 0, 0.001]))
    settle(world)
    assert env.task.success.holds(world)


def test_placed_then_knocked_over_is_not_placed():
    env, world = world_of("stack-red_block-blue_block")
    base = world.pose("blue_block").pos
    put(world, "red_block", base + np.array([0, 0, 0.0415]), rot_z(world.pose("blue_block").yaw))
    settle(world)
    assert env.task.success.holds(world)
    world.data.qvel[world.model.joint("red_block").dofadr[0] + 1] = 1.2
    settle(world, 16)
    assert not env.task.success.holds(world)


def test_a_block_beside_its_base_is_not_stacked():
    env, world = world_of("stack-red_block-blue_block")
    put(world, "red_block", world.pose("blue_block").pos + np.array([0.045, 0, 0]))
    settle(world)
    assert not env.task.success.holds(world)


def test_a_pen_that_lies_across_the_holder_does_not_stand_in_it():
    env, world = world_of("insert-red_pen-grey_holder")
    holder = world.pose("grey_holder").pos
    put(world, "red_pen", holder + np.array([0, 0, 0.012]))
    settle(world)
    assert env.task.success.holds(world)
    put(world, "red_pen", holder + np.array([0, 0.06, 0.075]), rot_x(np.pi / 2))
    mujoco.mj_forward(world.model, world.data)
    assert not env.task.success.holds(world)


@pytest.mark.parametrize(("side", "offset"), [("left", (0.0, 0.112)), ("right", (0.0, -0.112))])
def test_beside_knows_its_side(side, offset):
    env, world = world_of(f"place_beside-red_can-{side}-white_bowl")
    bowl = world.pose("white_bowl").pos
    put(world, "red_can", bowl + np.array([*offset, 0.001]))
    settle(world)
    assert env.task.success.holds(world)
    put(world, "red_can", bowl - np.array([*offset, -0.001]))
    settle(world)
    assert not env.task.success.holds(world)


def test_the_order_of_presses_counts():
    env, world = world_of("press_order-red_key-green_key")
    for pressed, done in (
        (["red_key"], False),
        (["red_key", "green_key"], True),
        (["green_key", "red_key"], False),
        (["red_key", "green_key", "blue_key"], False),
    ):
        world.pressed = pressed
        assert env.task.success.holds(world) is done


def test_a_half_open_drawer_is_not_open():
    env, world = world_of("open_drawer-white_drawer")
    where = world.model.joint("white_drawer/box").qposadr[0]
    for position, done in ((0.0, False), (0.04, False), (0.08, True)):
        world.data.qpos[where] = position
        assert env.task.success.holds(world) is done


def test_a_thing_in_the_hand_is_not_yet_placed():
    env, world = world_of("place_on-red_block-white_plate")
    actor = env.expert()
    while not any(e.name == "carry" for e in actor.events):
        env.advance(actor.act())
    assert world.in_hand("red_block")
    assert not env.task.success.holds(world)


def test_success_must_last_half_a_second():
    env, world = world_of("open_drawer-white_drawer")
    where = world.model.joint("white_drawer/box").qposadr[0]
    judge = Judge(env.task, 16.0)
    world.data.qpos[where] = 0.08
    assert [judge.update(world) for _ in range(7)] == [False] * 7
    world.data.qpos[where] = 0.0
    assert not judge.update(world)
    world.data.qpos[where] = 0.08
    assert [judge.update(world) for _ in range(8)] == [False] * 7 + [True]


def test_grasps_hold_by_friction_alone():
    env, world = world_of("pick-red_book")
    assert world.model.neq == 0
    world.model.geom_friction[:] = 0.0
    actor = env.expert()
    for _ in range(60):
        env.advance(actor.act())
    assert not env.success


def test_a_fruit_that_rolled_over_is_still_where_it_lies():
    env, world = world_of("take_out-red_plum-white_bowl-green_mat")
    mat, height = world.pose("green_mat").pos, world.shapes["red_plum"].height
    put(world, "red_plum", mat + np.array([0, 0, height + 0.001]), rot_x(np.pi))
    settle(world)
    assert world.pose("red_plum").rot[2, 2] < -0.9
    assert env.task.success.holds(world)
    assert abs(world.base("red_plum").pos[2]) < 0.005

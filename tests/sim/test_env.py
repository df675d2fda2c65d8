import numpy as np
import pytest

from hostbot.geometry import rotation_angle
from hostbot.sim.catalogue import task
from hostbot.sim.demonstrator import VIEW, demonstrate
from hostbot.sim.env import VIEWS, EnvConfig, SimEnv
from hostbot.sim.keys import tool_rotation
from hostbot.sim.pose import Pose
from hostbot.sim.robot import pack, unpack
from hostbot.sim.vector import make_vector
from hostbot.types import BadInput, Observation

NAME = "place_in-red_apple-white_bowl"


def rollout(seed, steps=25):
    env = SimEnv(task(NAME))
    seen, info = env.reset(seed=seed)
    actor = env.expert()
    out = [seen]
    out += [env.step(actor.act())[0] for _ in range(steps)]
    return out, info


def test_a_seed_gives_the_same_pictures_and_states():
    first, info = rollout(3)
    again, info_again = rollout(3)
    assert info == info_again
    for a, b in zip(first, again, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_another_seed_gives_another_scene():
    a, _ = rollout(3, steps=0)
    b, _ = rollout(4, steps=0)
    assert (a[0]["third_person"] != b[0]["third_person"]).any()


def test_spaces_hold_what_the_environment_gives():
    env = SimEnv(task(NAME))
    seen, _ = env.reset(seed=0)
    assert env.observation_space.contains(seen)
    seen, reward, done, cut, _ = env.step(env.expert().act())
    assert env.observation_space.contains(seen)
    assert (reward, done, cut) == (0.0, False, False)
    assert env.render().shape == (96, 96 * 3, 3)


def test_the_observation_names_its_views():
    env = SimEnv(task(NAME))
    env.reset(seed=0)
    seen = env.observe()
    assert isinstance(seen, Observation)
    assert tuple(seen.views) == VIEWS == env.embodiment.views
    assert seen.state.shape == (20,) == (env.embodiment.dim,)
    assert seen.instruction in env.task.instructions


def _sides(name, seed):
    """Where a task's things stand, across, as seen from the hand that acts."""
    env = SimEnv(task(name), EnvConfig(views=()))
    env.begin(seed)
    sign = 1.0 if env.main == "left" else -1.0
    return [sign * env.world.pose(thing.name).pos[1] for thing in env.task.things], env.main


def test_whoever_sees_a_scene_can_tell_which_hand_acts():
    alone = [_sides("press-red_button", seed) for seed in range(40)]
    assert min(sides[0] for sides, _ in alone) >= 0
    assert {main for _, main in alone} == {"left", "right"}
    both = [_sides("place_in-red_apple-white_bowl", seed) for seed in range(60)]
    cross = EnvConfig().layout.cross
    other_side = [sides for sides, _ in both if sides[0] < 0]
    assert other_side
    assert all(max(sides) > cross for sides in other_side)  # the other hand would not get there
    assert all(min(sides) >= -cross for sides, _ in both)


def test_an_expert_ends_an_episode_with_reward_one():
    env = SimEnv(task(NAME), EnvConfig(views=()))
    env.reset(seed=0)
    actor = env.expert()
    done, reward = False, 0.0
    while not done:
        _, reward, done, cut, info = env.step(actor.act())
        assert not cut
    assert reward == 1.0
    assert info["success"]


def test_an_episode_is_cut_off():
    env = SimEnv(task(NAME), EnvConfig(views=(), seconds=0.25))
    env.reset(seed=0)
    ends = [env.step(np.zeros(20))[3] for _ in range(4)]
    assert ends == [False, False, False, True]


@pytest.mark.parametrize("bad", [np.zeros(19), np.full(20, np.nan)])
def test_a_bad_action_is_refused(bad):
    env = SimEnv(task(NAME), EnvConfig(views=()))
    env.reset(seed=0)
    with pytest.raises(BadInput, match="20 finite numbers"):
        env.step(bad)


def test_step_before_reset_is_refused():
    with pytest.raises(BadInput, match="reset"):
        SimEnv(task(NAME)).step(np.zeros(20))


def test_the_vector_survives_packing():
    poses = {
        "left": Pose(np.array([0.3, 0.1, 0.2]), tool_rotation(0.4)),
        "right": Pose(np.ones(3), tool_rotation(2.0)),
    }
    back, openings = unpack(pack(poses, {"left": 0.02, "right": 0.05}))
    for limb, pose in poses.items():
        np.testing.assert_allclose(back[limb].pos, pose.pos)
        np.testing.assert_allclose(back[limb].rot, pose.rot, atol=1e-12)
    assert openings == {"left": 0.02, "right": 0.05}


def test_the_arms_reach_what_they_are_asked_for():
    env = SimEnv(task(NAME), EnvConfig(views=()))
    env.reset(seed=0)
    poses = {
        limb: Pose(np.array([0.33, y, 0.15]), tool_rotation(1.2))
        for limb, y in (("left", 0.1), ("right", -0.15))
    }
    for _ in range(30):
        env.advance(pack(poses, {"left": 0.03, "right": 0.06}))
    reached, openings = unpack(env.state())
    for limb, pose in poses.items():
        assert np.linalg.norm(reached[limb].pos - pose.pos) < 0.002
        assert rotation_angle(reached[limb].rot.T @ pose.rot) < 0.01
    assert openings["left"] == pytest.approx(0.03, abs=0.002)
    assert openings["right"] == pytest.approx(0.06, abs=0.002)


def test_joint_speeds_stay_within_their_limits():
    env = SimEnv(task(NAME), EnvConfig(views=()))
    env.reset(seed=0)
    world = env.world
    names = [f"{limb}_j{i + 1}" for limb in ("left", "right") for i in range(6)]
    columns = [world.model.actuator(name).id for name in names]
    limits = np.tile(env.config.robot.velocity_limits, 2)
    before = world.data.ctrl[columns].copy()
    far = {
        limb: Pose(np.array([0.45, -y, 0.05]), tool_rotation(0.1))
        for limb, y in (("left", 0.1), ("right", -0.1))
    }
    for _ in range(10):
        env.advance(pack(far, {"left": 0.0, "right": 0.0}))
        now = world.data.ctrl[columns].copy()
        assert (np.abs(now - before) * env.config.rate_hz <= limits + 1e-6).all()
        before = now


def test_a_human_video_has_one_view_and_repeats():
    a, events, success = demonstrate(task("press-red_button"), 2)
    b, _, _ = demonstrate(task("press-red_button"), 2)
    assert success
    assert list(a.views) == [VIEW]
    np.testing.assert_array_equal(a.views[VIEW], b.views[VIEW])
    assert [e.name for e in events][:3] == ["approach", "contact", "press"]


def test_many_environments_step_together():
    names = [NAME, "press-red_button"]
    vector = make_vector(names, EnvConfig(size=32))
    try:
        seen, info = vector.reset(seed=7)
        assert seen["third_person"].shape == (2, 32, 32, 3)
        assert list(info["task"]) == names
        alone = SimEnv(task(NAME), EnvConfig(size=32))
        single, _ = alone.reset(seed=7)
        np.testing.assert_array_equal(seen["third_person"][0], single["third_person"])
        actions = np.stack([seen["state"][0], seen["state"][1]])
        seen, reward, done, cut, _ = vector.step(actions)
        assert reward.shape == done.shape == cut.shape == (2,)
        np.testing.assert_array_equal(seen["state"][0], alone.step(actions[0])[0]["state"])
    finally:
        vector.close()

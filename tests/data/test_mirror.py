"""Left for right: what a mirrored episode holds is what the mirrored scene would have shown."""

from dataclasses import replace

import numpy as np
import pytest

from hostbot.data.mirror import is_sided, mirrored, other_side
from hostbot.data.takes import TakeConfig, altered, make_take
from hostbot.geometry import rot6d_to_matrix
from hostbot.sim.catalogue import task
from hostbot.sim.env import VIEWS, SimEnv
from hostbot.sim.pose import Pose
from hostbot.sim.sketch import _set
from hostbot.types import BadInput, Camera, Embodiment, Part
from tests.data.toy import ROBOT, make_plan, make_store, sample_config, sources

FLIP = np.diag([1.0, -1.0, 1.0])
MIRROR = TakeConfig(clean=None, mirror=True)
FACING = Camera(  # across the picture is y
    view="third_person",
    position=(0.0, 0.0, 2.0),
    rotation=(0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 1.0),
    fov_y=90.0,
)


def red(picture):
    return (picture[..., 0] > 130) & (picture[..., 1:] < 90).all(-1)


@pytest.mark.parametrize("name", ["stack-red_block-blue_block", "place_in-red_apple-white_bowl"])
def test_a_mirrored_scene_looks_like_its_mirrored_pictures(name):
    """Things and arms set up left for right and drawn, against the pictures flipped and wrists swapped."""
    env, seen = SimEnv(task(name)), 0
    for seed in (3, 5, 7):
        env.begin(seed)
        world, vector = env.world, env.displace(1.0)
        pictures = env.pictures()
        for thing in world.shapes:
            pose = world.pose(thing)
            _set(world, thing, Pose(FLIP @ pose.pos, FLIP @ pose.rot @ FLIP))
        env.put(mirrored(vector, env.embodiment))
        for view, across in env.pictures().items():
            flipped = pictures[other_side(view)][:, ::-1]
            both = red(across) & red(flipped)
            either = red(across) | red(flipped)
            if either.sum() > 30:
                seen += 1
                assert both.sum() / either.sum() > 0.8, (seed, view)
    assert seen >= 4


def test_vectors_change_sides_and_come_back():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(5, 20))
    there = mirrored(vectors, ROBOT)
    np.testing.assert_array_equal(mirrored(there, ROBOT), vectors)
    np.testing.assert_array_equal(there[:, :3], vectors[:, 10:13] * [1, -1, 1])
    np.testing.assert_array_equal(there[:, 9], vectors[:, 19])
    before, after = rot6d_to_matrix(vectors[:, 13:19]), rot6d_to_matrix(there[:, 3:9])
    np.testing.assert_allclose(after, FLIP @ before @ FLIP, atol=1e-12)


def test_what_has_no_mirror_image_is_refused():
    joints = Embodiment(
        name="joints", parts=(Part(name="j", kind="joint", limb="arm"),), rate_hz=16.0, views=VIEWS
    )
    with pytest.raises(BadInput, match="no mirror image"):
        mirrored(np.zeros((1, 1)), joints)


def test_a_view_on_one_side_only_has_no_mirror_image():
    lopsided = replace(ROBOT, views=("right_wrist", "third_person"))
    with pytest.raises(BadInput, match="'right_wrist' is there on one side only"):
        make_plan(sources(), sample_config(embodiment=lopsided, take=MIRROR))


def test_which_tasks_have_sides():
    assert is_sided("Turn the red knob to the Left.")
    assert not is_sided("Put the red can behind the white bowl.")
    assert [other_side(view) for view in VIEWS] == ["right_wrist", "left_wrist", "third_person"]


def test_half_of_the_rows_are_the_mirror_image_of_others(tmp_path):
    bodies = sources()
    plain, _ = make_plan(bodies, sample_config(demos=1), cameras=(FACING,))
    config = sample_config(demos=1, take=MIRROR)
    store = make_store(tmp_path / "store", bodies, config, cameras=(FACING,))
    rows, there = plain.rows, store.rows
    known = {(int(e), int(f[0])): r for r, (e, f) in enumerate(zip(rows.episode, rows.frames, strict=True))}
    odd = there.version % 2 == 1
    assert 0 < odd.sum() < len(there)
    for r in range(len(there)):
        same = known[int(there.episode[r]), int(there.frames[r, 0])]
        np.testing.assert_array_equal(there.frames[r], rows.frames[same])
        wanted = rows.point[same, 2] * [1, 1]
        if odd[r]:
            wanted = np.array([1 - wanted[0], wanted[1]])
            # Wrists change places, each a grey of its own.
            assert store.clip[r, 0, 0, 0, 0] == store.clip[r, 0, 0, 1, 0] + 1
        else:
            assert store.clip[r, 0, 0, 0, 0] == store.clip[r, 0, 0, 1, 0] - 1
            np.testing.assert_array_equal(there.state[r], rows.state[same])
            np.testing.assert_array_equal(there.action[r], rows.action[same])
        if rows.seen[same, 2]:
            np.testing.assert_allclose(there.point[r, 2], wanted, atol=1e-5)


def test_tasks_that_say_which_side_are_left_as_they_are():
    bodies = sources((20,) * 12, tasks=("push the cup to the left", "open the lid"))
    plan, _ = make_plan(bodies, sample_config(demos=2, take=MIRROR))
    texts = np.array(plan.texts)[plan.rows.text]
    sided = np.char.find(texts, "left") >= 0
    assert sided.any()
    assert not (plan.rows.version[sided] % 2).any()
    assert (plan.rows.version[~sided] % 2).any()


def test_pictures_are_flipped_before_they_are_cropped():
    source = sources()["robot"]
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    take, mirror = (make_take(source, "robot", 0, version, MIRROR) for version in (0, 1))
    assert (take.mirrored, mirror.mirrored) == (False, True)
    np.testing.assert_array_equal(altered(frames, mirror), frames[:, :, ::-1])
    drawn, drawn_mirror = (make_take(source, "robot", 0, version, MIRROR) for version in (2, 3))
    assert drawn.augmentation == drawn_mirror.augmentation is not None
    np.testing.assert_array_equal(drawn.frames, drawn_mirror.frames)
    np.testing.assert_array_equal(
        altered(frames, drawn_mirror),
        altered(frames[:, :, ::-1].copy(), replace(drawn_mirror, mirrored=False)),
    )

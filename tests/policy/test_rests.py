"""Rests of a demonstration are cut short, motion never is, and where in the video a robot is stays true."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from hostbot.policy.bundle import pack, read_bundle, write_bundle
from hostbot.policy.policy import Policy
from hostbot.policy.rests import without_rests
from hostbot.policy.skill import Skill
from hostbot.types import BadInput, Demonstration
from tests.policy.small_policy import observation, small_policy, small_vae, statistics, video


def write_whole(folder):
    """A policy that sees whole videos at once."""
    policy = small_policy(whole_video=True)
    write_bundle(folder, model=policy.model, spec=policy.spec, statistics=statistics(), vae=small_vae())
    return folder


def film(places, size=64, noise=0.0, seed=0):
    """A bright square, an eighth of a side wide, that is at one place after the other."""
    rng, wide = np.random.default_rng(seed), size // 8
    frames = np.full((1, len(places), size, size, 3), 90.0)
    for k, x in enumerate(places):
        frames[0, k, size // 3 : size // 3 + wide, x : x + wide] = 220.0
    return np.clip(frames + rng.normal(0, noise, frames.shape), 0, 255).astype(np.uint8)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 12)), min_size=1, max_size=6),
    st.integers(0, 6),
    st.sampled_from([0.0, 3.0]),
)
def test_of_every_rest_so_much_is_kept_and_of_motion_all(parts, most, noise):
    places = [0]
    for moves, count in parts:
        places += [(places[-1] + (2 * k if moves else 0)) % 48 for k in range(1, count + 1)]
    wanted, rested = [0], 0
    for frame in range(1, len(places)):
        rested = rested + 1 if places[frame] == places[frame - 1] else 0
        if rested <= most or frame == len(places) - 1:
            wanted.append(frame)
    assert without_rests(film(places, noise=noise), most).tolist() == wanted


def test_slow_motion_is_no_rest():
    """A sixth of a pixel a frame, as a large camera sees it: no two frames in a row differ by much."""
    large = film(range(60), size=384)
    kept = without_rests(large, 0)
    assert len(kept) > 30
    assert np.diff(kept).max() <= 2, "thinned evenly"
    assert len(without_rests(film([10] * 60), 4)) == 6  # the first, four of the rest, the last


@pytest.mark.parametrize("size", [(64, 64), (63, 50), (8, 8), (5, 5), (224, 320)])
def test_views_of_any_size_and_a_single_frame(size):
    one = np.zeros((2, 1, *size, 3), np.uint8)
    assert without_rests(one, 4).tolist() == [0]
    assert without_rests(one.repeat(3, axis=1), 0).tolist() == [0, 2]


def resting(fps=16.0):
    """Twenty frames, a rest of thirty, twenty more."""
    frames = video(40).views["third_person"]
    frames = np.concatenate([frames[:20], frames[19:20].repeat(30, axis=0), frames[20:]])
    return Demonstration(views={"third_person": frames}, fps=fps, instruction="Stack the bowls.")


def test_a_skill_has_no_long_rests_and_knows_where_in_the_video_it_is(tmp_path):
    whole, brief = (small_policy(rests=rests).acquire(resting()) for rests in (None, 4))
    assert (whole.num_frames, whole.shares) == (70, ())
    assert brief.num_frames == 44
    assert brief.progress(19) == 19 / 69
    assert brief.progress(24) == 50 / 69, "behind the rest"
    assert [whole.progress(0), whole.progress(69), brief.progress(0), brief.progress(43)] == [0, 1, 0, 1]
    assert small_policy(rests=4).acquire(video(40)).shares == (), "nothing was cut"
    assert small_policy(rests=4).acquire(resting(32.0)).num_frames == 25, "8 frames are 4 control steps"
    assert small_policy(rests=4).acquire(resting(), seconds=44 / 16 * 2).num_frames == 87
    brief.save(tmp_path / "brief")
    back = Skill.load(tmp_path / "brief")
    assert (back.shares, back.id) == (brief.shares, brief.id)
    whole.save(tmp_path / "whole")
    with safe_open(tmp_path / "whole", framework="numpy") as file:
        assert "shares" not in file.metadata()["skill"], "as it was before there were any"
    assert Skill.load(tmp_path / "whole").shares == ()
    replace(brief, shares=brief.shares[1:]).save(tmp_path / "damaged")
    with pytest.raises(BadInput, match="damaged"):
        Skill.load(tmp_path / "damaged")


def test_a_decision_says_where_in_the_video():
    policy = small_policy(rests=0, pace=2.0)
    skill = policy.acquire(resting())
    session = policy.start(skill)
    decision = policy.step(session, observation(0))
    assert decision.progress == skill.shares[decision.frame]
    assert 0 <= decision.frame < skill.num_frames == 21


def test_how_a_video_is_best_watched_is_noted_with_the_weights(tmp_path):
    policy = small_policy()
    given = {"model": policy.model, "spec": policy.spec, "statistics": statistics(), "vae": small_vae()}
    write_bundle(tmp_path / "one", **given)
    pack(tmp_path / "one", tmp_path / "two", pace=1.5, rests=4)
    pack(tmp_path / "two", tmp_path / "three", execute=2)
    spec = read_bundle(tmp_path / "three").spec
    assert (spec.pace, spec.rests, spec.execute) == (1.5, 4, 2)
    assert Policy.load(tmp_path / "three").changes().endswith("rests 4, pace 1.5")
    assert "pace" not in Policy.load(tmp_path / "one").changes()
    with pytest.raises(BadInput, match="whole video"):
        pack(write_whole(tmp_path / "whole"), tmp_path / "never", rests=4)
    for wrong in ({"pace": 0.0}, {"pace": math.nan}, {"rests": -1}):
        with pytest.raises(BadInput, match="pace is a factor|rest 0 control steps"):
            pack(tmp_path / "one", tmp_path / "never", **wrong)
    assert not (tmp_path / "never").exists()

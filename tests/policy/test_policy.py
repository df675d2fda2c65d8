"""A policy of random weights does everything a trained one does: watch, follow, decide, in company or alone."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from hostbot.data.stats import STATE
from hostbot.geometry import rot6d_to_matrix
from hostbot.model.text import HashedWords
from hostbot.model.vae import LatentCodec
from hostbot.policy.bundle import pack, read_bundle, weights_hash, write_bundle
from hostbot.policy.policy import Policy, PolicyConfig
from hostbot.policy.skill import Skill
from hostbot.types import BadInput, Observation
from hostbot.video import VideoWriter
from tests.policy.small_policy import (
    HOME,
    ROBOT,
    observation,
    small_model,
    small_policy,
    small_spec,
    small_vae,
    statistics,
    video,
)


@pytest.fixture(scope="module")
def policy():
    return small_policy()


def same(a, b):
    return np.array_equal(a.actions, b.actions) and (a.frame, a.window, a.finished) == (
        b.frame,
        b.window,
        b.finished,
    )


# Acquiring --------------------------------------------------------------------------------------------


def test_a_skill_holds_the_latents_of_the_whole_video(policy):
    skill = policy.acquire(video(100), "Stack the bowls.")
    assert skill.num_frames == 100
    assert skill.views == ("third_person",)
    assert skill.latents.shape == (16, 1 + 7, 2, 2)  # ceil(99 / 16) latents after the first
    order = np.minimum(np.arange(29) * 4, 99)
    frames = torch.from_numpy(video(100).views["third_person"][order][None])
    assert np.array_equal(skill.latents, policy.codec.encode_views(frames).numpy())


def test_a_quick_human_is_slowed_down(policy):
    as_filmed, slowed = policy.acquire(video(50)), policy.acquire(video(50), pace=0.5)
    assert (as_filmed.num_frames, slowed.num_frames) == (50, 99)
    assert policy.acquire(video(50), seconds=50 / 16 * 2).num_frames == 99
    assert policy.acquire(video(51, fps=32.0)).num_frames == 26  # filmed at twice the control rate
    with pytest.raises(BadInput, match="not both"):
        policy.acquire(video(50), pace=1.0, seconds=3.0)


def test_a_whole_video_fits_one_window():
    policy = small_policy(whole_video=True)
    for length in (30, 65, 300):
        skill = policy.acquire(video(length))
        assert skill.num_frames == 65
        assert skill.latents.shape[1] == 5
    with pytest.raises(BadInput, match="no pace to choose"):
        policy.acquire(video(30), pace=2.0)


def test_latents_are_made_once(tmp_path, monkeypatch):
    policy = small_policy(PolicyConfig(cache=tmp_path))
    first = policy.acquire(video(40))
    monkeypatch.setattr(policy.codec, "encode_views", lambda *_: pytest.fail("encoded again"))
    assert policy.acquire(video(40)).id == first.id
    with pytest.raises(pytest.fail.Exception):
        policy.acquire(video(40, seed=1))


def test_a_skill_is_one_file(policy, tmp_path):
    for skill in (policy.acquire(video(40), "Do it."), policy.acquire(None, "Only words.")):
        skill.save(tmp_path / "a.safetensors")
        back = Skill.load(tmp_path / "a.safetensors")
        assert back.id == skill.id
        assert back.instruction == skill.instruction
        assert back.views == skill.views
    whole = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="acquire"):
        Skill.load(tmp_path / "a.safetensors")


def test_a_video_file_is_watched(policy, tmp_path):
    with VideoWriter(tmp_path / "a.mp4", (48, 64), 30) as writer:
        for level in range(60):
            writer.write(np.full((48, 64, 3), 4 * level, np.uint8))
    skill = policy.acquire(tmp_path / "a.mp4", "Wipe the plate.")
    assert skill.num_frames == 32
    assert skill.instruction == "Wipe the plate."
    with pytest.raises(BadInput, match="no view phone"):
        policy.acquire(tmp_path / "a.mp4", view="phone")


def test_nothing_to_acquire(policy):
    with pytest.raises(BadInput, match="a video, an instruction, or both"):
        policy.acquire(None)


# Acting -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["both", "video", "language"])
def test_video_language_or_both(policy, given):
    clip = None if given == "language" else replace(video(90), instruction="")
    session = policy.start(policy.acquire(clip, "" if given == "video" else "Stack the bowls."))
    for cycle in range(3):
        out = policy.step(session, observation(cycle))
        assert out.actions.shape == (16, 20)
        assert np.isfinite(out.actions).all()
        assert not out.held
        if given == "language":
            assert np.isnan(out.progress)
            assert (out.frame, out.window, out.finished) == (-1, (0, 0), False)
        else:
            assert 0 <= out.progress <= 1
            assert out.window[1] - out.window[0] == 64
            assert session.window.start % 16 == 0
    assert session.num_cycles == 3
    assert {"encode", "demo", "observation", "p", "o", "a", "total"} <= set(out.timing_ms)


def test_actions_are_relative_to_the_state_they_were_decided_in(policy):
    skill = policy.acquire(video(90))
    here, there = observation(0), observation(0)
    moved = there.state.copy()
    moved[:3] += 0.05
    out = policy.step(policy.start(skill), here)
    rotations = rot6d_to_matrix(out.actions[:, 3:9].astype(float))
    assert np.allclose(rotations @ rotations.transpose(0, 2, 1), np.eye(3), atol=1e-5)
    reach = np.abs(out.actions[:, :3] - here.state[:3])
    assert reach.max() <= 0.1 + 1e-6  # the statistics' bounds, beyond which nothing is sent
    absolute = small_policy(relative_actions=False)
    out = absolute.step(absolute.start(absolute.acquire(video(90))), here)
    assert np.abs(out.actions).max() <= 1 + 1e-6


def test_the_same_seed_gives_the_same_decisions(policy):
    skill = policy.acquire(video(90))
    runs = [
        [policy.step(s, observation(i)) for i in range(3)] for s in (policy.start(skill, 5) for _ in range(2))
    ]
    assert all(same(a, b) for a, b in zip(*runs, strict=True))
    other = policy.step(policy.start(skill, 6), observation(0))
    assert not np.array_equal(other.actions, runs[0][0].actions)


@pytest.mark.parametrize("executed", [3, None])
def test_a_robot_is_looked_for_where_it_can_be_first(executed):
    """With random weights places are anywhere; with a reach none is further ahead than steps were carried out."""
    far = {}
    for reach in (None, 2):
        policy = small_policy()
        policy.window_config = replace(policy.window_config, reach=reach)
        skill, jumps = policy.acquire(video(90)), []
        for seed in range(6):
            session = policy.start(skill, seed)
            frames = [
                policy.step(session, replace(observation(i), executed=executed)).frame for i in range(4)
            ]
            jumps += np.diff(frames).tolist()
        far[reach] = max(jumps)
    assert far[2] <= 1 + 2 + (policy.horizon if executed is None else executed)
    assert far[None] > far[2]


def test_at_the_end_of_the_video_the_end_is_expected():
    policy = small_policy()
    policy.window_config = replace(policy.window_config, reach=3)
    session = policy.start(policy.acquire(video(90)), 0)
    last = session.window.num_frames - 1
    session.num_cycles, session.window = 1, replace(session.window, frame=last - 1)
    low, high = policy._expected(session, replace(observation(0), executed=16))
    assert low < policy._place(session.window, last) < high
    assert low == pytest.approx(policy._place(session.window, last - 3))


def test_robots_share_a_policy_without_crosstalk(policy):
    """Different skills, views and moments in one batch: each robot gets what it would have got alone."""
    skills = [
        policy.acquire(video(90)),
        policy.acquire(None, "Only words."),
        policy.acquire(video(70, 1, views=ROBOT.views)),
        policy.acquire(video(120, 2), "Another."),
        policy.acquire(video(50, 3)),
    ]
    alone, together = ([policy.start(skill, i) for i, skill in enumerate(skills)] for _ in range(2))
    for cycle in range(3):
        seen = [observation(10 * cycle + i) for i in range(len(skills))]
        batch = policy.step_batch(together, seen)
        for i, (session, out) in enumerate(zip(alone, batch, strict=True)):
            single = policy.step(session, seen[i])
            assert np.allclose(single.actions, out.actions, atol=1e-4), (cycle, i)
            assert session.window == together[i].window


def test_a_window_watched_ahead_changes_when_not_what(policy):
    """Prepared for the right robots, for others, or not at all: the same decisions; only the watching is spared."""
    skills, strange = [policy.acquire(video(90, i)) for i in range(2)], policy.acquire(video(60, 7))
    plain, ahead, others = (
        [policy.start(skill, i) for i, skill in enumerate(chosen)]
        for chosen in (skills, skills, [strange] * 2)
    )
    for cycle in range(3):
        seen = [observation(10 * cycle + i) for i in range(2)]
        policy.step_batch(others, seen)
        expected = policy.step_batch(plain, seen)
        policy.step_batch(others, seen)
        policy.prepare(others if cycle == 1 else ahead)
        got = policy.step_batch(ahead, seen)
        assert all(same(a, b) for a, b in zip(expected, got, strict=True))
        assert expected[0].timing_ms["demo"] > 0
        assert (got[0].timing_ms["demo"] == 0) == (cycle != 1)
    policy.prepare([policy.start(policy.acquire(None, "Words.")), ahead[0]])  # not one pass: left alone
    policy.prepare([])


@pytest.mark.parametrize("what", ["instruct", "watch"])
def test_preparing_that_fails_half_way_leaves_nothing_wrong(what, monkeypatch):
    """The rig's buffers are written over by then: whoever asks next is instructed and shown anew."""
    policy = small_policy()
    one, other = (policy.start(policy.acquire(video(90, i), "Words." * i)) for i in range(2))
    fresh = small_policy()
    expected = fresh.step(fresh.start(one.skill), observation(0))
    policy.step(policy.start(one.skill), observation(0))
    cascade = policy._rigs._rig(1).cascade
    done = getattr(cascade, what)

    def fails(*args, **kwargs):
        done(*args, **kwargs)
        raise MemoryError("half way")

    monkeypatch.setattr(cascade, what, fails)
    with pytest.raises(MemoryError):
        policy.prepare([other])
    monkeypatch.undo()
    assert np.allclose(
        policy.step(policy.start(one.skill), observation(0)).actions, expected.actions, atol=1e-6
    )


def test_threads_that_share_a_policy_take_turns(policy):
    """The VAE and the cascade keep a cycle's numbers in the module: without turns they mix them up, or fail."""
    skill = policy.acquire(video(), "stack the bowls")
    alone = [policy.step(policy.start(skill, seed), observation(seed)) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            waiting = [
                pool.submit(policy.step, policy.start(skill, seed), observation(seed)) for seed in range(4)
            ]
            for expected, future in zip(alone, waiting, strict=True):
                assert same(expected, future.result())


def test_a_batch_is_cut_into_known_sizes():
    config = PolicyConfig(batch_sizes=(2,))
    policy, whole = small_policy(config), small_policy(PolicyConfig(batch_sizes=(8,)))
    skills = [policy.acquire(video(80, i)) for i in range(5)]
    seen = [observation(i) for i in range(5)]
    a = policy.step_batch([policy.start(s, i) for i, s in enumerate(skills)], seen)
    b = whole.step_batch([whole.start(s, i) for i, s in enumerate(skills)], seen)
    assert all(np.allclose(x.actions, y.actions, atol=1e-4) for x, y in zip(a, b, strict=True))


def test_a_robot_that_jumps_between_skills_never_acts_on_an_old_one(policy):
    """The cache of the last window must not outlive a change of skill, window or views."""
    a, b, words = policy.acquire(video(90)), policy.acquire(video(90, 1)), policy.acquire(None, "Words.")
    fresh = {s.id: small_policy().step(policy.start(s), observation(0)).actions for s in (a, b, words)}
    assert not np.allclose(
        fresh[a.id], fresh[b.id], atol=1e-3
    )  # what is shown matters, or this proves nothing
    for skill in (a, b, a, words, a, words, b):
        out = policy.step(policy.start(skill), observation(0))
        assert np.allclose(out.actions, fresh[skill.id], atol=1e-5)


def test_predicted_frames_are_decoded_when_asked_for(policy):
    session = policy.start(policy.acquire(video(90)))
    out = policy.step(session, observation(0))
    assert out.predicted_views == {}
    frames = policy.imagine(out)
    assert {name: view.shape for name, view in frames.items()} == dict.fromkeys(ROBOT.views, (4, 16, 16, 3))
    again = policy.step(policy.start(session.skill), observation(0), frames=True)
    assert all(np.array_equal(again.predicted_views[v], frames[v]) for v in ROBOT.views)


def test_no_parameter_changes(policy):
    before = policy.fingerprint()
    session = policy.start(policy.acquire(video(60)))
    for i in range(2):
        policy.step(session, observation(i))
    assert policy.fingerprint() == before
    with torch.no_grad():
        policy.model.proprio.weight[0, 0] += 1
        assert policy.fingerprint() != before
        policy.model.proprio.weight[0, 0] -= 1


# What must not happen ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_actions_that_are_not_finite_are_never_sent(bad):
    policy = small_policy()
    session = policy.start(policy.acquire(video(60)))
    good = policy.step(session, observation(0))
    with torch.no_grad():
        policy.model.action.action_out.bias.fill_(bad)
    out = policy.step(session, observation(1))
    assert "not finite" in out.held
    assert np.array_equal(out.actions, np.tile(good.actions[-1], (16, 1)))  # where it was last sent
    fresh = policy.step(policy.start(session.skill), observation(1))
    assert np.array_equal(fresh.actions, np.tile(observation(1).state, (16, 1)))


def test_no_rotation_is_no_action():
    zero = statistics()
    flat = replace(zero.features["action.relative"], min=(0.0,) * 20, max=(0.0,) * 20)
    vae = small_vae()
    policy = Policy(
        small_model(),
        LatentCodec(vae),
        HashedWords(16, 24),
        small_spec(vae),
        replace(zero, features={**zero.features, "action.relative": flat}),
    )
    policy.scaling.action.half_range[:] = 0
    out = policy.step(policy.start(policy.acquire(video(60))), observation(0))
    assert "degenerate" in out.held
    assert np.array_equal(out.actions, np.tile(observation(0).state, (16, 1)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"state": HOME[:10]}, "20 finite numbers"),
        ({"state": np.full(20, np.nan, np.float32)}, "20 of them are not finite"),
        ({"views": {"third_person": np.zeros((16, 16, 3), np.uint8)}}, "lacks the view 'left_wrist'"),
    ],
)
def test_an_observation_that_makes_no_sense(policy, change, sentence):
    session = policy.start(policy.acquire(video(60)))
    seen: Observation = replace(observation(0), **change)
    with pytest.raises(BadInput, match=sentence):
        policy.step(session, seen)
    assert session.num_cycles == 0


def test_a_session_once_a_batch(policy):
    session = policy.start(policy.acquire(video(60)))
    with pytest.raises(BadInput, match="each session once"):
        policy.step_batch([session, session], [observation(0), observation(1)])


def test_a_skill_of_another_encoder_is_refused(policy):
    skill = policy.acquire(video(60))
    with pytest.raises(BadInput, match="acquire it again"):
        policy.start(replace(skill, codec="other"))
    with pytest.raises(BadInput, match="text encoder"):
        policy.start(replace(skill, text_encoder="other"))


# On disk ----------------------------------------------------------------------------------------------


def test_a_bundle_acts_as_what_it_was_written_from(tmp_path):
    vae = small_vae()
    policy = small_policy()
    write_bundle(
        tmp_path / "policy",
        model=policy.model,
        spec=policy.spec,
        statistics=statistics(),
        vae=vae,
        notes={"data": "made up"},
    )
    assert read_bundle(tmp_path / "policy").notes == {"data": "made up"}
    back = Policy.load(tmp_path / "policy")
    assert back.fingerprint() == policy.fingerprint()
    a = policy.step(policy.start(policy.acquire(video(60))), observation(0))
    b = back.step(back.start(back.acquire(video(60))), observation(0))
    assert same(a, b)
    with pytest.raises(BadInput, match="exists already"):
        write_bundle(tmp_path / "policy", model=policy.model, spec=policy.spec, statistics=statistics())


def test_a_packed_policy_is_half_as_large_and_acts_nearly_the_same(tmp_path):
    policy = small_policy()
    given = {"model": policy.model, "spec": policy.spec, "statistics": statistics(), "vae": small_vae()}
    write_bundle(tmp_path / "whole", **given, notes={"run": {"samples": [str(tmp_path / "one/store")]}})
    pack(tmp_path / "whole", tmp_path / "half")
    assert read_bundle(tmp_path / "half").notes["run"]["samples"] == ["one/store"]
    sizes = [sum(p.stat().st_size for p in (tmp_path / n).rglob("*.safetensors")) for n in ("whole", "half")]
    assert sizes[1] < 0.55 * sizes[0]
    back = Policy.load(tmp_path / "half")
    assert next(back.model.parameters()).dtype == torch.float32
    for name, parameter in back.model.named_parameters():
        assert torch.equal(parameter, policy.model.get_parameter(name).half().float())
    a = policy.step(policy.start(policy.acquire(video(60))), observation(0))
    b = back.step(back.start(back.acquire(video(60))), observation(0))
    assert np.abs(a.actions - b.actions).max() < 0.02
    told = [path.read_text() for path in (tmp_path / "half").rglob("*.json")]
    assert len(told) >= 3
    assert not [text for text in told if str(tmp_path) in text]
    pack(tmp_path / "half", tmp_path / "again")
    assert Policy.load(tmp_path / "again").fingerprint() == back.fingerprint(), (
        "rounding twice is rounding once"
    )
    assert read_bundle(tmp_path / "again").spec.execute is None
    pack(tmp_path / "again", tmp_path / "brisk", execute=2)
    assert read_bundle(tmp_path / "brisk").spec.execute == 2
    pack(tmp_path / "brisk", tmp_path / "still brisk")
    assert read_bundle(tmp_path / "still brisk").spec.execute == 2
    pack(tmp_path / "brisk", tmp_path / "sure", noise=0.0, skip_future=True)
    pack(tmp_path / "sure", tmp_path / "still sure")
    for name in ("sure", "still sure"):
        spec = read_bundle(tmp_path / name).spec
        noted = spec.cascade
        assert (noted.noise_o, noted.noise_a, noted.skip_future, spec.execute) == (0.0, 0.0, True, 2)
    with pytest.raises(BadInput, match="scaled by 0 to 1"):
        pack(tmp_path / "again", tmp_path / "never", noise=2.0)
    with pytest.raises(BadInput, match="cannot be executed"):
        pack(tmp_path / "again", tmp_path / "never", execute=policy.horizon + 1)
    assert not (tmp_path / "never").exists()


def test_a_bundle_may_leave_its_vae_elsewhere(tmp_path):
    policy, vae = small_policy(), small_vae()
    write_bundle(tmp_path / "policy", model=policy.model, spec=policy.spec, statistics=statistics())
    with pytest.raises(BadInput, match="holds no VAE"):
        Policy.load(tmp_path / "policy")
    vae.save_pretrained(tmp_path / "elsewhere", safe_serialization=True)
    Policy.load(tmp_path / "policy", vae=tmp_path / "elsewhere")
    small_vae(7).save_pretrained(tmp_path / "other", safe_serialization=True)
    with pytest.raises(BadInput, match="sees with the VAE"):
        Policy.load(tmp_path / "policy", vae=tmp_path / "other")


def test_no_statistics_no_policy(tmp_path):
    policy = small_policy()
    write_bundle(
        tmp_path / "policy", model=policy.model, spec=policy.spec, statistics=statistics(), vae=small_vae()
    )
    path = tmp_path / "policy" / "policy.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"statistics": None}))
    with pytest.raises(BadInput, match="cannot act without them"):
        Policy.load(tmp_path / "policy")
    del manifest["statistics"]["features"][STATE]
    path.write_text(json.dumps(manifest))
    with pytest.raises(BadInput, match="no statistics of 'observation.state'"):
        Policy.load(tmp_path / "policy")
    with pytest.raises(BadInput, match="chunks of 8 steps but the model's have 16"):
        write_bundle(tmp_path / "b", model=policy.model, spec=policy.spec, statistics=statistics(8))
    assert not (tmp_path / "b").exists()
    with pytest.raises(BadInput, match="is no policy"):
        Policy.load(tmp_path)


def test_an_interrupted_export_leaves_nothing(tmp_path, monkeypatch):
    policy = small_policy()
    monkeypatch.setattr(
        "hostbot.policy.bundle.write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        write_bundle(tmp_path / "p", model=policy.model, spec=policy.spec, statistics=statistics())
    assert list(tmp_path.iterdir()) == []


def test_the_hash_sees_every_weight():
    a, b = small_model(0), small_model(0)
    assert weights_hash(a) == weights_hash(b) != weights_hash(small_model(1))
    assert weights_hash(a.to(torch.bfloat16)) != weights_hash(b)

"""The cascade against the training pass, step by step, and against itself."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hostbot.model.host import HostModel, Noised, Targets
from hostbot.policy.cascade import Cascade
from hostbot.policy.contract import CascadeConfig
from hostbot.policy.naive import uncached
from hostbot.policy.stages import believed
from hostbot.types import BadInput
from tests.model.small import CONFIG, random_context, small_model

STEPS = CascadeConfig(steps_p=3, steps_o=4, steps_a=5, num_localisations=1)


def ready(model: HostModel, context, config=STEPS, views=None) -> Cascade:
    cascade = Cascade(model, config, batch=len(context.observation))
    cascade.instruct(context.text)
    cascade.watch(context.demo, views)
    return cascade


@pytest.mark.parametrize("config", [STEPS, replace(STEPS, noise_o=0.5, noise_a=0.2)])
@pytest.mark.parametrize("demo", [True, False])
@torch.no_grad()
def test_cached_equals_the_whole_sequence_re_run(demo, config):
    model, context = small_model(), random_context(demo=demo)
    cascade = ready(model, context, config)
    noise = cascade.draw(torch.Generator().manual_seed(5))
    out = cascade.act(context.observation, context.proprio, noise)
    slow = uncached(model, context, noise, config)
    torch.testing.assert_close(out.p, slow.p, atol=1e-5, rtol=0)
    torch.testing.assert_close(out.o, slow.o, atol=1e-5, rtol=0)
    torch.testing.assert_close(out.a, slow.a, atol=1e-5, rtol=0)
    if not demo:
        assert (out.p == -1).all()
        assert out.confidence.isnan().all()


@torch.no_grad()
def test_one_training_pass_equals_the_stages_fed_the_same_clean_tokens():
    """A single Euler step from level 1 reveals each stage's velocity: noise minus result."""
    model, context = small_model(), random_context()
    cascade = ready(model, context, replace(STEPS, steps_p=1, steps_o=1, steps_a=1))
    noise = cascade.draw(torch.Generator().manual_seed(6))
    noise = replace(noise, p=noise.p * 0.1)  # keep p inside [-1, 1], where it is not clamped
    out = cascade.act(context.observation, context.proprio, noise)
    assert out.p.abs().max() < 1
    one = torch.ones(2)
    noised = Noised(
        noisy=Targets(p=noise.p[:, 0], o=noise.o, a=noise.a),
        sigma_p=one,
        sigma_o=one,
        sigma_a=one,
        clean_p=out.p,
        clean_o=out.o,
    )
    velocity = model(context, noised)
    torch.testing.assert_close(noise.p[:, 0] - out.p, velocity.p, atol=1e-5, rtol=0)
    torch.testing.assert_close(noise.o - out.o, velocity.o, atol=1e-5, rtol=0)
    torch.testing.assert_close(noise.a - out.a, velocity.a, atol=1e-5, rtol=0)


@torch.no_grad()
def test_caches_hold_nothing_from_before():
    """A cascade that did other things first gives, bit for bit, what a fresh one gives."""
    model, context = small_model(), random_context()
    cascade = ready(model, random_context(seed=11), views=(0, 2))
    noise = cascade.draw(torch.Generator().manual_seed(5))
    cascade.act(random_context(seed=12).observation, context.proprio + 1, noise)
    cascade.instruct(context.text)
    cascade.watch(None)
    cascade.act(context.observation, context.proprio, noise)
    cascade.watch(context.demo)
    used = cascade.act(context.observation, context.proprio, noise)
    fresh = ready(model, context).act(context.observation, context.proprio, noise)
    for name in ("p", "o", "a"):
        assert torch.equal(getattr(used, name), getattr(fresh, name)), name
    kept = used.o.clone(), used.a.clone()
    cascade.act(context.observation + 1, context.proprio, noise)
    assert torch.equal(used.o, kept[0])  # results are copies, not the buffers
    assert torch.equal(used.a, kept[1])


@torch.no_grad()
def test_a_stage_run_again_changes_nothing():
    """To become a graph a stage is run before the run that counts, so none may write what it reads."""
    model, context = small_model(), random_context()
    cascade = ready(model, context, replace(STEPS, num_localisations=3))
    noise = cascade.draw(torch.Generator().manual_seed(5))
    once = cascade.act(context.observation, context.proprio, noise)
    cascade.run(["demo", "demo", "demo_observation", "demo_observation", "observation", "observation"])
    cascade.run(["p", "p", "o", "o", "clean_o", "clean_o", "a", "a"])
    for name in ("p_samples", "p", "a"):
        torch.testing.assert_close(getattr(cascade.buffers, name), getattr(once, name), atol=1e-6, rtol=0)
    assert torch.equal(cascade.buffers.a, cascade.act(context.observation, context.proprio, noise).a)


def test_stages_are_made_once_a_layout(monkeypatch):
    model, context = small_model(), random_context()
    cascade, made = Cascade(model, STEPS, batch=2), []
    make = cascade._make_stages
    monkeypatch.setattr(cascade, "_make_stages", lambda: made.append(1) or make())
    cascade.instruct(context.text)
    noise = cascade.draw(torch.Generator().manual_seed(5))
    for views in (None, (1,), None, (1,)):
        cascade.watch(context.demo, views)
        cascade.act(context.observation, context.proprio, noise)
    assert len(made) == 2


@torch.no_grad()
def test_a_demo_with_some_views_only():
    model, context = small_model(), random_context()
    cascade = ready(model, context, views=(1,))
    noise = cascade.draw(torch.Generator().manual_seed(5))
    out = cascade.act(context.observation, context.proprio, noise)
    slow = uncached(model, replace(context, views=(1,)), noise, STEPS)
    torch.testing.assert_close(out.a, slow.a, atol=1e-5, rtol=0)


@pytest.mark.parametrize("num", [1, 3])
@torch.no_grad()
def test_a_window_may_ride_with_the_observation(num):
    model, context, config = small_model(), random_context(), replace(STEPS, num_localisations=num)
    cascade = ready(model, context, config)
    noise = cascade.draw(torch.Generator().manual_seed(5))
    apart = cascade.act(context.observation, context.proprio, noise)
    cascade.watch(random_context(seed=8).demo, now=False)
    other = cascade.act(context.observation, context.proprio, noise)
    assert not torch.allclose(other.a, apart.a, atol=1e-3)
    for views in (None, (0, 2)):
        apart = ready(model, context, config, views).act(context.observation, context.proprio, noise)
        assert cascade.watch(context.demo, views, now=False) == 0.0
        for _ in range(2):  # the second cycle finds the window cached
            out = cascade.act(context.observation, context.proprio, noise, timed=True)
            for name in ("p_samples", "o", "a"):
                torch.testing.assert_close(getattr(out, name), getattr(apart, name), atol=1e-5, rtol=0)
    assert "observation" in out.timing_ms


@torch.no_grad()
def test_localisation_samples_do_not_see_one_another():
    model, context = small_model(), random_context()
    cascade = ready(model, context, replace(STEPS, num_localisations=5))
    noise = cascade.draw(torch.Generator().manual_seed(5))
    out = cascade.act(context.observation, context.proprio, noise)
    for index in range(5):
        single = ready(model, context)
        alone = replace(noise, p=noise.p[:, index : index + 1])
        p = single.act(context.observation, context.proprio, alone).p
        torch.testing.assert_close(p, out.p_samples[:, index], atol=1e-5, rtol=0)
    assert torch.equal(out.p, out.p_samples.median(dim=1).values)
    expected = (1 - out.p_samples.std(dim=1) * 3**0.5).clamp(min=0)
    torch.testing.assert_close(out.confidence, expected)


def test_confidence_is_high_when_samples_agree_and_unknown_for_one():
    model, context = small_model(), random_context()
    cascade = ready(model, context, replace(STEPS, num_localisations=4))
    noise = cascade.draw(torch.Generator().manual_seed(5))
    same = replace(noise, p=noise.p[:, :1].expand(-1, 4))
    out = cascade.act(context.observation, context.proprio, same)
    assert (out.confidence > 0.999).all()
    lone = ready(model, context)
    noise = lone.draw(torch.Generator().manual_seed(5))
    assert lone.act(context.observation, context.proprio, noise).confidence.isnan().all()


@torch.no_grad()
def test_the_visual_stage_is_skipped_only_by_a_model_trained_for_it():
    with pytest.raises(BadInput, match="unseen_future"):
        Cascade(small_model(), CascadeConfig(skip_future=True))
    config = replace(CONFIG, flow=replace(CONFIG.flow, unseen_future=0.5))
    model, context = small_model(config=config), random_context()
    cascade = ready(model, context, replace(STEPS, skip_future=True))
    noise = cascade.draw(torch.Generator().manual_seed(5))
    out = cascade.act(context.observation, context.proprio, noise)
    assert out.o is None
    unseen = torch.zeros(2, dtype=torch.bool)
    slow = uncached(model, context, noise, STEPS, future_seen=unseen)
    torch.testing.assert_close(out.a, slow.a, atol=1e-5, rtol=0)


@torch.no_grad()
def test_bfloat16_stays_close_to_float32_in_every_stage():
    """Each stage on its own: the later ones are given the float32 stages' clean tokens."""
    model, context = small_model(), random_context()
    one = torch.full((2,), 0.6)
    targets = Targets(
        p=torch.tensor([0.3, -0.4]),
        o=torch.randn(2, *CONFIG.grid.latents(1), generator=torch.Generator().manual_seed(0)),
        a=torch.randn(2, CONFIG.horizon, CONFIG.action_dim, generator=torch.Generator().manual_seed(1)),
    )
    noised = Noised(
        noisy=targets, sigma_p=one, sigma_o=one, sigma_a=one, clean_p=targets.p, clean_o=targets.o
    )
    full = model(context, noised)
    half = small_model().to(torch.bfloat16)(context, noised)
    for name in ("o", "a"):
        x, y = getattr(full, name).flatten(), getattr(half, name).flatten()
        assert y.dtype == torch.float32
        assert torch.cosine_similarity(x, y, dim=0) >= 0.9999, name
    torch.testing.assert_close(full.p, half.p, atol=2e-2, rtol=2e-2)


def test_misuse_is_told():
    model, context = small_model(), random_context()
    cascade = Cascade(model, STEPS, batch=2)
    noise = cascade.draw(torch.Generator().manual_seed(5))
    with pytest.raises(BadInput, match="instruction"):
        cascade.watch(context.demo)
    cascade.instruct(context.text)
    with pytest.raises(BadInput, match="watch"):
        cascade.act(context.observation, context.proprio, noise)
    with pytest.raises(BadInput, match="views"):
        cascade.watch(context.demo, (3,))
    with pytest.raises(BadInput, match="demonstration latents"):
        cascade.watch(context.demo[:, :, :2])
    with pytest.raises(BadInput, match="text is"):
        cascade.instruct(context.text[:, :3])
    with pytest.raises(BadInput, match="at least one"):
        CascadeConfig(steps_o=0)
    with pytest.raises(BadInput, match="scaled by 0 to 1"):
        CascadeConfig(noise_a=1.5)


@torch.no_grad()
def test_without_noise_there_is_one_answer_to_each_place_in_the_video():
    model, context = small_model(), random_context(demo=False)  # without one p is the same always
    outs = {}
    for scale in (0.0, 1.0):
        cascade = ready(model, context, replace(STEPS, noise_o=scale, noise_a=scale))
        draws = [cascade.draw(torch.Generator().manual_seed(seed)) for seed in (5, 6)]
        outs[scale] = [cascade.act(context.observation, context.proprio, draw) for draw in draws]
    assert torch.equal(outs[0.0][0].a, outs[0.0][1].a)
    assert not torch.equal(outs[1.0][0].a, outs[1.0][1].a)


def test_settings_that_change_answers_are_told_apart_from_those_that_do_not():
    assert CascadeConfig(graphs=False, kernels=False).changes() == ""
    assert CascadeConfig(skip_future=True, noise_a=0.0).changes() == "skip_future True, noise_a 0.0"


@given(st.lists(st.floats(-1, 1, width=32) | st.just(math.nan), min_size=1, max_size=12))
def test_a_place_is_the_median_of_all_samples_where_nothing_is_expected(values):
    samples = torch.tensor([values])
    everywhere = torch.full((1,), torch.inf)
    found, want = believed(samples, -everywhere, everywhere), samples.median(dim=1).values
    assert torch.equal(found, want) or (found.isnan().all() and want.isnan().all())


@pytest.mark.parametrize(
    ("samples", "place"),
    [
        ([0.1, 0.12, 0.8, 0.82, 0.84, 0.86, 0.88, 0.9], 0.1),  # a quarter is where it is expected
        ([-0.9, -0.8, 0.1, 0.8, 0.82, 0.84, 0.86, 0.88], -0.9),  # less than that: it has fallen back
        ([0.8, 0.82, 0.7, 0.9, 0.9, 0.9, 0.9, 0.9], 0.2),  # all are ahead: no further than can be
        ([-0.5] * 8, -0.5),
        ([0.05] * 4 + [0.15] * 4, 0.05),
    ],
)
def test_of_several_places_the_expected_one_is_believed(samples, place):
    found = believed(torch.tensor([samples]), torch.tensor([0.0]), torch.tensor([0.2]))
    assert float(found) == pytest.approx(place)


@torch.no_grad()
def test_what_is_expected_decides_what_the_later_stages_are_told():
    model, context = small_model(), random_context()
    cascade = ready(model, context, replace(STEPS, num_localisations=8))
    noise = cascade.draw(torch.Generator().manual_seed(5))
    free = cascade.act(context.observation, context.proprio, noise)
    low, high = torch.tensor([-1.0, -1.0]), free.p_samples.min(dim=1).values - 0.01
    bound = cascade.act(context.observation, context.proprio, noise, expected=(low, high))
    torch.testing.assert_close(bound.p, high)
    assert torch.equal(bound.p_samples, free.p_samples)
    assert not torch.equal(bound.a, free.a)
    again = cascade.act(context.observation, context.proprio, noise)
    assert torch.equal(again.a, free.a)  # it is not remembered

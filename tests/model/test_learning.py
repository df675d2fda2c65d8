"""The losses and the cascade together: a pair learned by heart comes back from noise."""

from dataclasses import replace

import pytest
import torch

from hostbot.model.experts import ExpertConfig
from hostbot.model.host import Context, HostConfig, HostModel, Targets
from hostbot.model.sizes import tiny_model
from hostbot.model.tokens import GridConfig
from hostbot.policy.cascade import Cascade, CascadeConfig
from tests.model.small import random_context, random_targets, small_model

VIDEO = ExpertConfig(dim=64, ffn_dim=128, num_layers=3, num_heads=2, head_dim=32, text_dim=16, freq_dim=32)
CONFIG = HostConfig(
    video=VIDEO,
    action=replace(VIDEO, dim=48, ffn_dim=96),
    grid=GridConfig(latent_channels=4, num_views=1, view_height=4, view_width=4, demo_latents=3),
    action_dim=3,
    state_dim=3,
    horizon=4,
    text_length=2,
    action_head_norm=True,
)


def one_pair(num_states: int = 6) -> tuple[Context, Targets]:
    """One run seen at some of its states: frames turn and actions swing smoothly with progress."""
    g = torch.Generator().manual_seed(0)
    progress = torch.linspace(0, 1, num_states)
    first, second = (torch.randn(*CONFIG.grid.latents(1), generator=g) for _ in range(2))

    def frames(at: torch.Tensor) -> torch.Tensor:
        angle = 2.5 * at.reshape(-1, 1, 1, 1, 1)
        return angle.cos() * first + angle.sin() * second

    steps = progress[:, None] + torch.arange(1, CONFIG.horizon + 1) / 10
    actions = torch.stack([(3 * steps).sin(), (2 * steps).cos(), 1 - steps], dim=-1)
    context = Context(
        observation=frames(progress),
        proprio=torch.stack([(3 * progress).sin(), (2 * progress).cos(), 1 - progress], dim=-1),
        text=torch.zeros(num_states, CONFIG.text_length, VIDEO.text_dim),
        demo=torch.randn(1, *CONFIG.grid.latents(3), generator=g).expand(num_states, -1, -1, -1, -1),
    )
    return context, Targets(p=2 * progress - 1, o=frames(progress + 0.3), a=actions)


def test_one_pair_is_learned_and_comes_back_from_noise():
    torch.manual_seed(0)
    context, targets = one_pair()
    model, generator = HostModel(CONFIG), torch.Generator().manual_seed(1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=300)
    history = []
    for _ in range(300):
        losses = model.loss(context, targets, generator)
        optimiser.zero_grad()
        losses.total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        history.append([losses.loc.item(), losses.obs.item(), losses.act.item()])
    first, last = torch.tensor(history[:20]).mean(0), torch.tensor(history[-20:]).mean(0)
    assert (last < 0.25 * first).all(), (first, last)
    cascade = Cascade(model, CascadeConfig(), batch=len(targets.p))
    cascade.instruct(context.text)
    cascade.watch(context.demo)
    out = cascade.act(context.observation, context.proprio, cascade.draw(torch.Generator().manual_seed(2)))
    assert (out.p - targets.p).abs().max() < 0.2
    assert out.confidence.mean() > 0.8
    assert (out.a - targets.a).abs().mean() < 0.1 < (targets.a - context.proprio[:, None]).abs().mean()
    moved = (targets.o - context.observation).abs().mean()
    assert (out.o - targets.o).abs().mean() < 0.35 * moved


def test_checkpointing_changes_memory_not_gradients():
    model = small_model()
    context, targets = random_context(), random_targets()
    grads = []
    for checkpointing in (False, True):
        model.checkpointing = checkpointing
        model.zero_grad()
        model.loss(context, targets, torch.Generator().manual_seed(0)).total.backward()
        grads.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, grad in grads[0].items():
        torch.testing.assert_close(grads[1][name], grad, atol=1e-6, rtol=1e-5, msg=name)


@pytest.mark.slow
def test_compiled_layers_give_the_same_gradients():
    context, targets, grads = random_context(), random_targets(), []
    for compiled in (False, True):
        model = small_model()
        if compiled:
            model.compile_layers()
        model.loss(context, targets, torch.Generator().manual_seed(0)).total.backward()
        grads.append({name: p.grad for name, p in model.named_parameters()})
    for name, grad in grads[0].items():
        torch.testing.assert_close(grads[1][name], grad, atol=1e-5, rtol=1e-4, msg=name)


def test_without_a_demo_there_is_no_localisation_loss():
    model = small_model()
    context, targets = random_context(demo=False), random_targets()
    losses = model.loss(context, targets, torch.Generator().manual_seed(0))
    assert losses.loc == 0
    torch.testing.assert_close(losses.total, losses.obs + 10 * losses.act)
    # ... and the true progress, which use could not know, tells the other targets nothing.
    other = replace(targets, p=-targets.p)
    assert torch.equal(model.loss(context, other, torch.Generator().manual_seed(0)).total, losses.total)


def test_noise_on_clean_tokens_is_bounded_and_as_often_as_said():
    model, targets = small_model(), random_targets(batch=4000)
    noised, eps = model.noise(targets, torch.Generator().manual_seed(0))
    assert noised.clean_p.abs().max() <= 1
    changed = noised.clean_p != targets.p
    assert changed.float().mean().item() == pytest.approx(0.5, abs=0.03)
    moved = (noised.clean_o - targets.o).flatten(1)
    assert (moved.abs().sum(1) > 0).float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert moved[moved != 0].std().item() == pytest.approx(0.1, rel=0.03)
    level = noised.sigma_a[:, None, None]
    torch.testing.assert_close(noised.noisy.a, (1 - level) * targets.a + level * eps.a)
    levels = torch.stack([noised.sigma_p, noised.sigma_o, noised.sigma_a])
    assert torch.corrcoef(levels).triu(1).abs().max() < 0.06  # three independent draws
    assert noised.future_seen is None


def test_autocast_training_keeps_float32_tokens_and_finite_gradients():
    model, context, targets = small_model(), random_context(), random_targets()
    with torch.autocast("cpu", torch.bfloat16):
        losses = model.loss(context, targets, torch.Generator().manual_seed(0))
    losses.total.backward()
    exact = small_model().loss(context, targets, torch.Generator().manual_seed(0))
    torch.testing.assert_close(losses.total, exact.total, rtol=0.02, atol=0)
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_the_tiny_cascade_runs_on_a_cpu():
    config = tiny_model()
    torch.manual_seed(0)
    cascade = Cascade(HostModel(config))
    context = random_context(batch=1, config=config)
    cascade.instruct(context.text)
    cascade.watch(context.demo, (2,))  # a phone's video has one view
    noise = cascade.draw(torch.Generator().manual_seed(0))
    out = cascade.act(context.observation, context.proprio, noise, timed=True)
    assert out.a.shape == (1, 16, 20)
    assert out.a.isfinite().all()
    assert list(out.timing_ms) == ["observation", "p", "o", "clean_o", "a"]
    assert all(ms > 0 for ms in out.timing_ms.values())

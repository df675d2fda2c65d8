"""Convolutions before the cut into tokens: where they look, whom they tell, and that they can be given later."""

from dataclasses import replace

import pytest
import torch

from hostbot.model import checkpoint
from hostbot.model.host import HostModel
from hostbot.model.stem import Stem
from hostbot.model.tokens import GridConfig, keep_views
from hostbot.policy.cascade import Cascade
from hostbot.policy.contract import CascadeConfig
from hostbot.policy.naive import uncached
from hostbot.types import BadInput
from tests.model.small import CONFIG, random_context, random_noised, small_model

GRID = GridConfig(latent_channels=2, num_views=3, view_height=8, view_width=12, patch=2, demo_latents=2)
WITH = replace(CONFIG, stem=5)


def stem(grid=GRID):
    """One that adds something already."""
    torch.manual_seed(0)
    made = Stem(grid, 5, 7)
    torch.nn.init.normal_(made.out.weight)
    return made


@torch.no_grad()
def test_a_latent_reaches_the_tokens_around_it_in_its_own_view_and_frame():
    made = stem()
    latents = torch.randn(1, *GRID.latents(2))
    before = made(latents)
    frame, view, row, column = 1, 2, 3, 5
    changed = latents.clone()
    changed[0, :, frame, view * GRID.view_height + row, column] += 1
    moved = (made(changed) != before).any(-1)[0]
    found = moved.reshape(2, GRID.num_views, GRID.view_height // 2, GRID.view_width // 2)
    wanted = torch.zeros_like(found)
    # Two convolutions see two latents to each side; a token is two wide.
    wanted[frame, view, (row - 2) // 2 : (row + 2) // 2 + 1, (column - 2) // 2 : (column + 2) // 2 + 1] = True
    assert torch.equal(found, wanted)


@torch.no_grad()
def test_what_moves_by_a_token_moves_its_tokens():
    made = stem()
    latents = torch.randn(1, *GRID.latents(1))
    there = made(latents.roll(GRID.patch, dims=4)).reshape(GRID.num_views, 4, 6, 7)
    here = made(latents).reshape(GRID.num_views, 4, 6, 7)
    # Away from the edges, where one sees what came round and the other nothing.
    torch.testing.assert_close(there[:, :, 2:-1], here[:, :, 1:-2], atol=1e-5, rtol=0)


@pytest.mark.parametrize("views", [(2,), (0, 2), (0, 1, 2), None])
@torch.no_grad()
def test_views_that_are_left_out_are_not_there(views):
    made = stem()
    latents = torch.randn(2, *GRID.latents(3))
    torch.testing.assert_close(
        made(latents, views), keep_views(made(latents), views, GRID), atol=1e-6, rtol=0
    )


def test_a_model_is_given_one_and_is_what_it_was_until_it_learns():
    model, context = small_model(), random_context(4)
    noised = random_noised(model, 4)
    before = model(context, noised)
    model.give_stem(5)
    after = model(context, noised)
    for name in ("p", "o", "a", "observation"):
        assert torch.equal(getattr(before, name), getattr(after, name)), name
    after.a.square().sum().backward()
    assert float(model.stem.out.weight.grad.abs().max()) > 0
    assert model.config == WITH
    with pytest.raises(BadInput, match="already"):
        model.give_stem(5)


@pytest.mark.parametrize("demo", [True, False])
@torch.no_grad()
def test_the_cascade_sees_with_it_as_the_training_pass_does(demo):
    model, context = small_model(config=WITH), random_context(demo=demo)
    assert float(model.stem.out.weight.abs().max()) > 0
    steps = CascadeConfig(steps_p=3, steps_o=4, steps_a=5, num_localisations=1)
    cascade = Cascade(model, steps, batch=2)
    cascade.instruct(context.text)
    cascade.watch(context.demo, (0, 2) if demo else None)
    noise = cascade.draw(torch.Generator().manual_seed(5))
    out = cascade.act(context.observation, context.proprio, noise)
    slow = uncached(model, replace(context, views=(0, 2) if demo else None), noise, steps)
    for name in ("p", "o", "a"):
        torch.testing.assert_close(getattr(out, name), getattr(slow, name), atol=1e-5, rtol=0)


def test_sharing_a_demonstration_and_watching_alone_change_nothing():
    model = small_model(config=WITH)
    context, noised = random_context(6), random_noised(model, 6)
    text, demos = context.text[::3].repeat_interleave(3, 0), context.demo[:2]
    together = replace(context, text=text, demo=demos, shared=3, views=(1,))
    apart = replace(context, text=text, demo=demos.repeat_interleave(3, 0), views=(1,))
    one, other = model(together, noised), model(apart, noised)
    torch.testing.assert_close(one.a, other.a, atol=1e-4, rtol=0)
    torch.testing.assert_close(model.watch(together).observation, one.observation, atol=1e-4, rtol=0)


@torch.no_grad()
def test_it_is_saved_and_read_and_half_as_precise_nearly_the_same(tmp_path):
    model = small_model(config=WITH)
    checkpoint.save(model, tmp_path / "model")
    again = checkpoint.load(tmp_path / "model")
    assert again.config.stem == 5
    latents = torch.randn(2, *CONFIG.grid.latents(1))
    assert torch.equal(model.observation_tokens(latents), again.observation_tokens(latents))
    half = checkpoint.load(tmp_path / "model", torch.bfloat16)
    cosine = torch.cosine_similarity(
        half.observation_tokens(latents).flatten(), model.observation_tokens(latents).flatten(), dim=0
    )
    assert cosine > 0.999


def test_models_of_before_have_none():
    assert HostModel(CONFIG).stem is None
    assert not [name for name, _ in HostModel(CONFIG).named_parameters() if "stem" in name]


def test_fewer_than_no_channels_are_refused():
    with pytest.raises(BadInput, match="got -3"):
        replace(CONFIG, stem=-3)

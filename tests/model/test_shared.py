"""Samples that share a demonstration: the same velocities and gradients as if each had its own copy."""

from dataclasses import replace

import pytest
import torch

from hostbot.types import BadInput
from tests.model.small import CONFIG, random_context, random_noised, small_model


@pytest.mark.parametrize(
    ("views", "checkpointing", "unseen"), [(None, False, 0.0), ((2,), False, 0.5), ((0, 2), True, 0.0)]
)
def test_sharing_changes_no_velocity_and_no_gradient(views, checkpointing, unseen):
    model = small_model(config=replace(CONFIG, flow=replace(CONFIG.flow, unseen_future=unseen)))
    model.checkpointing = checkpointing
    context, noised = random_context(6), random_noised(model, 6)
    text = context.text[::3].repeat_interleave(3, 0)
    demos = context.demo[:2]
    together = replace(context, text=text, demo=demos, shared=3, views=views)
    apart = replace(context, text=text, demo=demos.repeat_interleave(3, 0), views=views)
    found = []
    for given in (together, apart):
        model.zero_grad()
        out = model(given, noised)
        (out.p.sum() + (out.o * out.o).sum() + (out.a * out.a).sum() + out.observation.sum()).backward()
        found.append(([out.p, out.o, out.a, out.observation], [p.grad.clone() for p in model.parameters()]))
    for one, other in zip(found[0][0], found[1][0], strict=True):
        assert torch.allclose(one, other, atol=1e-4)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()) + 1e-5)


@pytest.mark.parametrize(("shared", "views"), [(1, None), (3, None), (3, (1,)), (None, None)])
def test_watching_alone_gives_the_observation_of_the_whole_pass(shared, views):
    """Values and gradients; ``None``: without a demonstration."""
    model = small_model()
    context = random_context(6)
    text = context.text[::3].repeat_interleave(3, 0)
    demo = None if shared is None else context.demo[::shared]
    context = replace(context, text=text, demo=demo, shared=shared or 1, views=views)
    found = []
    for out in (model.watch(context).observation, model(context, random_noised(model, 6)).observation):
        model.zero_grad()
        (out * out).sum().backward()
        found.append((out, {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    (alone, few), (whole, all_of_them) = found
    assert torch.allclose(alone, whole, atol=1e-4)
    for name, gradient in all_of_them.items():
        if name in few:
            close = 1e-3 * float(gradient.abs().max()) + 1e-5
            assert torch.allclose(few[name], gradient, rtol=1e-3, atol=close), name
        else:
            assert float(gradient.abs().max()) == 0, name
    assert "video.blocks.0.qkvg.weight" in few


@pytest.mark.parametrize("sight", [(2,), (0, 2)])
def test_watching_with_some_views_is_blind_to_the_others(sight):
    model, context = small_model(), random_context(4)
    seen = model.watch(context, sight).observation
    grid = model.config.grid
    assert seen.shape[1] == len(sight) * grid.view_tokens
    for view in range(grid.num_views):
        changed = context.observation.clone()
        changed[..., view * grid.view_height : (view + 1) * grid.view_height, :] += 1
        again = model.watch(replace(context, observation=changed), sight).observation
        assert torch.equal(again, seen) == (view not in sight)
    assert torch.equal(
        model.watch(context, range(grid.num_views)).observation, model.watch(context).observation
    )


def test_a_view_watched_alone_stands_where_it_stands_among_all():
    """The same picture in another view's place is another thing to see."""
    model, context = small_model(), random_context(4)
    height = model.config.grid.view_height
    moved = context.observation.roll(height, dims=3)  # the first view's picture in the second's place
    first, second = (
        model.watch(context, (0,)).observation,
        model.watch(replace(context, observation=moved), (1,)).observation,
    )
    assert first.shape == second.shape
    assert not torch.allclose(first, second, atol=1e-3)


def test_numbers_that_do_not_fit_are_refused():
    model = small_model()
    context = replace(random_context(6), shared=3)
    with pytest.raises(BadInput, match="6 demonstrations cannot be shared by 6 samples"):
        model(context, random_noised(model, 6))

"""The mask as a truth table: who changes when a segment is perturbed, and where gradients may not go."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from hostbot.model.host import Context, HostModel, Noised
from hostbot.model.mask import CACHED, Segment, dense_mask, sees
from tests.model.small import CONFIG, GRID, random_context, random_noised, small_model

D, OB, PN, PC, ON, OC, A = Segment
TABLE = {  # The design's table, written out: rows see columns.
    D: {D},
    OB: {D, OB},
    PN: {D, OB, PN},
    PC: {D, OB, PC},
    ON: {D, OB, PC, ON},
    OC: {D, OB, PC, OC},
    A: {D, OB, PC, OC, A},
}
FRAME = GRID.frame_tokens
WIDTHS = {D: GRID.demo_latents * FRAME, OB: FRAME, PN: 1, PC: 1, ON: FRAME, OC: FRAME, A: CONFIG.horizon}


def final_tokens(model: HostModel, context: Context, noised: Noised) -> dict[Segment, torch.Tensor]:
    """Every segment's tokens after the last layer (clean ones too, which training itself has no use for)."""
    rows, clean, acts = model._embed(context, noised)
    plan, _ = model._plan(context, noised, rows.shape[1], rows.device)
    for video, action in zip(model.video.blocks, model.action.blocks, strict=True):
        rows, clean, acts = model.joint_layer(video, action, (rows, clean, acts), plan)
    demo, context_end = plan.num_demo, plan.num_demo + plan.num_observation
    return {
        D: rows[:, :demo],
        OB: rows[:, demo:context_end],
        PN: rows[:, context_end : context_end + 1],
        ON: rows[:, context_end + 1 :],
        PC: clean[:, :1],
        OC: clean[:, 1:],
        A: acts,
    }


def perturbed(segment: Segment, context: Context, noised: Noised) -> tuple[Context, Noised]:
    noisy = noised.noisy
    match segment:
        case Segment.DEMO:
            return replace(context, demo=context.demo + 1), noised
        case Segment.OBSERVATION:
            return replace(context, observation=context.observation + 1), noised
        case Segment.P_NOISY:
            return context, replace(noised, noisy=replace(noisy, p=noisy.p + 0.5))
        case Segment.O_NOISY:
            return context, replace(noised, noisy=replace(noisy, o=noisy.o + 0.5))
        case Segment.A_NOISY:
            return context, replace(noised, noisy=replace(noisy, a=noisy.a + 0.5))
        case Segment.P_CLEAN:
            return context, replace(noised, clean_p=noised.clean_p + 0.5)
        case Segment.O_CLEAN:
            return context, replace(noised, clean_o=noised.clean_o + 0.5)


def test_the_rule_is_the_table():
    for query, keys in TABLE.items():
        assert set(sees(query)) == keys
        assert sees(query)[-1] == query  # own segment last ...
        assert sees(query)[:-1] == CACHED[: len(keys) - 1]  # ... after a prefix of what is cached
    mask = dense_mask(WIDTHS)
    assert mask.shape == (sum(WIDTHS.values()),) * 2
    assert mask.sum() == sum(WIDTHS[q] * WIDTHS[k] for q, keys in TABLE.items() for k in keys)


@pytest.mark.parametrize("segment", list(Segment))
@torch.no_grad()
def test_a_perturbed_segment_changes_who_may_see_it_and_nobody_else_by_a_bit(segment):
    model = small_model()
    context, noised = random_context(), random_noised(model)
    before = final_tokens(model, context, noised)
    after = final_tokens(model, *perturbed(segment, context, noised))
    for query, keys in TABLE.items():
        reached = segment in keys  # one step is enough: the table is transitively closed
        assert torch.equal(before[query], after[query]) != reached, query
        if reached:
            assert ((before[query] != after[query]).any(-1)).all(), query


@torch.no_grad()
def test_the_few_calls_equal_one_dense_mask():
    """Whole-tensor, against attention over the full sequence with the matrix of ``dense_mask``."""
    model = small_model()
    context, noised = random_context(), random_noised(model)
    ours = final_tokens(model, context, noised)
    rows, clean, acts = model._embed(context, noised)
    plan, _ = model._plan(context, noised, rows.shape[1], rows.device)
    order = [D, OB, PN, ON, PC, OC, A]
    mask = dense_mask({segment: WIDTHS[segment] for segment in order})
    streams = (plan.rows, plan.clean, plan.action)
    for video, action in zip(model.video.blocks, model.action.blocks, strict=True):
        blocks, xs = (video, video, action), (rows, clean, acts)
        made = [b.project(x, s.mod, s.widths, s.rope) for b, x, s in zip(blocks, xs, streams, strict=True)]
        q = torch.cat([m[0] for m in made], dim=1).transpose(1, 2)
        k, v = (torch.cat([m[i] for m in made], dim=1).transpose(1, 2) for i in (1, 2))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
        parts = attended.split([x.shape[1] for x in xs], dim=1)
        contexts = (plan.video_context, plan.video_context, plan.action_context)
        rows, clean, acts = (
            b.finish(x, part, m[3], s.mod, s.widths, b.context_keys(c), s.num_blind)
            for b, x, part, m, s, c in zip(blocks, xs, parts, made, streams, contexts, strict=True)
        )
    dense = torch.cat([rows, clean], dim=1)
    mine = torch.cat([ours[s] for s in order[:-1]], dim=1)
    torch.testing.assert_close(mine, dense, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours[A], acts, atol=1e-5, rtol=0)


@torch.no_grad()
def test_proprioception_reaches_everything_but_the_demo():
    model = small_model()
    context, noised = random_context(), random_noised(model)
    before = final_tokens(model, context, noised)
    after = final_tokens(model, replace(context, proprio=context.proprio + 1), noised)
    for segment in Segment:
        assert torch.equal(before[segment], after[segment]) == (segment is D), segment
    told = final_tokens(model, replace(context, text=context.text + 1), noised)
    for segment in Segment:
        assert not torch.equal(before[segment], told[segment]), segment


@pytest.mark.parametrize("target", ["p", "o", "a"])
def test_no_gradient_reaches_a_clean_token(target):
    model = small_model()
    context, noised = random_context(), random_noised(model)
    clean_p, clean_o = noised.clean_p.clone().requires_grad_(), noised.clean_o.clone().requires_grad_()
    leaves = [clean_p, clean_o, noised.noisy.p.requires_grad_(), noised.noisy.o.requires_grad_()]
    leaves.append(noised.noisy.a.requires_grad_())
    velocity = model(context, replace(noised, clean_p=clean_p, clean_o=clean_o))
    grads = torch.autograd.grad(getattr(velocity, target).square().sum(), leaves, allow_unused=True)
    own = {"p": 2, "o": 3, "a": 4}[target]
    for index, grad in enumerate(grads):
        reached = grad is not None and bool((grad != 0).any())
        assert reached == (index == own)


def test_losses_train_what_they_should():
    model = small_model()
    context, noised = random_context(), random_noised(model)
    velocity = model(context, noised)
    names = [name for name, _ in model.named_parameters()]

    def reached(target):
        loss = getattr(velocity, target).square().sum()
        grads = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True, allow_unused=True)
        return {n for n, g in zip(names, grads, strict=True) if g is not None and (g != 0).any()}

    assert not any(name.startswith("action.") for name in reached("p") | reached("o"))
    assert not any(name.startswith("localisation.") for name in reached("o") | reached("a"))
    assert reached("p") | reached("o") | reached("a") == set(names)  # no parameter is dead


@torch.no_grad()
def test_a_dropped_demo_equals_a_model_never_given_one():
    """Masked out of a dense pass or never embedded at all: the same numbers, and less work."""
    model = small_model()
    given, noised = random_context(), random_noised(model)
    dropped = model(replace(given, demo=None), noised)
    nothing = torch.zeros(2, GRID.num_views, dtype=torch.bool)
    rows, clean, acts = model._embed(given, noised)
    plan, _ = model._plan(replace(given, present=nothing), noised, rows.shape[1], rows.device)
    for video, action in zip(model.video.blocks, model.action.blocks, strict=True):
        rows, clean, acts = model.joint_layer(video, action, (rows, clean, acts), plan)
    end = plan.num_demo + plan.num_observation
    torch.testing.assert_close(rows[:, plan.num_demo : end], dropped.observation, atol=1e-5, rtol=0)
    torch.testing.assert_close(model.action.velocity(acts), dropped.a, atol=1e-5, rtol=0)
    loc = model.localisation.decode(rows[:, end : end + 1])[:, 0]
    torch.testing.assert_close(loc, dropped.p, atol=1e-5, rtol=0)
    seen = []
    hook = model.video.layer(0).qkvg.register_forward_hook(lambda m, i, o: seen.append(i[0].shape[1]))
    model(replace(given, demo=None), noised)
    hook.remove()
    assert sum(seen) == 2 * FRAME + 1 + FRAME + 1  # rows OB, p, o and the clean twins of p and o


@torch.no_grad()
def test_missing_views_are_skipped_masked_and_invisible():
    model = small_model()
    context, noised = random_context(), random_noised(model)
    skipped = model(replace(context, views=(1,)), noised)
    present = torch.tensor([[False, True, False]] * 2)
    masked = model(replace(context, present=present), noised)
    for name in ("p", "o", "a", "observation"):
        torch.testing.assert_close(getattr(skipped, name), getattr(masked, name), atol=1e-5, rtol=0)
    # What stands where the missing views would be does not matter, to the bit.
    rows = GRID.view_height
    junk = context.demo.clone()
    junk[:, :, :, :rows] = 1e3
    junk[:, :, :, 2 * rows :] = -1e3
    for changes in ({"views": (1,)}, {"present": present}):
        clean = model(replace(context, **changes), noised)
        dirty = model(replace(context, demo=junk, **changes), noised)
        for name in ("p", "o", "a", "observation"):
            assert torch.equal(getattr(clean, name), getattr(dirty, name)), (name, changes)
    # Samples of one batch may differ in their views.
    mixed = model(replace(context, present=torch.tensor([[True] * 3, [False, True, False]])), noised)
    whole = model(context, noised)
    torch.testing.assert_close(mixed.a[0], whole.a[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(mixed.a[1], skipped.a[1], atol=1e-5, rtol=0)
    assert not torch.equal(mixed.a[1], whole.a[1])


@torch.no_grad()
def test_an_unseen_future_is_unseen_by_actions_alone():
    model = small_model()
    context, noised = random_context(), random_noised(model)
    blind = replace(noised, future_seen=torch.tensor([True, False]))
    seen, unseen = model(context, noised), model(context, blind)
    assert torch.equal(seen.o, unseen.o)
    torch.testing.assert_close(seen.a[0], unseen.a[0], atol=1e-5, rtol=0)
    other = model(context, replace(blind, clean_o=blind.clean_o + 1))
    assert torch.equal(other.a[1], unseen.a[1])
    assert not torch.equal(other.a[0], unseen.a[0])

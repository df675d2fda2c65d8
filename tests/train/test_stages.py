"""What is learned: pointing, low-rank changes, weights that start a stage, and what a run leaves behind."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from hostbot.model import checkpoint as model_checkpoint
from hostbot.model.host import HostModel
from hostbot.model.tokens import GridConfig, patchify
from hostbot.train.distributed import World
from hostbot.train.evaluate import pointing
from hostbot.train.export import export, load_head, load_model
from hostbot.train.lora import LoraConfig, LowRank, adapt, merged
from hostbot.train.stages import Drills, LossWeights, PairHead, PointHead, Policy, context_of, point_loss
from hostbot.types import BadInput
from tests.data.toy import ABOVE, make_store, small
from tests.train import toy

GRID = GridConfig(latent_channels=1, num_views=2, view_height=4, view_width=6, patch=2, demo_latents=2)

FINE = replace(toy.MODEL, grid=replace(toy.MODEL.grid, view_height=2, view_width=2))
"""Several tokens a view."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("samples") / "store", cameras=(ABOVE,), encode=small)


def test_a_hit_is_near_whatever_the_size_of_cells():
    """Half a tenth of the view off is a hit, an eighth is not, for coarse cells and for fine ones."""
    for cells in (2, 4, 8):
        head = PointHead(GRID, 8, cells=cells)
        tokens = torch.randn(1, GRID.frame_tokens, 8)
        at = head.centre_of(head(tokens).argmax(-1))
        seen = torch.ones(1, GRID.num_views, dtype=torch.bool)
        inward = torch.where(at > 0.5, -1.0, 1.0)
        assert point_loss(head, tokens, at + 0.05 * inward, seen)["point_hit"].item() == pytest.approx(1)
        assert point_loss(head, tokens, at + 0.125 * inward, seen)["point_hit"].item() == 0


def test_a_token_has_at_least_one_latent():
    for patch in (0, -1):
        with pytest.raises(BadInput, match="at least one latent"):
            replace(GRID, patch=patch)


def test_a_cell_of_the_head_is_where_its_token_is():
    """A picture whose every pixel is its own number, cut into tokens as the model does, comes back as cells."""
    head = PointHead(GRID, 4, cells=2)
    pixels = torch.arange(2.0 * 4 * 6).reshape(1, 1, 1, 8, 6)
    tokens = patchify(pixels, 2)
    with torch.no_grad():
        head.out.weight.copy_(torch.eye(4))
        head.out.bias.zero_()
    from hostbot.train import stages

    plain = stages.layer_norm
    stages.layer_norm = lambda x, eps: x
    try:
        cells = head(tokens)
    finally:
        stages.layer_norm = plain
    assert head.size == (4, 6)
    assert torch.equal(cells[0], torch.arange(48.0).reshape(2, 24))


def test_cells_and_their_centres_are_inverse():
    head = PointHead(GRID, 8, cells=2)
    cells = torch.arange(24).reshape(1, 24)
    assert torch.equal(head.cell_of(head.centre_of(cells)), cells)
    corners = torch.tensor([[[0.0, 0.0], [0.999, 0.999], [1.0, 1.0]]])
    assert head.cell_of(corners).tolist() == [[0, 23, 23]]


def test_pointing_counts_only_where_the_point_is_seen():
    head = PointHead(GRID, 8, cells=2)
    tokens = torch.randn(3, 12, 8, generator=torch.Generator().manual_seed(0))
    point = torch.rand(3, 2, 2, generator=torch.Generator().manual_seed(1))
    seen = torch.tensor([[True, False], [False, False], [True, True]])
    whole = point_loss(head, tokens, point, seen)["point"].detach()
    moved = torch.where(seen[..., None], point, 1 - point)
    assert torch.equal(point_loss(head, tokens, moved, seen)["point"], whole)
    logits = torch.log_softmax(head(tokens), -1).detach()
    expected = -sum(logits[b, v, head.cell_of(point)[b, v]] for b, v in ((0, 0), (2, 0), (2, 1))) / 3
    assert float(whole) == pytest.approx(float(expected), rel=1e-5)
    assert point_loss(head, tokens, point, torch.zeros_like(seen))["point"].item() == 0


def test_matching_trains_the_video_expert_through_the_observation_alone(store):
    stage = toy.make_stage(store.folder)
    policy = Policy(stage.module.model, LossWeights(flow=0.0, point=1.0), shared=2, cells=2)
    batch = next(b for b in (stage.batch(s, 0) for s in range(20)) if b.demo is not None and b.seen.any())
    policy(batch, torch.Generator().manual_seed(0))["total"].backward()
    model = policy.model
    assert model.video.layer(0).qkvg.weight.grad.abs().sum() > 0
    assert model.action.action_out.weight.grad is None
    assert model.localisation.decode_out.weight.grad is None


def test_matching_with_one_view_learns_from_that_view_alone(store):
    stage = toy.make_stage(store.folder)
    weights = LossWeights(flow=0.0, point=1.0, sight=(2,))
    policy = Policy(stage.module.model, weights, shared=2, cells=2)
    batch = next(
        b for b in (stage.batch(s, 0) for s in range(20)) if b.demo is not None and b.seen[:, 2].any()
    )
    found = policy(batch, torch.Generator())
    tokens = policy.model.watch(context_of(batch, 2), (2,)).observation
    expected = point_loss(policy.point, tokens, batch.point[:, 2:], batch.seen[:, 2:])
    assert {n: found[n].item() for n in expected} == {n: v.item() for n, v in expected.items()}
    elsewhere, everywhere = batch.point.clone(), batch.seen.clone()
    elsewhere[:, 0], everywhere[:, 0] = 0.9, True
    again = policy(replace(batch, point=elsewhere, seen=everywhere), torch.Generator())
    assert torch.equal(again["total"], found["total"])
    assert pointing(policy, batch)["point"] == pytest.approx(expected["point"].item())
    with pytest.raises(BadInput, match="only matching"):
        LossWeights(flow=1.0, sight=(1,))


def test_pairing_compares_what_a_demonstration_is_about_with_every_token():
    """By loops over heads and tokens, from the same weights."""
    head, g = PairHead(8, heads=2), torch.Generator().manual_seed(0)
    demo, tokens = torch.randn(2, 5, 8, generator=g), torch.randn(4, 3, 8, generator=g)
    with torch.no_grad():
        found = head(demo, tokens)
    norm = torch.nn.functional.layer_norm
    for b in range(4):
        d, own = norm(demo[b // 2], (8,), eps=1e-6), norm(tokens[b], (8,), eps=1e-6)
        for s in range(3):
            total = 0.0
            for h in range(2):
                weight = head.look(d)[:, h].softmax(0)
                wanted = sum(weight[k] * head.wanted(d)[k, 4 * h : 4 * h + 4] for k in range(5))
                total += (wanted @ head.own(own)[s, 4 * h : 4 * h + 4]).item() / 2
            assert found[b, s].item() == pytest.approx(total, abs=1e-4)


def test_pairing_counts_the_token_the_point_lies_in(store):
    stage = toy.make_stage(store.folder, model=FINE)
    weights = LossWeights(flow=0.0, point=1.0, pair=2.0, sight=(2,))
    policy = Policy(stage.module.model, weights, shared=2, cells=2)
    batch = next(
        b for b in (stage.batch(s, 0) for s in range(20)) if b.demo is not None and b.seen[:, 2].any()
    )
    g = torch.Generator().manual_seed(0)
    seen, shown = (torch.randn(n, 2, f, 6, 2, generator=g) for n, f in ((4, 1), (2, 4)))
    batch = replace(batch, observation=seen, demo=shown)
    found = policy(batch, torch.Generator())
    watched = policy.model.watch(context_of(batch, 2), (2,))
    logits = policy.point.pair(watched.demo_halfway, watched.halfway).log_softmax(-1)
    token = policy.point.token_of(batch.point)[:, 2]
    losses = [-logits[b, token[b]].item() for b in range(len(token)) if batch.seen[b, 2]]
    assert found["pair"].item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found["total"].item() == pytest.approx(found["point"].item() + 2 * found["pair"].item(), rel=1e-5)
    found["total"].backward()
    assert policy.point.pair.look.weight.grad.abs().sum() > 0
    with pytest.raises(BadInput, match="pointing alone"):
        LossWeights(flow=1.0, pair=1.0)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(BadInput, match="counts 0 or more"):
            LossWeights(flow=0.0, pair=wrong)


def test_a_head_that_had_no_pairing_is_gone_on_from(store, tmp_path):
    before = PointHead(GRID, 8, cells=2)
    save_file(before.state_dict(), tmp_path / "point.safetensors")
    head = PointHead(GRID, 8, cells=2, pair=True)
    assert load_head(tmp_path, head)
    assert torch.equal(head.out.weight, before.out.weight)
    assert not load_head(tmp_path, PointHead(GRID, 8, cells=4))


def test_some_steps_are_drills_from_which_pointing_alone_is_learned(store):
    plain = toy.make_stage(store.folder)
    drill_weights = LossWeights(flow=0.0, point=1.0, pair=1.0, sight=(2,))
    policy = Policy(
        plain.module.model, LossWeights(flow=1.0, point=0.5), shared=2, cells=2, drills=drill_weights
    )
    drills = Drills(samples=plain.samples, draw=replace(plain.draw, demo_dropout=0.0), share=0.3)
    stage = replace(plain, module=policy, drills=drills)
    are = [stage.batch(step, 0).drill for step in range(200)]
    assert are == [drills.has(stage.seed, step) for step in range(200)]
    assert 0.2 < sum(are) / 200 < 0.4
    step = next(k for k in range(200) if are[k] and stage.batch(k, 0).seen[:, 2].any())
    assert all(stage.batch(step, micro).drill for micro in range(3))
    policy(stage.batch(step, 0), torch.Generator())["total"].backward()
    assert policy.model.action.action_out.weight.grad is None
    assert policy.point.out.weight.grad.abs().sum() > 0
    found = policy(stage.batch(step, 0), torch.Generator())
    assert set(found) == {"total"} | {
        f"drill_{n}" for n in ("point", "point_error", "point_hit", "pair", "pair_hit")
    }
    other = are.index(False)
    same = [s.module(s.batch(other, 0), torch.Generator().manual_seed(0)) for s in (stage, plain)]
    assert same[0]["loc"] == same[1]["loc"]  # the rest is learned as ever
    assert "drill_pair" in stage.summary({"total": 1.0, "drill_pair": 2.0})
    with pytest.raises(BadInput, match="only pointing"):
        Policy(plain.module.model, LossWeights(), drills=LossWeights(flow=1.0))


def test_a_low_rank_change_begins_at_nothing_and_merges_into_plain_weights(store):
    stage = toy.make_stage(store.folder)
    batch, g = stage.batch(0, 0), torch.Generator()
    plain = stage.module(batch, g.manual_seed(0))["total"]
    adapt(stage.module.model, LoraConfig(rank=2, alpha=4.0))
    assert torch.allclose(stage.module(batch, g.manual_seed(0))["total"], plain, rtol=1e-6)
    learn = [n for n, p in stage.module.model.named_parameters() if p.requires_grad]
    assert learn
    assert all(n.endswith((".up", ".down")) for n in learn)
    with torch.no_grad():
        for module in stage.module.modules():
            if isinstance(module, LowRank):
                module.up.normal_(0, 0.3, generator=torch.Generator().manual_seed(1))
    changed = stage.module(batch, g.manual_seed(0))["total"]
    assert not torch.allclose(changed, plain, rtol=1e-3)
    weights = merged(dict(stage.module.named_parameters()), stage.module.model)
    fresh = Policy(HostModel(toy.MODEL), stage.module.weights, shared=2, cells=2)
    fresh.load_state_dict(weights)
    assert torch.allclose(fresh(batch, g.manual_seed(0))["total"], changed, rtol=1e-4)
    with pytest.raises(BadInput, match="rank"):
        LoraConfig(rank=0)


def test_a_run_leaves_its_averaged_weights_as_a_policy_that_starts_the_next(store, tmp_path):
    trainer = toy.run(store.folder, tmp_path / "run")
    policy, info = trainer.stage.module, store.info
    for _ in range(2):  # the second replaces the first
        folder = export(trainer, policy, info, name="toy", text="words", vae=None, notes={"step": 12})
    saved = model_checkpoint.load(folder / "model")
    for name, parameter in saved.named_parameters():
        assert torch.equal(parameter, trainer.average.values[f"model.{name}"])
    from hostbot.policy.bundle import read_bundle

    manifest = read_bundle(folder)
    assert manifest.spec.video_stride == info.config.couple.stride
    assert manifest.statistics == info.statistics
    assert manifest.notes["step"] == 12
    other = replace(toy.MODEL, flow=replace(toy.MODEL.flow, lambda_a=1.0))
    started = load_model(tmp_path / "run", other, trainer.world)
    assert started.config.flow.lambda_a == 1.0
    head = PointHead(toy.MODEL.grid, toy.MODEL.video.dim, cells=2)
    assert load_head(tmp_path / "run", head)
    assert torch.equal(head.out.weight, trainer.average.values["point.out.weight"])
    assert not load_head(tmp_path / "run", PointHead(toy.MODEL.grid, toy.MODEL.video.dim, cells=3))
    with pytest.raises(BadInput, match="other sizes"):
        load_model(tmp_path / "run", replace(toy.MODEL, horizon=8), trainer.world)
    for wrong in (0, 4):
        with pytest.raises(BadInput, match="a stem of 3 channels, not of"):
            load_model(tmp_path / "run", replace(toy.MODEL, stem=wrong), trainer.world)
    with pytest.raises(BadInput, match="no weights"):
        load_model(tmp_path, toy.MODEL, trainer.world)


def test_weights_without_a_stem_are_given_the_one_that_is_wanted(tmp_path):
    model_checkpoint.save(HostModel(replace(toy.MODEL, stem=0)), tmp_path / "model")
    world = World(mode="single", rank=0, size=1, device=torch.device("cpu"))
    plain = load_model(tmp_path, replace(toy.MODEL, stem=0), world)
    given = load_model(tmp_path, toy.MODEL, world)
    assert plain.stem is None
    assert given.stem is not None
    assert given.config == toy.MODEL
    assert torch.equal(given.proprio.weight, plain.proprio.weight)


def test_validation_tells_errors_of_the_cascade_and_the_gap_to_a_wrong_demonstration(store, tmp_path):
    from hostbot.policy.contract import CascadeConfig
    from hostbot.train.evaluate import validator

    stage = toy.make_stage(store.folder)
    check = validator(
        stage.module,
        stage.samples,
        replace(stage.draw, micro=16),
        seed=0,
        run=tmp_path,
        codec=None,
        cascade=CascadeConfig(steps_p=2, steps_o=2, steps_a=2, graphs=False),
    )
    found = check(5)
    assert found == check(9), "the same samples and noise at every validation"
    wanted = {"point_hit", "point_hit_swapped", "localisation_error", "action_error", "future_error"}
    assert wanted <= found.keys()
    assert found["point"] != found["point_swapped"]


def test_clips_are_encoded_as_the_codec_does_one_by_one():
    import numpy as np

    from hostbot.model.vae import LatentCodec, tiny_vae
    from hostbot.train.latents import ClipEncoder

    torch.manual_seed(0)
    codec = LatentCodec(tiny_vae())
    clips = np.random.default_rng(0).integers(0, 255, (3, 2, 5, 16, 16, 3), dtype=np.uint8)
    even = ClipEncoder(codec, pixels_at_once=5 * 5 * 16 * 16)
    even.even = True
    encoders = (
        (ClipEncoder(codec, pixels_at_once=10 * 16 * 16), 2e-3),
        (ClipEncoder(codec, True), 0.1),
        (even, 2e-3),
    )
    for encoder, close in encoders:
        found = encoder(clips)
        assert found.shape == (3, 2, 16, 4, 2)
        assert found.shape[2:] == encoder.latent_shape(2, (16, 16))
        for clip, latents in zip(clips, found, strict=True):
            alone = codec.encode_views(torch.from_numpy(clip)).transpose(0, 1).numpy()
            assert np.abs(latents - alone).max() < close * np.abs(alone).max()


def test_what_stands_out_counts_more_where_that_is_asked_for():
    """The same error on a small thing and on the bare table: alike without focus, dearer on the thing with it."""
    from hostbot.model.vae import tiny_vae
    from hostbot.train.vae import VaeLoss, contrast, to_pixels

    clips = torch.full((1, 1, 64, 64, 3), 200, dtype=torch.uint8)
    clips[:, :, 20:24, 20:24] = torch.tensor([220, 20, 20], dtype=torch.uint8)
    pixels = to_pixels(clips)
    stands_out = contrast(pixels)
    assert stands_out.shape == (1, 1, 1, 64, 64)
    assert stands_out.mean() == pytest.approx(1.0)
    assert stands_out[..., 20:24, 20:24].min() > 20 * stands_out[..., 50:, 50:].max()
    assert contrast(torch.zeros(2, 3, 5, 8, 8)).max() == 0, "nothing stands out of nothing"
    totals = {}
    for focus in (0.0, 1.0):
        module = VaeLoss(tiny_vae(), kl=0.0, focus=focus)
        for name, place in (("thing", slice(20, 24)), ("table", slice(50, 54))):
            wrong = pixels.clone()
            wrong[..., place, place] += 0.5
            module.vae.decode = lambda latents, wrong=wrong: SimpleNamespace(sample=wrong)
            totals[name, focus] = module(clips, torch.Generator().manual_seed(0))["total"].item()
    assert totals["thing", 0.0] == pytest.approx(totals["table", 0.0])
    assert totals["thing", 1.0] > 5 * totals["table", 1.0]
    assert totals["table", 1.0] == pytest.approx(totals["table", 0.0], rel=0.01)


def test_errors_in_colour_count_more_where_that_is_asked_for():
    """Errors of the same size: a shade off in all colours alike, or in two of them against each other."""
    from hostbot.model.vae import tiny_vae
    from hostbot.train.vae import VaeLoss, to_pixels

    clips = torch.full((1, 1, 64, 64, 3), 120, dtype=torch.uint8)
    pixels = to_pixels(clips)
    totals = {}
    for chroma in (0.0, 3.0):
        module = VaeLoss(tiny_vae(), kl=0.0, chroma=chroma)
        for name, shift in (("brighter", (0.3, 0.3, 0.3)), ("redder", (0.3, 0.3, -0.3))):
            wrong = pixels + torch.tensor(shift).reshape(1, 3, 1, 1, 1)
            module.vae.decode = lambda latents, wrong=wrong: SimpleNamespace(sample=wrong)
            totals[name, chroma] = module(clips, torch.Generator().manual_seed(0))["total"].item()
    assert totals["brighter", 0.0] == pytest.approx(totals["redder", 0.0])
    assert totals["brighter", 3.0] == pytest.approx(totals["brighter", 0.0])
    assert totals["redder", 3.0] > 2 * totals["brighter", 3.0]

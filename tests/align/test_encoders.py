"""Encoders: one space for any number of views, no clock, Qwen as published."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from hostbot.align.encoders import whole_clips
from hostbot.align.hands import HandsConfig
from hostbot.align.posture import POSTURE, on_circles
from hostbot.align.qwen import QwenConfig, QwenFrameEncoder
from hostbot.align.small import SmallConfig, SmallFrameEncoder
from hostbot.types import BadInput
from tests.align import tiny_qwen

TINY = SmallConfig(size=32, width=4, offsets=(-2, 0, 1), embedding=16)
HANDS = HandsConfig(
    side=16, far=(0, 1), near=(-1, 0, 2), wide=4, fine=4, context=8, width=16, along=8, reach=(1,)
)
CLOSE = replace(TINY, hands=replace(HANDS, share=0.6))
WIDE = {TINY: 16, CLOSE: 16 + 2 * len(POSTURE)}


def clips(num=2, steps=5, views=3, size=32, seed=0, lengths=None, present=None):
    g = torch.Generator().manual_seed(seed)
    return whole_clips(
        torch.randint(0, 256, (num, steps, views, size, size, 3), generator=g, dtype=torch.uint8),
        None if lengths is None else torch.tensor(lengths),
        None if present is None else torch.tensor(present),
        torch.tensor([[False, True, True][:views]] * num),
    )


def trained_a_little(config=TINY):
    """Random weights everywhere, so that no zero hides a path."""
    torch.manual_seed(1)
    model = SmallFrameEncoder(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module", params=[TINY, CLOSE], ids=["plain", "close"])
def small(request):
    return trained_a_little(request.param)


def test_the_small_encoder_is_small():
    for config, most in ((SmallConfig(), 2_300_000), (SmallConfig(hands=HandsConfig()), 3_600_000)):
        assert sum(p.numel() for p in SmallFrameEncoder(config).parameters()) <= most


def test_embeddings_are_points_of_the_unit_sphere(small):
    out = small(clips())
    assert out.shape == (2, 5, WIDE[small.config])
    torch.testing.assert_close(out.norm(dim=-1), torch.ones(2, 5))
    assert out.dtype == torch.float32


def test_an_absent_view_and_the_steps_past_the_end_leave_no_trace(small):
    one = clips(present=[[True, True, True], [False, True, False]], lengths=[5, 3])
    frames = one.frames.clone()
    frames[1, :, 0], frames[1, :, 2], frames[1, 3:] = 7, 9, 200
    other = replace(one, frames=frames)
    a, b = small(one), small(other)
    assert torch.equal(a[0], b[0])
    assert torch.equal(a[1, :3], b[1, :3])


def test_a_clip_is_encoded_alike_alone_and_in_company_of_longer_ones_with_more_views(small):
    both = clips(present=[[True, True, True], [False, True, False]], lengths=[5, 3])
    alone = whole_clips(both.frames[1:, :3, 1:2], riding=both.riding[1:, 1:2])
    torch.testing.assert_close(small(both)[1, :3], small(alone)[0], atol=1e-5, rtol=0)


def test_the_order_of_views_does_not_matter(small):
    given = clips()
    turn = [2, 0, 1]
    turned = replace(given, frames=given.frames[:, :, turn], riding=given.riding[:, turn])
    torch.testing.assert_close(small(given), small(turned), atol=1e-5, rtol=0)


@pytest.mark.parametrize("offsets", [(0,), (-2, 0, 1), (-6, -2, 0, 2, 6)])
def test_a_step_sees_its_neighbours_only(offsets):
    model = trained_a_little(SmallConfig(**{**vars(TINY), "offsets": offsets}))
    given = clips(steps=17)
    frames = given.frames.clone()
    frames[:, 8] = 255 - frames[:, 8]
    moved = model(given) - model(replace(given, frames=frames))
    touched = (moved.abs().amax(-1) > 1e-6)[0].nonzero().flatten().tolist()
    assert touched == sorted(8 - offset for offset in offsets)


def test_picked_steps_are_embedded_with_their_true_neighbours():
    small = trained_a_little()
    given = clips(steps=9, lengths=[9, 6])
    picked = torch.tensor([[0, 3, 8], [2, 5, 0]])
    some = replace(given, picked=picked, num_picked=torch.tensor([3, 2]))
    every, found = small(given), small(some)
    torch.testing.assert_close(found[0], every[0, picked[0]], atol=1e-6, rtol=0)
    torch.testing.assert_close(found[1, :2], every[1, picked[1, :2]], atol=1e-6, rtol=0)


def test_choices_of_views_are_clips_with_only_those(small):
    given = clips()
    choices = torch.tensor([[[1, 1, 1], [1, 1, 1]], [[1, 0, 0], [0, 1, 1]]], dtype=torch.bool)
    found = small(given, choices)
    torch.testing.assert_close(found[0], small(given), atol=1e-6, rtol=0)
    torch.testing.assert_close(found[1], small(replace(given, present=choices[1])), atol=1e-6, rtol=0)


def test_a_point_says_how_things_look_and_what_hands_do():
    model, plain = trained_a_little(CLOSE), SmallFrameEncoder(TINY).eval()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("hands.")})
    given = clips()
    points, posture = model(given), model.told(given, given.present[None]).posture
    torch.testing.assert_close(points[..., 16:], 0.6**0.5 * on_circles(posture[0]))
    torch.testing.assert_close(model.looks(points), plain(given))
    assert plain.looks(points) is points


def test_a_camera_on_a_hand_is_told_from_one_beside_the_scene(small):
    given = clips(views=1)
    riding = replace(given, riding=~given.riding)
    assert (small(given) - small(riding)).abs().max() > 1e-3


@pytest.mark.parametrize("config", [TINY, CLOSE])
def test_chunks_change_nothing(config):
    whole, parts = (trained_a_little(replace(config, pictures_at_once=n)) for n in (1000, 4))
    with torch.no_grad():
        torch.testing.assert_close(whole(clips()), parts(clips()), atol=1e-6, rtol=0)


def test_a_still_video_shows_no_clock(small):
    """Nothing but content can tell steps apart: a video of one picture is one point."""
    still = clips(num=1, steps=1).frames.expand(1, 12, -1, -1, -1, -1)
    given = whole_clips(still)
    torch.testing.assert_close(small(given), small(given)[:, :1].expand(-1, 12, -1), atol=1e-6, rtol=0)


def test_shifting_a_video_shifts_its_embeddings(small):
    """As far from where it begins as anything sees: four steps, and two more where steps are followed."""
    long = clips(num=1, steps=14)
    part = whole_clips(long.frames[:, 4:], riding=long.riding)
    torch.testing.assert_close(small(long)[:, 8:], small(part)[:, 4:], atol=1e-5, rtol=0)


def test_the_projection_stays_in_float32_under_autocast():
    given, small = clips(), trained_a_little()
    with torch.autocast("cpu", torch.bfloat16):
        out = small(given)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.norm(dim=-1), torch.ones(2, 5))
    torch.testing.assert_close(out, small(given), atol=0.1, rtol=0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"size": 40}, "32x32, got \\(40, 40\\)"),
        ({"present": [[True, True, True], [False, False, False]]}, "at least one view"),
        ({"lengths": [5, 6]}, "1..5, got \\[5, 6\\]"),
        ({"lengths": [5]}, "2 lengths"),
        ({"views": 2, "present": [[True] * 3] * 2}, "present must be \\(2, 2\\)"),
    ],
)
def test_wrong_clips_are_refused(small, change, sentence):
    with pytest.raises(BadInput, match=sentence):
        small(clips(**change))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen")
    return folder, *tiny_qwen.write(folder)


@pytest.fixture(scope="module")
def qwen(checkpoint):
    torch.manual_seed(0)
    return QwenFrameEncoder(
        QwenConfig(folder=str(checkpoint[0]), size=64, embedding=16, steps_at_once=4)
    ).eval()


def test_qwen_weights_are_those_of_the_published_layout(checkpoint, qwen):
    wanted = checkpoint[1].state_dict()
    found = qwen.model.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert qwen.projection.in_features == 32


def test_patches_are_the_image_processor_s(checkpoint, qwen):
    pictures = clips(views=1, size=64).frames.flatten(0, 2)
    wanted = checkpoint[2]([p.numpy() for p in pictures], return_tensors="pt", do_resize=False)
    patches, grid = qwen.pixels(pictures, torch.float32)
    torch.testing.assert_close(patches, wanted["pixel_values"], atol=1e-6, rtol=0)
    assert torch.equal(grid, wanted["image_grid_thw"])


def test_the_prompt_ends_with_the_end_token_and_holds_every_picture(checkpoint, qwen):
    ids = qwen.prompts.ids(3)
    tokenizer = checkpoint[3]
    assert ids[-1] == tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert ids.count(qwen.model.config.image_token_id) == 3 * qwen.pixels.tokens == 3 * 4
    assert tokenizer.decode(ids).startswith("<|im_start|>")


def test_qwen_states_are_the_model_s_own_at_the_last_token(checkpoint, qwen):
    """The library's model, asked one step at a time, is the oracle of the batched, chunked pass."""
    given = clips(steps=3, size=64, present=[[True, True, True], [False, True, False]], lengths=[3, 2])
    model, processor = checkpoint[1], checkpoint[2]
    hidden = qwen.hidden(given, given.present[None])[0]
    with torch.no_grad():  # in chunks of four steps
        torch.testing.assert_close(qwen.hidden(given, given.present[None])[0], hidden, atol=1e-5, rtol=0)
    for clip, step, views in [(0, 0, [0, 1, 2]), (0, 2, [0, 1, 2]), (1, 1, [1])]:
        images = processor(
            [given.frames[clip, step, v].numpy() for v in views], return_tensors="pt", do_resize=False
        )
        ids = torch.tensor([qwen.prompts.ids(len(views))])
        kinds = (ids == model.config.image_token_id).int()
        wanted = model(input_ids=ids, mm_token_type_ids=kinds, **images).last_hidden_state[0, -1]
        torch.testing.assert_close(hidden[clip, step], wanted, atol=1e-4, rtol=1e-4)
    assert (hidden[1, 2] == 0).all()


def test_every_weight_of_qwen_learns_with_checkpointed_gradients(qwen):
    model = qwen.train()
    model(clips(num=1, steps=2, size=64)).pow(3).sum().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().any()]
    model.zero_grad(set_to_none=True)
    model.eval()
    assert silent == []
    assert model.model.is_gradient_checkpointing
    assert all(isinstance(unit, nn.Module) for unit in model.units())
    assert len(model.units()) == 4


def test_folders_that_are_no_checkpoint_are_refused(checkpoint, tmp_path):
    with pytest.raises(BadInput, match="no config.json"):
        QwenFrameEncoder(QwenConfig(folder=str(tmp_path)))
    with pytest.raises(BadInput, match="multiple of 32"):
        QwenFrameEncoder(QwenConfig(folder=str(checkpoint[0]), size=50))


def test_weights_that_are_missing_are_not_made_up(checkpoint, tmp_path):
    from safetensors.torch import load_file, save_file

    for file in checkpoint[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.language_model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match="lacks 1 weights"):
        QwenFrameEncoder(QwenConfig(folder=str(tmp_path), size=64))

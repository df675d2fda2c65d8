import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diffusers import WanTransformer3DModel
from safetensors.torch import load_file, save_file

from hostbot.model import wan
from hostbot.model.checkpoint import empty_model
from hostbot.model.host import HostModel
from hostbot.model.mot import StageStream, stage_layer
from hostbot.model.rope import grid_rope
from hostbot.model.tokens import grid_positions, patchify, unpatchify
from hostbot.types import BadInput
from tests.model.small import CONFIG, GRID, VIDEO, small_model

NUM_FRAMES = 3


def reference() -> WanTransformer3DModel:
    torch.manual_seed(7)
    model = WanTransformer3DModel(
        num_attention_heads=VIDEO.num_heads,
        attention_head_dim=VIDEO.head_dim,
        in_channels=GRID.latent_channels,
        out_channels=GRID.latent_channels,
        text_dim=VIDEO.text_dim,
        freq_dim=VIDEO.freq_dim,
        ffn_dim=VIDEO.ffn_dim,
        num_layers=VIDEO.num_layers,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint as diffusers writes it, in several shards."""
    folder = tmp_path_factory.mktemp("wan")
    reference().save_pretrained(folder / "transformer", max_shard_size="40KB")
    assert len(list((folder / "transformer").glob("*.safetensors"))) > 2
    return folder


def open_gates(model: HostModel) -> HostModel:
    with torch.no_grad():
        for block in model.video.blocks:
            block.qkvg.weight[3 * VIDEO.inner_dim :] = 0
            block.qkvg.bias[3 * VIDEO.inner_dim :] = 100.0  # sigmoid is 1 to the last bit
    return model


def plain_wan(model: HostModel, latents, sigmas, widths, text):
    """Wan's own forward from our parts: every token sees every token, and no token is ours."""
    expert = model.video
    x = expert.embed(patchify(latents, GRID.patch))
    embedding, mod = expert.time(sigmas)
    rope = grid_rope(grid_positions(range(NUM_FRAMES), GRID), VIDEO.head_dim)
    total = x.shape[1]
    stream = StageStream(widths=widths, start=0, ends=(total,) * len(widths), rope=rope)
    cache = torch.empty(2, len(x), x.shape[1], VIDEO.num_heads, VIDEO.head_dim).unbind(0)
    context = expert.text(text)
    for block in expert.blocks:
        x = stage_layer(block, x, stream, mod, *cache, block.context_keys(context))
    parts = x.split(list(widths), dim=1)
    out = [expert.velocity(part, embedding[:, g : g + 1]) for g, part in enumerate(parts)]
    return unpatchify(torch.cat(out, dim=1), GRID)


@pytest.mark.parametrize("first_frame_clean", [False, True])
def test_video_expert_equals_diffusers(saved, first_frame_clean):
    model = open_gates(small_model())
    wan.load_video(model, saved)
    g = torch.Generator().manual_seed(3)
    latents = torch.randn(2, *GRID.latents(NUM_FRAMES), generator=g)
    text = torch.randn(2, 9, VIDEO.text_dim, generator=g)
    sigma = torch.tensor([0.731, 0.25])
    frame, total = GRID.frame_tokens, NUM_FRAMES * GRID.frame_tokens
    if first_frame_clean:
        timestep = (sigma * 1000)[:, None].expand(2, total).clone()
        timestep[:, :frame] = 0
        sigmas, widths = torch.stack([torch.zeros(2), sigma], dim=1), (frame, total - frame)
    else:
        timestep, sigmas, widths = sigma * 1000, sigma[:, None], (total,)
    with torch.no_grad():
        theirs = reference()(latents, timestep, text, return_dict=False)[0]
        ours = plain_wan(model, latents, sigmas, widths, text)
    assert theirs.abs().mean() > 0.1
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_a_diffusers_checkpoint_goes_in_and_comes_back_bit_for_bit(saved):
    model = empty_model(CONFIG, torch.float32)
    wan.load_video(model, saved)
    back = WanTransformer3DModel.from_config(reference().config)
    back.load_state_dict(wan.to_diffusers(model), strict=True)
    for (name, theirs), mine in zip(
        reference().state_dict().items(), back.state_dict().values(), strict=True
    ):
        assert torch.equal(theirs, mine), name


def test_every_video_parameter_has_a_foreign_name_or_is_known_to_be_ours():
    model = small_model()
    filled = {place.name for place in wan.diffusers_places(model).values()}
    assert {f"video.{name}" for name, _ in model.video.named_parameters()} == filled
    # ... and every row of it, but for the gates.
    sizes = dict.fromkeys(filled, 0)
    for place in wan.diffusers_places(model).values():
        sizes[place.name] += place.size
    inner = VIDEO.inner_dim
    fused = {name: size for name, size in sizes.items() if size}
    assert {name.split(".")[-2]: size for name, size in fused.items()} == {
        "qkvg": 3 * inner,
        "cross_kv": 2 * inner,
    }


def test_damaged_checkpoints_are_refused(saved, tmp_path):
    model = small_model()
    with pytest.raises(BadInput, match=r"lacks diffusion_pytorch_model\.safetensors"):
        wan.load_video(model, tmp_path)
    tensors = {}
    for file in (saved / "transformer").glob("*.safetensors"):
        tensors |= load_file(file)
    target = tmp_path / wan.DIFFUSERS_FILE
    short = dict(tensors)
    short.pop("proj_out.bias")
    save_file(short, target)
    with pytest.raises(BadInput, match=r"lacks 1 tensors, proj_out\.bias"):
        wan.load_video(model, tmp_path)
    save_file(tensors | {"extra": torch.zeros(1)}, target)
    with pytest.raises(BadInput, match="unknown 1 tensors, extra"):
        wan.load_video(model, tmp_path)
    save_file(tensors | {"proj_out.bias": torch.zeros(4)}, target)
    with pytest.raises(BadInput, match=r"proj_out\.bias is \(4,\)"):
        wan.load_video(model, tmp_path)
    target.write_bytes(target.read_bytes()[:100])
    with pytest.raises(BadInput, match="cannot read"):
        wan.load_video(model, tmp_path)
    index = {"weight_map": {"a": "gone-1.safetensors"}}
    (tmp_path / f"{wan.DIFFUSERS_FILE}.index.json").write_text(json.dumps(index))
    with pytest.raises(BadInput, match="gone-1"):
        wan.load_video(model, tmp_path)


def fastwam_names(model: HostModel) -> dict[str, torch.Tensor]:
    """The same weights under FastWAM's names, taken from the released layout by hand, not from our table."""
    state, named = model.state_dict(), {}

    def linear(theirs, ours, part=0, parts=1):
        for kind in ("weight", "bias"):
            rows = (
                state[f"{ours}.{kind}"][: parts * VIDEO.inner_dim] if parts > 1 else state[f"{ours}.{kind}"]
            )
            named[f"mot.mixtures.{theirs}.{kind}"] = rows.chunk(parts)[part].clone()

    for expert in ("video", "action"):
        for index, name in ((0, "hidden"), (2, "out")):
            linear(f"{expert}.time_embedding.{index}", f"{expert}.time.{name}")
            linear(f"{expert}.text_embedding.{index}", f"{expert}.text.{name}")
        linear(f"{expert}.time_projection.1", f"{expert}.time.proj")
        for i in range(VIDEO.num_layers):
            theirs, ours = f"{expert}.blocks.{i}", f"{expert}.blocks.{i}"
            for part, letter in enumerate("qkv"):
                linear(f"{theirs}.self_attn.{letter}", f"{ours}.qkvg", part, 3)
            linear(f"{theirs}.cross_attn.q", f"{ours}.cross_q")
            for part, letter in enumerate("kv"):
                linear(f"{theirs}.cross_attn.{letter}", f"{ours}.cross_kv", part, 2)
            linear(f"{theirs}.self_attn.o", f"{ours}.out")
            linear(f"{theirs}.cross_attn.o", f"{ours}.cross_out")
            linear(f"{theirs}.norm3", f"{ours}.norm_cross")
            linear(f"{theirs}.ffn.0", f"{ours}.ffn_in")
            linear(f"{theirs}.ffn.2", f"{ours}.ffn_out")
            for norm in ("norm_q", "norm_k"):
                named[f"mot.mixtures.{theirs}.self_attn.{norm}.weight"] = state[f"{ours}.{norm}.weight"]
                named[f"mot.mixtures.{theirs}.cross_attn.{norm}.weight"] = state[
                    f"{ours}.cross_{norm}.weight"
                ]
            named[f"mot.mixtures.{theirs}.modulation"] = state[f"{ours}.table"]
    conv = state["video.patch_in.weight"].reshape(VIDEO.dim, GRID.latent_channels, 1, GRID.patch, GRID.patch)
    named["mot.mixtures.video.patch_embedding.weight"] = conv
    named["mot.mixtures.video.patch_embedding.bias"] = state["video.patch_in.bias"]
    for kind in ("weight", "bias"):
        rows = state[f"video.patch_out.{kind}"]  # ours (C, h, w), theirs (h, w, C)
        rows = rows.reshape(GRID.latent_channels, GRID.patch**2, -1).permute(1, 0, 2)
        named[f"mot.mixtures.video.head.head.{kind}"] = rows.reshape(
            state[f"video.patch_out.{kind}"].shape
        ).contiguous()
    named["mot.mixtures.video.head.modulation"] = state["video.table"]
    linear("action.action_encoder", "action.action_in")
    linear("action.head", "action.action_out")
    named |= {f"proprio_encoder.{kind}": state[f"proprio.{kind}"] for kind in ("weight", "bias")}
    return named


def test_fastwam_names_load_strictly(tmp_path):
    source, model = small_model(1), small_model(2)
    save_file(fastwam_names(source), tmp_path / "base.safetensors")
    left = wan.load_fastwam(model, tmp_path / "base.safetensors")
    assert left
    assert all(name.startswith("localisation.") for name in left)
    rows = 3 * VIDEO.inner_dim
    for name, parameter in model.named_parameters():
        theirs = source.state_dict()[name]
        if ".qkvg." in name:  # gates are ours
            assert not torch.equal(parameter[rows:], theirs[rows:]), name
            parameter, theirs = parameter[:rows], theirs[:rows]
        assert torch.equal(parameter, theirs) != (name in left), name


def test_resize_keeps_the_variance_of_activations():
    torch.manual_seed(0)
    source = torch.randn(96, 3072) / 3072**0.5
    for size in (1024, 1000, 3072, 4096):
        weight = wan.resize(source, torch.Size([32, size]), fan_in=True)
        y = torch.randn(2000, size) @ weight.T
        assert weight.shape == (32, size)
        assert y.std().item() == pytest.approx(1.0, abs=0.03), size
    vector = 1 + 0.1 * torch.randn(1, 3072)
    small = wan.resize(vector, torch.Size([1, 1024]), fan_in=False)
    assert small.square().mean().sqrt().item() == pytest.approx(
        vector.square().mean().sqrt().item(), rel=1e-5
    )
    assert torch.equal(wan.resize(vector, vector.shape, fan_in=False), vector)


def test_action_expert_grows_from_video():
    model = small_model()
    before = {name: p.clone() for name, p in model.action.named_parameters()}
    left = wan.grow_action_expert(model)
    assert {name.split(".")[1] for name in left} == {"action_in", "action_out"}
    rows = 3 * VIDEO.inner_dim
    for name, parameter in model.action.named_parameters():
        assert torch.equal(parameter, before[name]) == (f"action.{name}" in left), name
        if ".qkvg." in name:
            assert torch.equal(parameter[rows:], before[name][rows:])
    # The six components of the time projection stay apart: zeroing one in the video expert zeroes it alone.
    dim = CONFIG.video.dim
    with torch.no_grad():
        model.video.time.proj.weight[2 * dim : 3 * dim] = 0
    wan.grow_action_expert(model)
    parts = model.action.time.proj.weight.unflatten(0, (6, -1)).abs().sum((1, 2))
    assert (parts == 0).tolist() == [False, False, True, False, False, False]


def test_experts_must_agree():
    with pytest.raises(BadInput, match="share num_layers, got 2 and 3"):
        replace(CONFIG, action=replace(CONFIG.action, num_layers=3))


def test_a_model_from_wan_is_whole(saved):
    """Nothing is left unset: built twice on memory that holds junk, all but the drawn weights agree."""
    models = [wan.from_wan(CONFIG, saved, torch.float32) for _ in range(2)]
    for name, parameter in models[0].named_parameters():
        assert parameter.isfinite().all(), name
        drawn = name.startswith(("localisation", "proprio", "action.action_"))
        assert drawn or torch.equal(parameter, models[1].get_parameter(name)), name
    gates = models[0].video.layer(0).qkvg
    assert (gates.weight[3 * VIDEO.inner_dim :] == 0).all()
    assert (gates.bias[3 * VIDEO.inner_dim :] == 5).all()


@pytest.mark.slow
def test_loading_takes_no_second_copy(tmp_path, monkeypatch):
    """The files are mapped: while they are read, the process's own memory grows by one tensor at most."""
    video = replace(VIDEO, dim=768, ffn_dim=3072, num_layers=24, num_heads=12, head_dim=64)
    config = replace(CONFIG, video=video, action=replace(video, dim=128, ffn_dim=256))
    model = empty_model(config, torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)  # every page is there before
    save_file(wan.to_diffusers(model), tmp_path / wan.DIFFUSERS_FILE)
    size = sum(p.numel() * 4 for p in model.video.parameters())

    def own_bytes() -> int:
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024

    seen, ours = [], wan._ours
    monkeypatch.setattr(wan, "_ours", lambda *args: seen.append(own_bytes()) or ours(*args))
    before = own_bytes()
    wan.load_video(model, tmp_path)
    assert max(seen) - before < 0.1 * size

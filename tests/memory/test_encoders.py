"""The encoders that others wrote, as a memory uses them."""

import numpy as np
import pytest
import torch

from hostbot.align.aligner import Aligner, AlignerConfig, build_encoder
from hostbot.align.small import SmallConfig
from hostbot.memory import Pair, open_memory
from hostbot.memory.embed import unit_scene, unit_text
from hostbot.memory.qwen import QwenEmbedder
from hostbot.memory.scenes import AlignedScenes
from hostbot.video import fit_frames
from tests.align import tiny_qwen
from tests.memory.fakes import FakeEmbedder, clip

rng = np.random.default_rng(0)
PICTURES = [rng.integers(0, 255, shape, np.uint8) for shape in ((48, 64, 3), (64, 64, 3))]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen") / "tiny"
    folder.mkdir()
    return folder, *tiny_qwen.write(folder)


@pytest.fixture(scope="module")
def qwen(checkpoint):
    return QwenEmbedder(checkpoint[0], dtype=torch.float32, size=64)


def test_qwen_vectors_are_the_model_s_own_at_the_end_token(checkpoint, qwen):
    _, model, processor, tokenizer = checkpoint
    prompt = "<|im_start|>system\nRepresent the user's input.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n"
    prompt += "<|im_start|>assistant\n<|endoftext|>"
    ids = torch.tensor([tokenizer(prompt.format("stack the bowls"), add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        wanted = model(input_ids=ids).last_hidden_state[0, -1]
        np.testing.assert_allclose(qwen.embed_text(["stack  the bowls"])[0], wanted, atol=1e-5)
        images = processor([PICTURES[1]], return_tensors="pt", do_resize=False)
        view = "<|vision_start|>" + "<|image_pad|>" * 4 + "<|vision_end|>"
        ids = torch.tensor([tokenizer(prompt.format(view), add_special_tokens=False)["input_ids"]])
        kinds = (ids == model.config.image_token_id).int()
        wanted = model(input_ids=ids, mm_token_type_ids=kinds, **images).last_hidden_state[0, -1]
    np.testing.assert_allclose(qwen.embed_scene(PICTURES)[1], wanted, atol=1e-4)


def test_qwen_keeps_a_memory(qwen, tmp_path):
    assert qwen.identity == "qwen-tiny-2x32-64"
    with open_memory(tmp_path / "m", qwen) as memory:
        memory.add(clip(tmp_path / "v.mp4"), "stack the bowls", scene=PICTURES[0])
        found = memory.query("stack the bowls", PICTURES[0]).best
        assert (found.text, found.scene) == pytest.approx((1, 1), abs=1e-5)


def test_an_aligner_sees_scenes_for_a_pair():
    config = SmallConfig(size=32, width=4, offsets=(-1, 0, 1), embedding=16)
    torch.manual_seed(0)
    aligner = Aligner(build_encoder(config), AlignerConfig(encoder=config))
    scenes = AlignedScenes(aligner)
    made = scenes.embed_scene(PICTURES)
    assert made.shape == (2, 16)
    np.testing.assert_allclose(made[0], aligner.embed({"any": fit_frames(PICTURES[0][None], (32, 32))})[0])
    pair = Pair(FakeEmbedder(), scenes)
    assert pair.identity == f"fake-1+aligner-{aligner.identity}"
    assert unit_scene(pair, PICTURES[0]).shape == (16,)
    assert unit_text(pair, "x").shape == (8,)

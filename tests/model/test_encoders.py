"""VAE and text, offline: small configurations of the classes the paper's scale uses."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

from hostbot.model import text, vae
from hostbot.model.sizes import tiny_model
from hostbot.types import BadInput


@pytest.fixture(scope="module")
def codec():
    torch.manual_seed(0)
    return vae.LatentCodec(vae.tiny_vae())


@pytest.fixture(scope="module")
def clip():
    return np.random.default_rng(0).integers(0, 255, (3, 5, 64, 64, 3), dtype=np.uint8)


def test_latents_have_the_model_s_shape(codec, clip):
    grid = tiny_model().grid
    latents = codec.encode_views(torch.from_numpy(clip))
    assert tuple(latents.shape) == grid.latents(2)
    assert codec.decode_views(latents, 3).shape == clip.shape


def test_the_observation_alone_is_the_clip_s_first_latent(codec, clip):
    """What is encoded in use (one frame) is what was encoded in training (five), bit for bit."""
    whole = codec.encode_views(torch.from_numpy(clip))
    alone = codec.encode_views(torch.from_numpy(clip[:, :1]))
    assert torch.equal(whole[:, :1], alone)


def test_a_view_leaves_no_trace_in_another(codec, clip):
    other = clip.copy()
    other[0] = 0
    before, after = (codec.encode_views(torch.from_numpy(x)) for x in (clip, other))
    rows = before.shape[2] // 3
    assert torch.equal(before[:, :, rows:], after[:, :, rows:])
    assert not torch.equal(before[:, :, :rows], after[:, :, :rows])


def test_wrong_clips_are_refused(codec, clip):
    with pytest.raises(BadInput, match="1 \\+ 4 k frames, got 4"):
        codec.encode_views(torch.from_numpy(clip[:, :4]))
    with pytest.raises(BadInput, match="60x64"):
        codec.encode_views(torch.from_numpy(clip[:, :1, :60]))


def test_latents_are_normalised_and_the_vae_saves_and_loads(clip, tmp_path):
    torch.manual_seed(1)
    model = vae.tiny_vae()
    pixels = torch.from_numpy(clip).permute(0, 4, 1, 2, 3) / 127.5 - 1
    errors = list(vae.fit(model, [pixels[:1, :, :1, :32, :32]] * 12))
    assert errors[-1] < errors[0]
    vae.calibrate(model, pixels)
    model.save_pretrained(tmp_path / "vae")
    codec, back = vae.LatentCodec(model), vae.LatentCodec(vae.load_vae(tmp_path))
    latents = codec.encode_views(torch.from_numpy(clip))
    std, mean = torch.std_mean(latents, dim=(1, 2, 3))
    torch.testing.assert_close(mean, torch.zeros(16), atol=1e-3, rtol=0)
    torch.testing.assert_close(std, torch.ones(16), atol=0.02, rtol=0)
    assert torch.equal(back.encode_views(torch.from_numpy(clip)), latents)
    assert back.identity == codec.identity
    with pytest.raises(BadInput, match="holds no VAE"):
        vae.load_vae(tmp_path / "nothing")


def test_the_latent_cache_encodes_once(codec, clip, tmp_path, monkeypatch):
    cache = vae.LatentCache(codec, tmp_path)
    first = cache.encode_views(clip[:, :1])
    calls = []
    monkeypatch.setattr(codec, "encode_views", lambda views: calls.append(1) or torch.zeros(16, 1, 24, 8))
    assert torch.equal(cache.encode_views(clip[:, :1]), first)
    assert not calls
    cache.encode_views(clip[:, 1:2])
    assert len(calls) == 1
    damaged = next(tmp_path.rglob("*.safetensors"))
    damaged.write_bytes(b"short")
    cache.encode_views(clip[:, :1])
    cache.encode_views(clip[:, 1:2])
    assert len(calls) == 2
    assert not list(tmp_path.rglob(".*"))


def test_hashed_words_are_the_same_everywhere_and_alike_where_spelled_alike():
    encoder = text.HashedWords(256, 8)
    one, two, far = encoder.encode(["Put the cup", "put  the cups", "open a drawer"])
    assert encoder.encode(["Put the cup"]).shape == (1, 8, 256)
    assert torch.equal(one[:2], two[:2])
    assert (one[3:] == 0).all()
    alike, unlike = (torch.cosine_similarity(one[2], x[2], dim=0) for x in (two, far))
    assert alike > 0.5 > unlike
    # Pinned: a checkpoint trained with these vectors must find them again.
    assert one[0, :8].mul(1e3).round().tolist() == PINNED
    with pytest.raises(BadInput, match="at most 8 words, got 9"):
        encoder.encode(["a b c d e f g h i"])
    assert (encoder.encode([""]) == 0).all()


PINNED = [2528.0, -500.0, -500.0, -500.0, -1514.0, -1514.0, -500.0, 1514.0]


def test_hashed_words_need_no_diffusers():
    code = "import sys, hostbot.model.text, hostbot.policy.cascade; assert 'diffusers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def umt5_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wan")
    words = ["<pad>", "</s>", "<unk>", "put", "the", "cup", "down"]
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    fast.save_pretrained(folder / "tokenizer")
    torch.manual_seed(0)
    config = UMT5Config(vocab_size=16, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
    UMT5EncoderModel(config).save_pretrained(folder / "text_encoder")
    return folder


def test_umt5_zeroes_its_padding_and_reads_it_never(umt5_folder):
    encoder = text.load_umt5(umt5_folder, length=6, dtype=torch.float32)
    out = encoder.encode(["put the cup", "put the cup down"])
    assert out.shape == (2, 6, 32)
    assert (out[0, 3:] == 0).all()
    assert (out[1, :4] != 0).any(-1).all()
    short = text.load_umt5(umt5_folder, length=4, dtype=torch.float32).encode(["put the cup"])
    torch.testing.assert_close(short[0, :3], out[0, :3], atol=1e-5, rtol=0)
    with pytest.raises(BadInput, match="takes 4 tokens; the model reads 3"):
        text.load_umt5(umt5_folder, length=3, dtype=torch.float32).encode(["put the cup down"])
    with pytest.raises(BadInput, match="no text_encoder"):
        text.load_umt5(umt5_folder / "tokenizer")


def test_the_text_cache_works_without_the_encoder(tmp_path):
    encoder = text.HashedWords(16, 4)
    with_it = text.CachedText(tmp_path, encoder.identity, encoder)
    first = with_it.encode(["a b", "c"])
    without = text.CachedText(tmp_path, encoder.identity)
    assert torch.equal(without.encode(["c", "a b"]), first.flip(0))
    with pytest.raises(BadInput, match="has no embedding of 'd'"):
        without.encode(["d"])
    with pytest.raises(BadInput, match="the encoder is"):
        text.CachedText(tmp_path, "other", encoder)

import pytest
import torch

from hostbot.model.experts import Block
from hostbot.model.fp8 import LAYERS, Fp8Linear, quantise_, to_fp8
from tests.model.small import random_context, random_noised, small_model


def test_rows_come_back_within_fp8_rounding():
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 5)[:, None]
    rows, scale = to_fp8(x)
    back = rows.float() * scale
    assert ((back - x).abs() <= x.abs() / 16 + x.abs().amax(1, keepdim=True) * 2**-10).all()
    zero, scale = to_fp8(torch.zeros(1, 16))
    assert (zero.float() * scale == 0).all()


def test_a_layer_stays_close_and_takes_a_quarter_of_float32():
    torch.manual_seed(0)
    layer = torch.nn.Linear(256, 128)
    x = torch.randn(3, 7, 256)
    small = Fp8Linear(layer)
    assert small(x).shape == (3, 7, 128)
    assert torch.cosine_similarity(small(x).flatten(), layer(x).flatten(), dim=0) > 0.999
    assert small.weight.nbytes * 4 == layer.weight.nbytes


@torch.no_grad()
def test_a_quantised_model_predicts_nearly_the_same():
    model = small_model()
    context, noised = random_context(), random_noised(model)
    whole = model(context, noised)
    small = quantise_(model)(context, noised)
    blocks = [block for block in model.modules() if isinstance(block, Block)]
    assert all(isinstance(getattr(block, name), Fp8Linear) for block in blocks for name in LAYERS)
    for name in ("o", "a"):
        cosine = torch.cosine_similarity(
            getattr(whole, name).flatten(), getattr(small, name).flatten(), dim=0
        )
        assert 0.99 < cosine < 1, (name, cosine)


@pytest.mark.gpu
@torch.no_grad()
def test_the_card_s_own_product_equals_the_rounded_one():
    torch.manual_seed(0)
    layer = torch.nn.Linear(256, 160).to(torch.bfloat16)
    x = torch.randn(19, 256, dtype=torch.bfloat16)
    slow = Fp8Linear(layer)(x).float()
    fast = Fp8Linear(layer).cuda()(x.cuda()).cpu().float()
    torch.testing.assert_close(fast, slow, atol=2e-2, rtol=2e-2)

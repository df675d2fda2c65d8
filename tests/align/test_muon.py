"""Muon for a small network, beside torch's own optimisers."""

import pytest
import torch

from hostbot.align.muon import Muon
from hostbot.orthogonal import orthogonalised

OUTPUTS = ("told.",)


def parameters(**shapes):
    torch.manual_seed(0)
    return {name.replace("_", "."): torch.nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}


def stepped(ours, theirs, optimiser, oracle, steps=5):
    rng = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for name, parameter in ours.items():
            parameter.grad = torch.randn(parameter.shape, generator=rng)
            theirs[name].grad = parameter.grad.clone()
        optimiser.step()
        oracle.step()


@pytest.mark.parametrize("shape", [(12, 30), (30, 12), (16, 16)])
def test_matrices_step_as_torchs_muon_steps_them(shape):
    ours, theirs = parameters(close_weight=shape), parameters(close_weight=shape)
    optimiser = Muon(ours, 0.02, weight_decay=0.1, farther=1.0, outputs=OUTPUTS)
    oracle = torch.optim.Muon(
        theirs.values(), 0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    stepped(ours, theirs, optimiser, oracle)
    torch.testing.assert_close(ours["close.weight"], theirs["close.weight"], rtol=0, atol=1e-4)


def test_a_kernel_steps_as_the_matrix_of_its_output_channels_and_farther_is_farther():
    ours, theirs = parameters(close_weight=(8, 3, 3, 3)), parameters(close_weight=(8, 27))
    with torch.no_grad():
        theirs["close.weight"].copy_(ours["close.weight"].flatten(1))
    begun = theirs["close.weight"].detach().clone()
    optimiser = Muon(ours, 0.01, weight_decay=0.0, farther=3.0, outputs=OUTPUTS)
    oracle = torch.optim.Muon(theirs.values(), 0.03, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        gradient = torch.randn(8, 3, 3, 3)
        ours["close.weight"].grad, theirs["close.weight"].grad = gradient, gradient.flatten(1).clone()
        optimiser.step()
        oracle.step()
    moved = theirs["close.weight"] - begun
    torch.testing.assert_close(ours["close.weight"].flatten(1) - begun, moved, rtol=0, atol=2e-3)
    assert moved.abs().max() > 0.02


def test_all_else_and_outputs_step_as_adamw_steps_them():
    shapes = {"close_bias": (7,), "told_weight": (4, 6), "told_bias": (4,)}
    ours, theirs = parameters(**shapes), parameters(**shapes)
    optimiser = Muon(ours, 0.01, weight_decay=0.1, farther=5.0, outputs=OUTPUTS)
    oracle = torch.optim.AdamW(theirs.values(), 0.01, betas=(0.9, 0.98), weight_decay=0.1)
    stepped(ours, theirs, optimiser, oracle)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name])


def test_what_has_no_gradient_stays():
    ours = parameters(close_weight=(4, 4), close_bias=(4,))
    ours["close.bias"].grad = torch.ones(4)
    begun = ours["close.weight"].detach().clone()
    Muon(ours, 0.1, weight_decay=0.5, farther=5.0, outputs=OUTPUTS).step()
    assert torch.equal(ours["close.weight"], begun)


def test_orthogonalised_keeps_singular_vectors_and_makes_values_nearly_one():
    torch.manual_seed(2)
    matrices = torch.randn(3, 6, 20)
    turned = orthogonalised(matrices).float()
    values = torch.linalg.svdvals(turned)
    assert values.min() > 0.5
    assert values.max() < 1.3
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    inside = u.mT @ turned @ v.mT
    assert (inside - torch.diag_embed(inside.diagonal(dim1=1, dim2=2))).abs().max() < 0.05

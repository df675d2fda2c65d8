import math

import pytest
import torch

from hostbot.align.cost import MatchConfig
from hostbot.align.losses import LossConfig, alignment_loss, cycle_back, tcc_loss
from tests.align import oracle
from tests.align.test_dtw import unit


def one_way(d: torch.Tensor, r: torch.Tensor, config: LossConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """L_TCC and L_DTW of one pair in one direction, a frame at a time."""
    match = config.match
    T, N = len(d), len(r)
    S = torch.stack(
        [torch.stack([-(d[i] - r[j]).square().sum() / match.kappa for j in range(N)]) for i in range(T)]
    )
    c = -torch.log_softmax(S / match.gamma_f, 0)
    beta = oracle.beta(c, match.gamma)
    total = torch.zeros((), dtype=d.dtype)
    for i in range(T):
        neighbour = sum(beta[i, j] * r[j] for j in range(N))
        back = torch.softmax(torch.stack([neighbour @ d[k] for k in range(T)]) / match.kappa, 0)
        numbers = torch.arange(T, dtype=d.dtype) / (T if config.normalise_indices else 1)
        mu = (back * numbers).sum()
        nu2 = (back * (numbers - mu) ** 2).sum().clamp_min(config.variance_floor)
        total = total + (numbers[i] - mu) ** 2 / nu2 + config.variance_weight * torch.log(nu2.sqrt())
    return total / T, oracle.table(c, match.gamma)[-1, -1] / (T + N)


@pytest.mark.parametrize(
    "config", [LossConfig(), LossConfig(normalise_indices=True, match=MatchConfig(kappa=1.0))]
)
def test_losses_and_gradients_equal_the_equations(config):
    n, m = [9, 4, 1], [7, 11, 3]
    demo, robot = (unit(3, size, 6, seed=seed).double() for size, seed in ((9, 0), (11, 1)))
    demo, robot = (
        (0.8 * demo[:, :1] + 0.2 * demo).requires_grad_(),
        (0.8 * demo[:, :1] + 0.2 * robot).requires_grad_(),
    )
    tcc = dtw = torch.zeros((), dtype=torch.float64)
    for b in range(3):
        d, r = demo[b, : n[b]], robot[b, : m[b]]
        for there, back in (one_way(d, r, config), one_way(r, d, config)):
            tcc, dtw = tcc + there / 6, dtw + back / 6
    loss = alignment_loss(demo, robot, n, m, config)
    wanted = tcc + config.dtw_weight * dtw
    for found, value in ((loss.tcc, tcc), (loss.dtw, dtw), (loss.total, wanted)):
        torch.testing.assert_close(found, value, atol=1e-9, rtol=1e-7)
    grads = torch.autograd.grad(loss.total, (demo, robot))
    for found, value in zip(grads, torch.autograd.grad(wanted, (demo, robot)), strict=True):
        torch.testing.assert_close(found, value, atol=1e-8, rtol=1e-6)


def test_gradcheck():
    demo, robot = (unit(2, size, 5, seed=seed).double().requires_grad_() for size, seed in ((6, 0), (5, 1)))
    config = LossConfig(match=MatchConfig(kappa=1.0, gamma_f=1.0))
    assert torch.autograd.gradcheck(
        lambda d, r: alignment_loss(d, r, [6, 3], [2, 5], config).total, (demo, robot)
    )


def test_padding_is_never_read():
    demo, robot = unit(2, 12, 8, seed=0), unit(2, 10, 8, seed=1)
    n, m = [12, 5], [4, 10]
    clean = alignment_loss(demo, robot, n, m)
    for x, lengths in ((demo, n), (robot, m)):
        for b, length in enumerate(lengths):
            x[b, length:] = 1e3 * torch.rand(x[b, length:].shape, generator=torch.Generator().manual_seed(b))
    demo.requires_grad_(), robot.requires_grad_()
    filled = alignment_loss(demo, robot, n, m)
    filled.total.backward()
    torch.testing.assert_close(filled.total, clean.total)
    for x, lengths in ((demo, n), (robot, m)):
        assert x.grad is not None
        assert x.grad.isfinite().all()
        for b, length in enumerate(lengths):
            assert not x.grad[b, length:].any()


def test_both_losses_are_symmetric_in_the_two_sequences():
    a, b = unit(2, 9, 8, seed=2).double(), unit(2, 14, 8, seed=3).double()
    there, back = alignment_loss(a, b, [9, 4], [14, 6]), alignment_loss(b, a, [14, 6], [9, 4])
    torch.testing.assert_close(there.tcc, back.tcc)
    torch.testing.assert_close(there.dtw, back.dtw)


def test_the_variance_is_floored():
    certain = 1e4 * torch.eye(5)[None]
    each = tcc_loss(certain, None, LossConfig())
    assert each.item() == pytest.approx(0.001 * math.log(math.sqrt(1e-4)))
    wrong = tcc_loss(certain.flip(1), None, LossConfig())
    assert wrong.item() == pytest.approx((16 + 4 + 0 + 4 + 16) / 5 / 1e-4, rel=1e-4)


def test_a_perfect_match_cycles_back_to_itself():
    frames = torch.eye(6)[None]
    back = cycle_back(torch.eye(6)[None], frames, frames, None, 0.1)
    assert (torch.softmax(back, -1)[0].diagonal() > 0.999).all()


def test_bfloat16_embeddings_are_widened_before_they_are_compared():
    demo, robot = unit(2, 20, 16, seed=4).bfloat16(), unit(2, 18, 16, seed=5).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = alignment_loss(demo, robot)
    assert loss.total.dtype == torch.float32
    torch.testing.assert_close(loss.total, alignment_loss(demo.float(), robot.float()).total)

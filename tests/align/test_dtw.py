import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hostbot.align import dtw
from hostbot.align.cost import MatchConfig, cells, cost
from hostbot.types import BadInput
from tests.align import oracle

SMOOTHING = 0.46278  # W(2/e), the most a smooth minimum of three adds, in units of gamma


def batch(
    seed: int, size: int = 4, longest: int = 40, scale: float = 5.0
) -> tuple[torch.Tensor, list[int], list[int]]:
    """A padded batch of costs whose padding is NaN: nothing may read it."""
    g = torch.Generator().manual_seed(seed)
    n, m = (torch.randint(1, longest + 1, (size,), generator=g).tolist() for _ in range(2))
    c = torch.full((size, max(n), max(m)), torch.nan, dtype=torch.float64)
    for b in range(size):
        c[b, : n[b], : m[b]] = scale * torch.rand(n[b], m[b], generator=g, dtype=torch.float64)
    return c, n, m


def close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("seed", "gamma", "scale"), [(0, 1.0, 5.0), (1, 0.1, 5.0), (2, 3.0, 1.0), (3, 1.0, 60.0)]
)
def test_tables_beta_paths_and_gradients_equal_the_loop(seed, gamma, scale):
    c, n, m = batch(seed, scale=scale)
    c.requires_grad_()
    config = MatchConfig(gamma=gamma)
    tables, (z, last) = dtw.smooth_dtw(c, n, m, gamma), dtw.logits(c, n, m, config)
    beta = dtw.beta(z, cells(torch.tensor(n), torch.tensor(m), c.shape))
    alone = dtw.path_cost(c, n, m, gamma)
    g = torch.Generator().manual_seed(9)
    for b, (h, w) in enumerate(zip(n, m, strict=True)):
        part = c[b, :h, :w].detach().requires_grad_()
        R, E = oracle.table(part, gamma), oracle.table(part.flip(0, 1), gamma).flip(0, 1)
        wanted = {"R": R, "E": E, "beta": torch.softmax(-(R + E - part) / gamma, 1), "last": R[-1, -1]}
        found = {"R": tables.R[b, :h, :w], "E": tables.E[b, :h, :w], "beta": beta[b, :h, :w], "last": last[b]}
        for name, value in wanted.items():
            close(found[name], value)
            weights = torch.randn(value.shape, generator=g, dtype=torch.float64)
            (expected,) = torch.autograd.grad((value * weights).sum(), part, retain_graph=True)
            (got,) = torch.autograd.grad((found[name] * weights).sum(), c, retain_graph=True)
            close(got[b, :h, :w], expected)
            got[b, :h, :w] = 0
            assert not got.any(), f"{name} of pair {b} asks something of the padding or of another pair"
        close(alone[b], R[-1, -1])
        (expected,) = torch.autograd.grad(R[-1, -1], part)
        (got,) = torch.autograd.grad(alone[b], c, retain_graph=True)
        close(got[b, :h, :w], expected)
        assert not tables.R[b, h:].any()
        assert not beta[b, :, w:].any()


def test_counting_the_cost_twice_is_the_printed_formula():
    c, n, m = batch(5, size=2)
    z, _ = dtw.logits(c, n, m, MatchConfig(count_cost_twice=True))
    for b, (h, w) in enumerate(zip(n, m, strict=True)):
        close(torch.softmax(z[b, :h, :w], 1), oracle.beta(c[b, :h, :w], 1.0, own=0.0))


def test_gradcheck():
    c, n, m = batch(6, size=3, longest=7)
    c = c.nan_to_num().requires_grad_()
    keep = cells(torch.tensor(n), torch.tensor(m), c.shape)
    assert keep is not None
    assert torch.autograd.gradcheck(lambda x: dtw.path_cost(x, n, m, 0.5), c)
    assert torch.autograd.gradcheck(lambda x: (dtw.smooth_dtw(x, n, m).R, dtw.smooth_dtw(x, n, m).E), c)
    assert torch.autograd.gradcheck(
        lambda x: (dtw.beta(dtw.logits(x, n, m)[0], keep), dtw.logits(x, n, m)[1]), c
    )


def test_the_derivative_of_a_weighted_mean_may_be_negative():
    c = (60 * torch.rand(1, 30, 30, generator=torch.Generator().manual_seed(0))).double().requires_grad_()
    dtw.path_cost(c, gamma=5.0).sum().backward()
    assert c.grad is not None
    assert c.grad.min() < -0.01  # a soft-DTW backward pass has probabilities here


@pytest.mark.parametrize(("rows", "columns"), [(257, 5), (5, 600), (300, 40), (513, 33)])
def test_tall_tables_are_cut_into_strips_without_a_seam(rows, columns):
    c = 5 * torch.rand(1, rows, columns, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    tables = dtw.smooth_dtw(c)
    close(tables.R[0], torch.tensor(oracle.plain_table(c[0].tolist(), 1.0), dtype=torch.float64))
    close(tables.E[0], dtw.smooth_dtw(c.flip(1, 2)).R[0].flip(0, 1))
    weights = torch.randn(c.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    c.requires_grad_()
    loss = (dtw.smooth_dtw(c).R * weights).sum() + dtw.path_cost(c).sum()
    (grad,) = torch.autograd.grad(loss, c)
    step = 1e-6 * torch.randn(c.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    above, below = (
        (dtw.smooth_dtw(x).R * weights).sum() + dtw.path_cost(x).sum()
        for x in (c.detach() + step, c.detach() - step)
    )
    assert (grad * step).sum().item() == pytest.approx(((above - below) / 2).item(), rel=1e-5)


def test_a_vanishing_gamma_gives_hard_dtw():
    c, n, m = batch(8, size=6)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        found = dtw.path_cost(c.to(dtype), n, m, gamma=1e-6)
        for b, (h, w) in enumerate(zip(n, m, strict=True)):
            assert found[b].item() == pytest.approx(oracle.hard_path(c[b, :h, :w].tolist())[0], rel=tolerance)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 24),
    st.integers(1, 24),
    st.floats(0.01, 10),
    st.floats(0.01, 100),
    st.integers(0, 10**6),
)
def test_smooth_lies_between_hard_and_its_bound(n, m, gamma, scale, seed):
    c = scale * torch.rand(1, n, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    hard, length = oracle.hard_path(c[0].tolist())
    smooth = dtw.path_cost(c, gamma=gamma).item()
    assert hard - 1e-9 * hard <= smooth <= hard + SMOOTHING * gamma * length + 1e-9


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.sampled_from([0.1, 1.0, 100.0]), st.integers(0, 10**6))
def test_rows_of_beta_sum_to_one(n, m, scale, seed):
    g = torch.Generator().manual_seed(seed)
    lengths = (
        [n, int(torch.randint(1, n + 1, (1,), generator=g))],
        [m, int(torch.randint(1, m + 1, (1,), generator=g))],
    )
    c = scale * torch.rand(2, n, m, generator=g)
    keep = cells(*(torch.tensor(x) for x in lengths), c.shape)
    beta = dtw.beta(dtw.logits(c, *lengths)[0], keep)
    for b in range(2):
        h, w = lengths[0][b], lengths[1][b]
        torch.testing.assert_close(beta[b, :h, :w].sum(1), torch.ones(h))
        assert (beta[b] >= 0).all()
        assert beta[b, h:].sum() + beta[b, :, w:].sum() == 0


def unit(*shape: int, seed: int) -> torch.Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(x, dim=-1)


def test_float32_keeps_to_float64_at_the_papers_temperatures():
    demo, robot = unit(4, 96, 128, seed=0), unit(4, 80, 128, seed=1)
    c = cost(demo.double(), robot.double())
    wide, narrow = dtw.smooth_dtw(c), dtw.smooth_dtw(c.float())
    for a, b in ((wide.R, narrow.R), (wide.E, narrow.E)):
        assert ((a - b).abs() / a.abs().clamp_min(1.0)).max() < 2e-6
    grads = []
    for x in (c.clone(), c.float()):
        x.requires_grad_()
        dtw.path_cost(x).sum().backward()
        assert x.grad is not None
        grads.append(x.grad.double())
    assert (grads[0] - grads[1]).abs().max() < 1e-3


def test_autocast_changes_nothing():
    demo, robot = unit(2, 20, 16, seed=2), unit(2, 17, 16, seed=3)
    plain = dtw.alignment(demo, robot)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = dtw.alignment(demo, robot)
    assert torch.equal(plain.demo_to_robot, cast.demo_to_robot)
    assert torch.equal(plain.robot_path, cast.robot_path)


def test_both_directions_are_computed_as_if_alone():
    demo, robot = unit(3, 20, 16, seed=4).double(), unit(3, 31, 16, seed=5).double()
    n, m = [20, 7, 1], [31, 12, 5]
    both = dtw.alignment(demo, robot, n, m)
    for b in range(3):
        d, r = demo[b, : n[b]], robot[b, : m[b]]
        S = -torch.cdist(d, r).square() / 0.1 / 0.1
        for beta, path, c in (
            (both.demo_to_robot, both.demo_path, -torch.log_softmax(S, 0)),
            (both.robot_to_demo, both.robot_path, -torch.log_softmax(S.T, 0)),
        ):
            close(beta[b, : c.shape[0], : c.shape[1]], oracle.beta(c, 1.0), 1e-7)
            close(path[b], oracle.table(c, 1.0)[-1, -1], 1e-7)


def test_a_nan_reaches_the_end():
    c = torch.rand(2, 9, 9, generator=torch.Generator().manual_seed(0))
    c[1, :, 4] = torch.nan
    assert dtw.path_cost(c).isnan().tolist() == [False, True]


def test_threads_do_not_change_the_result():
    c = 5 * torch.rand(5, 200, 180, generator=torch.Generator().manual_seed(0))
    threads, found = torch.get_num_threads(), []
    try:
        for num in (1, 3):
            torch.set_num_threads(num)
            found.append(torch.cat([dtw.path_cost(c)[:, None, None].expand(5, 200, 1), dtw.logits(c)[0]], 2))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_a_forked_process_makes_its_own_threads():
    c = torch.rand(8, 128, 128)
    wanted = dtw.path_cost(c)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(dtw.path_cost(c), wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_nothing_is_compiled_on_import():
    code = "import sys, hostbot.align.losses, hostbot.align.maps; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda c: dtw.path_cost(c[0]), r"\[B, T, N\]"),
        (lambda c: dtw.path_cost(c[:, :0]), r"no side 0"),
        (lambda c: dtw.path_cost(c, [3, 5], None), r"1\.\.4.*\[3, 5\]"),
        (lambda c: dtw.path_cost(c, [0, 4], None), r"1\.\.4"),
        (lambda c: dtw.path_cost(c, [4], None), r"2 whole numbers"),
        (lambda c: dtw.path_cost(c, torch.ones(2), None), r"whole numbers"),
        (lambda c: dtw.path_cost(c, gamma=0.0), r"above 0"),
        (lambda c: dtw.path_cost(c.to("meta")), r"cpu and cuda"),
        (lambda c: MatchConfig(kappa=-1.0), r"kappa"),
        (lambda c: cost(c, c[:, :, :3]), r"\[B, T, d\]"),
    ],
)
def test_mistakes_are_named(call, sentence):
    with pytest.raises(BadInput, match=sentence):
        call(torch.rand(2, 4, 6))


def test_the_compiled_exponential_is_exact_to_a_unit_in_the_last_place():
    from hostbot.align._compile import compiled, exp

    @compiled
    def all_of(x, out):
        for k in range(len(x)):
            out[k] = exp(x[k])

    x = -np.abs(np.random.default_rng(0).normal(0, 20, 200_000)).astype(np.float32)
    x = np.concatenate([x[x > -36], np.zeros(1, np.float32)])
    out, exact = np.empty_like(x), np.exp(x.astype(np.float64))
    all_of(x, out)
    assert (np.abs(out - exact) / np.spacing(exact.astype(np.float32))).max() <= 1
    assert out[-1] == 1
    far = np.array([-1e9, -math.inf], np.float32)
    all_of(far, far)
    assert not far.any()

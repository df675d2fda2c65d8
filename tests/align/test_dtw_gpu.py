"""What only a CUDA device can show: the Triton kernels equal the CPU's float64 tables and gradients."""

import pytest
import torch

from hostbot.align import dtw
from hostbot.align.cost import MatchConfig
from hostbot.align.losses import alignment_loss
from tests.align.test_dtw import batch, unit

pytestmark = pytest.mark.gpu
SHAPES = [
    (3, 5, 7),
    (4, 40, 33),
    (2, 33, 130),
    (2, 300, 64),
    (2, 512, 512),
    (1, 1024, 1024),
    (2, 1, 9),
    (2, 9, 1),
]


def everything(
    c: torch.Tensor, n: torch.Tensor, m: torch.Tensor, weights: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Tables, logits and path cost with a gradient of each."""
    c = c.clone().requires_grad_()
    tables, (z, last), path = (
        dtw.smooth_dtw(c, n, m),
        dtw.logits(c, n, m, MatchConfig()),
        dtw.path_cost(c, n, m),
    )
    found = {"R": tables.R, "E": tables.E, "z": z * (weights != 0), "last": last, "path": path}
    for name, value in list(found.items()):
        w = weights if value.ndim == 3 else weights[:, 0, 0]
        (found[f"gradient of {name}"],) = torch.autograd.grad((value * w).sum(), c, retain_graph=True)
    return {name: value.detach().double().cpu() for name, value in found.items()}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("dtype", "values", "gradients"),
    [(torch.float64, 1e-9, 1e-9), (torch.float32, 2e-5, 5e-3)],  # on a CPU float32 is off by 7e-6 and 2e-3
)
def test_cuda_equals_the_cpu(shape, dtype, values, gradients):
    g = torch.Generator().manual_seed(sum(shape))
    c = 5 * torch.rand(shape, generator=g, dtype=torch.float64)
    n, m = (torch.randint(1, size + 1, shape[:1], generator=g) for size in shape[1:])
    n[0], m[0] = shape[1:]
    inside = (torch.arange(shape[1]) < n[:, None])[:, :, None] & (torch.arange(shape[2]) < m[:, None])[
        :, None, :
    ]
    weights = torch.randn(shape, generator=g, dtype=torch.float64) * inside
    wanted = everything(c, n, m, weights)
    found = everything(c.to("cuda", dtype), n.cuda(), m.cuda(), weights.to("cuda", dtype))
    for name, value in wanted.items():
        tolerance = gradients if "gradient" in name else values
        assert (found[name] - value).abs().max() <= tolerance * value.abs().max().clamp_min(1.0), name


def test_padding_is_never_read():
    c, n, m = batch(0)
    filled = dtw.path_cost(c.cuda(), n, m)
    torch.testing.assert_close(filled.cpu(), dtw.path_cost(c, n, m), atol=1e-9, rtol=1e-9)


def test_the_loss_and_its_gradient_equal_the_cpus():
    demo, robot, lengths = (
        unit(3, 60, 32, seed=0).double(),
        unit(3, 71, 32, seed=1).double(),
        ([60, 12, 3], [71, 9, 30]),
    )
    results = []
    for device in ("cpu", "cuda"):
        d, r = (x.to(device).requires_grad_() for x in (demo, robot))
        loss = alignment_loss(d, r, *lengths)
        results.append([loss.total, *torch.autograd.grad(loss.total, (d, r))])
    for cpu, cuda in zip(*results, strict=True):
        torch.testing.assert_close(cuda.cpu(), cpu, atol=1e-8, rtol=1e-6)


def test_a_step_waits_for_no_host():
    d, r = unit(4, 64, 32, seed=0).cuda().requires_grad_(), unit(4, 64, 32, seed=1).cuda()
    n, m = (torch.tensor([64, 20, 3, 50], device="cuda") for _ in range(2))
    alignment_loss(d, r, n, m).total.backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        alignment_loss(d, r, n, m).total.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_same_call_gives_the_same_bits():
    c = 5 * torch.rand(64, 200, 170, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    first = dtw.logits(c)[0]
    for _ in range(5):
        assert torch.equal(dtw.logits(c)[0], first)


def test_a_nan_reaches_the_end():
    c = torch.rand(2, 40, 40, device="cuda")
    c[1, :, 4] = torch.nan
    assert dtw.path_cost(c).isnan().tolist() == [False, True]

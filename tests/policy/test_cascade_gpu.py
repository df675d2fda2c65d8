"""What only a CUDA device can show: graphs replay what eager code computes, with no sync."""

from dataclasses import replace

import pytest
import torch

from hostbot.model.host import Context, HostConfig, HostModel
from hostbot.model.sizes import tiny_model
from hostbot.policy.cascade import Cascade
from hostbot.policy.contract import CascadeConfig
from tests.model.small import random_context

pytestmark = pytest.mark.gpu
CONFIG = tiny_model()


def on_gpu(seed: int = 1, config: HostConfig = CONFIG) -> Context:
    context = random_context(batch=1, seed=seed, config=config)
    moved = {k: v.cuda() for k, v in vars(context).items() if isinstance(v, torch.Tensor)}
    return replace(context, **moved)


def model(dtype: torch.dtype = torch.float32) -> HostModel:
    torch.manual_seed(0)
    return HostModel(CONFIG).cuda().to(dtype)


def run(
    config: CascadeConfig, cycles: int = 3, views=None, dtype: torch.dtype = torch.float32
) -> list[tuple[torch.Tensor, ...]]:
    cascade, outs = Cascade(model(dtype), config), []
    assert cascade.fused == (config.kernels and dtype == torch.bfloat16)
    cascade.instruct(on_gpu().text)
    for cycle in range(cycles):
        context = on_gpu(cycle)
        cascade.watch(context.demo, views, now=cycle % 2 == 0)
        noise = cascade.draw(torch.Generator("cuda").manual_seed(cycle))
        out = cascade.act(context.observation, context.proprio, noise)
        assert out.o is not None
        outs.append((out.p_samples, out.o, out.a))
    return outs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("views", [None, (2,), (0, 2)])
def test_graph_replay_equals_eager_to_the_bit(views, dtype):
    """First capture, then replays on new inputs; float32 through plain torch, bfloat16 through our kernels."""
    runs = (run(CascadeConfig(graphs=graphs), 4, views, dtype) for graphs in (False, True))
    for eager, graph in zip(*runs, strict=True):
        for x, y in zip(eager, graph, strict=True):
            assert torch.equal(x, y)


@pytest.mark.parametrize("views", [None, (1,)])
def test_kernels_are_no_farther_from_float32_than_plain_torch_in_bfloat16(views):
    exact = run(CascadeConfig(graphs=False), views=views)
    errors = []
    for kernels in (True, False):
        config = CascadeConfig(graphs=False, kernels=kernels)
        got = run(config, views=views, dtype=torch.bfloat16)
        pairs = [
            (x, y) for one, other in zip(exact, got, strict=True) for x, y in zip(one, other, strict=True)
        ]
        errors.append([((x - y).norm() / x.norm()).item() for x, y in pairs])
    ours, torchs = errors
    assert max(ours) < 0.05
    assert sum(ours) < 1.5 * sum(torchs)


@pytest.mark.parametrize("graphs", [False, True])
def test_padding_has_one_key_and_lengths_may_change(graphs):
    """A padded instruction beside plain torch, which keeps every key; then a longer one, then the first again."""
    config = replace(CONFIG, text_length=96)
    torch.manual_seed(0)
    weights = HostModel(config).cuda().to(torch.bfloat16)
    ours, plain = (
        Cascade(weights, CascadeConfig(graphs=graphs, kernels=kernels)) for kernels in (True, False)
    )
    context, told = on_gpu(config=config), []
    noise = ours.draw(torch.Generator("cuda").manual_seed(0))
    for length, words in ((20, context.text), (90, context.text), (20, on_gpu(5, config).text)):
        text, outs = words.clone(), []
        text[:, length:] = 0
        for cascade in (ours, plain):
            cascade.instruct(text)
            cascade.watch(context.demo, now=False)
            outs.append(cascade.act(context.observation, context.proprio, noise))
        told.append((ours.buffers.num_told, plain.buffers.num_told))
        for x, y in zip(*((out.p_samples, out.o, out.a) for out in outs), strict=True):
            assert (x - y).norm() < 0.05 * y.norm()
    assert told == [(62, 96), (96, 96), (62, 96)]


def test_compiled_equals_eager_and_compiles_no_more_after_the_first_cycles():
    """Two of them: a window that was watched ahead, and one that rides with the observation."""
    from torch._dynamo.utils import counters

    eager, compiled = run(CascadeConfig(graphs=False)), run(CascadeConfig(compile="default"), cycles=2)
    graphs = counters["stats"]["unique_graphs"]
    compiled = run(CascadeConfig(compile="default"))
    assert counters["stats"]["unique_graphs"] == graphs
    for one, other in zip(eager, compiled, strict=True):
        for x, y in zip(one, other, strict=True):
            torch.testing.assert_close(x, y, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_stage_waits_for_the_device(dtype):
    cascade, context = Cascade(model(dtype), CascadeConfig()), on_gpu()
    cascade.instruct(context.text)
    noise = cascade.draw(torch.Generator("cuda").manual_seed(0))
    for _ in range(2):
        cascade.watch(context.demo)
        cascade.act(context.observation, context.proprio, noise)
    torch.cuda.set_sync_debug_mode("error")
    try:
        cascade.watch(context.demo)
        cascade.act(context.observation, context.proprio, noise)
    finally:
        torch.cuda.set_sync_debug_mode("default")

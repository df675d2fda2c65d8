"""What only a CUDA device can show: graphs replay what eager code computes, with no sync."""

from dataclasses import replace

import pytest
import torch

from hostbot.model.host import Context, HostModel
from hostbot.model.sizes import tiny_model
from hostbot.policy.cascade import Cascade, CascadeConfig
from tests.model.small import random_context

pytestmark = pytest.mark.gpu
CONFIG = tiny_model()


def on_gpu(seed: int = 1) -> Context:
    context = random_context(batch=1, seed=seed, config=CONFIG)
    moved = {k: v.cuda() for k, v in vars(context).items() if isinstance(v, torch.Tensor)}
    return replace(context, **moved)


def model() -> HostModel:
    torch.manual_seed(0)
    return HostModel(CONFIG).cuda()


def run(config: CascadeConfig, cycles: int = 3, views=None) -> list[tuple[torch.Tensor, ...]]:
    cascade, outs = Cascade(model(), config), []
    cascade.instruct(on_gpu().text)
    for cycle in range(cycles):
        context = on_gpu(cycle)
        cascade.watch(context.demo, views)
        noise = cascade.draw(torch.Generator("cuda").manual_seed(cycle))
        out = cascade.act(context.observation, context.proprio, noise)
        assert out.o is not None
        outs.append((out.p_samples, out.o, out.a))
    return outs


@pytest.mark.parametrize("views", [None, (2,), (0, 2)])
def test_graph_replay_equals_eager_to_the_bit(views):
    """First capture, then replays on new inputs."""
    for eager, graph in zip(
        run(CascadeConfig(graphs=False), views=views), run(CascadeConfig(), views=views), strict=True
    ):
        for x, y in zip(eager, graph, strict=True):
            assert torch.equal(x, y)


def test_compiled_equals_eager_and_compiles_no_more_after_the_first_cycle():
    from torch._dynamo.utils import counters

    eager, compiled = run(CascadeConfig(graphs=False)), run(CascadeConfig(compile="default"), cycles=1)
    graphs = counters["stats"]["unique_graphs"]
    compiled = run(CascadeConfig(compile="default"))
    assert counters["stats"]["unique_graphs"] == graphs
    for one, other in zip(eager, compiled, strict=True):
        for x, y in zip(one, other, strict=True):
            torch.testing.assert_close(x, y, atol=1e-3, rtol=1e-3)


def test_no_stage_waits_for_the_device():
    cascade, context = Cascade(model(), CascadeConfig()), on_gpu()
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

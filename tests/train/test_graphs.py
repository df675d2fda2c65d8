"""Steps as CUDA graphs: what can be seen without a card, and what only a card shows."""

from dataclasses import replace

import pytest
import torch

from hostbot.model.host import HostModel
from hostbot.model.sizes import tiny_model
from hostbot.presets import training
from hostbot.train.distributed import World
from hostbot.train.graphs import graphs_checked, layout_of, tensors_of, with_tensors
from hostbot.train.stages import LossWeights, Policy, PolicyStage
from tests.data.toy import ABOVE, make_store, small
from tests.train import toy
from tests.train.random_samples import RandomSamples


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("samples") / "store", cameras=(ABOVE,), encode=small).folder


def test_a_pass_depends_on_what_is_copied_into_it_alone(store):
    """Another batch's tensors put into this one's places give the other's figures, to the bit."""
    stage = toy.make_stage(store)
    policy = stage.module
    drawn = [stage.batch(step, 0) for step in range(20)]
    one, other = [batch for batch in drawn if batch.demo is not None][:2]
    given = [policy.prepare(b, torch.Generator().manual_seed(k)) for k, b in enumerate((one, other))]
    assert layout_of(given[0]) == layout_of(given[1])
    static = with_tensors(given[0], (t.clone() for t in tensors_of(given[0])))
    torch._foreach_copy_(list(tensors_of(static)), list(tensors_of(given[1])))
    wanted = policy(other, torch.Generator().manual_seed(1))
    found = policy.figures(static)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_layouts_differ_where_a_graph_could_not_be_shared(store):
    stage = toy.make_stage(store)
    batches = [stage.batch(step, 0) for step in range(40)]
    layouts = {
        (b.demo is None, b.views): layout_of(stage.module.prepare(b, torch.Generator())) for b in batches
    }
    assert len(layouts) > 1
    assert len(set(layouts.values())) == len(layouts)


def test_without_a_card_training_goes_on_without_graphs(store):
    stage, said = toy.make_stage(store), []
    world = World(mode="single", rank=0, size=1, device=torch.device("cpu"))
    assert graphs_checked(stage, toy.CONFIG, world, said.append) is None
    assert "goes on without" in said[0]


@pytest.mark.gpu
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("weights", [LossWeights(flow=1.0, point=0.3), LossWeights(flow=0.0, point=1.0)])
def test_graphs_give_the_gradients_of_plain_passes(weights, fused):
    device = torch.device("cuda")
    torch.manual_seed(0)
    config = replace(tiny_model(), flow=replace(tiny_model().flow, unseen_future=0.5))
    policy = Policy(HostModel(config).to(device), weights, 4).to(device)
    if fused:
        policy.model.compile_layers()
    samples = RandomSamples(config=config, shared=4, demo=True, device=device)
    stage = PolicyStage(module=policy, samples=samples, draw=samples.draw_config(64), seed=0)
    world = World(mode="single", rank=0, size=1, device=device)
    said = []
    settings = replace(training("tiny", "1"), batch=64, micro=64)
    assert graphs_checked(stage, settings, world, said.append) is not None, said
    assert said[0].startswith("steps are graphs")

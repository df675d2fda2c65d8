"""What only a CUDA device can show: fused training layers learn what the plain ones learn."""

from dataclasses import replace

import pytest
import torch

from hostbot.model.host import HostModel
from hostbot.model.sizes import tiny_model
from hostbot.presets import training
from hostbot.train.compiled import TOLERANCE, compile_checked
from hostbot.train.distributed import World
from hostbot.train.stages import LossWeights, Policy, PolicyStage
from tests.train.random_samples import RandomSamples

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("shared", [1, 4])
@pytest.mark.parametrize("demo", [True, False])
def test_fused_layers_give_the_gradients_of_plain_ones(shared, demo):
    device = torch.device("cuda")
    torch.manual_seed(0)
    config = tiny_model()
    config = replace(config, flow=replace(config.flow, unseen_future=0.5))
    policy = Policy(HostModel(config).to(device), LossWeights(flow=1.0, point=0.3), shared).to(device)
    samples = RandomSamples(config=config, shared=shared, demo=demo, device=device)
    stage = PolicyStage(module=policy, samples=samples, draw=samples.draw_config(64), seed=0)
    world = World(mode="single", rank=0, size=1, device=device)
    said = []
    off = compile_checked(stage, training("tiny", "1"), world, said.append)
    assert off is not None
    assert off < TOLERANCE / 2
    assert [sentence.startswith("layers are fused") for sentence in said] == [True]

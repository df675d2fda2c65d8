"""An aligner with random weights: enough to hold every path that does not depend on what was learned."""

import pytest
import torch

from hostbot.align.aligner import Aligner, AlignerConfig, save_aligner
from hostbot.align.small import SmallConfig, SmallFrameEncoder

ENCODER = SmallConfig(size=32, width=4, offsets=(-1, 0, 1), embedding=16)


@pytest.fixture(scope="session")
def aligner():
    torch.manual_seed(3)
    return Aligner(SmallFrameEncoder(ENCODER), AlignerConfig(encoder=ENCODER, max_steps=64, confident=0.0))


@pytest.fixture(scope="session")
def weights(aligner, tmp_path_factory):
    """The same, as files."""
    path = tmp_path_factory.mktemp("weights") / "align.json"
    save_aligner(aligner.encoder, aligner.config, path, {"steps": 0})
    return path

"""Two CPU ranks under torchrun against one process: the same losses, and checkpoints that either can go on from."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hostbot.train import checkpoint
from hostbot.train.log import read_log
from tests.data.toy import ABOVE, make_store, small
from tests.train import toy

ROOT = Path(__file__).parents[2]
LOSSES = ("total", "loc", "obs", "act", "point", "grad_norm")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("samples") / "store", cameras=(ABOVE,), encode=small).folder


def torchrun(store, out, mode, ranks=2, **config):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += ["-m", "tests.train.toy", str(store), str(out), "--mode", mode, "--config", json.dumps(config)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def losses(run):
    return torch.tensor([[line[name] for name in LOSSES] for line in read_log(run / "log.jsonl")])


def weights(run):
    """Whole tensors of the last checkpoint, whichever ranks wrote their rows."""
    reader = checkpoint.Reader(checkpoint.folder_of(run, checkpoint.steps_of(run)[-1]))
    policy = toy.make_stage(run / "store").module
    found = {}
    for name, parameter in policy.named_parameters():
        found[name] = torch.empty_like(parameter)
        reader.read(f"model/{name}", found[name])
    return found


@pytest.fixture(scope="module")
def alone(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone")
    (out / "store").symlink_to(store)
    toy.run(store, out)
    return out


@pytest.mark.parametrize(
    "mode", ["fsdp", *(pytest.param(m, marks=pytest.mark.slow) for m in ("ddp", "hsdp"))]
)
def test_two_ranks_give_the_single_process_losses_and_one_goes_on_from_their_checkpoint(
    store, tmp_path, mode, alone
):
    (tmp_path / "store").symlink_to(store)
    torchrun(store, tmp_path, mode)
    assert torch.allclose(losses(tmp_path), losses(alone), rtol=2e-4, atol=1e-5)
    shutil.rmtree(checkpoint.folder_of(tmp_path, 12))
    assert checkpoint.steps_of(tmp_path) == [9]
    assert toy.run(store, tmp_path).outcome.finished
    assert torch.allclose(losses(tmp_path), losses(alone), rtol=2e-4, atol=1e-5)
    ours, theirs = weights(tmp_path), weights(alone)
    assert all(torch.allclose(ours[n], theirs[n], rtol=1e-3, atol=2e-5) for n in theirs)


@pytest.mark.slow
def test_two_ranks_go_on_from_a_single_process_in_bfloat16_recomputing_blocks(store, tmp_path):
    """The other way round, with what a large run uses: bfloat16 gathers and activation checkpointing."""
    (tmp_path / "store").symlink_to(store)
    shutil.copytree(_half(store, tmp_path / "half"), tmp_path / "on")
    torchrun(store, tmp_path / "on", "fsdp", precision="bfloat16", checkpointing=True)
    toy.run(store, tmp_path / "half", replace(toy.CONFIG, precision="bfloat16"))
    assert torch.allclose(losses(tmp_path / "on"), losses(tmp_path / "half"), rtol=0.05, atol=0.02)


def _half(store, out):
    toy.run(store, out, replace(toy.CONFIG, precision="bfloat16"))
    shutil.rmtree(checkpoint.folder_of(out, 12))
    return out

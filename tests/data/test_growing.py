"""Samples that join while a run learns: when they do is noted, and nothing else decides what is drawn."""

import json
import shutil
import time
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from hostbot.data.batches import DrawConfig, Mixture, Pool
from hostbot.data.growing import Growing, whole_stores
from hostbot.data.samples import Store
from hostbot.train.contract import Hooks
from hostbot.train.distributed import World
from hostbot.train.loop import Trainer
from hostbot.types import DataError
from tests.data.toy import ABOVE, make_store, small, sources
from tests.train import toy

DRAW = DrawConfig(micro=4, shared=2)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """One to begin with, and a larger one that comes later, on other machines' time."""
    folder = tmp_path_factory.mktemp("stores")
    begun = make_store(folder / "begun", cameras=(ABOVE,), encode=small)
    robots, people = (20, 26, 31, 17, 25, 22), (40, 28, 33)
    later = make_store(folder / "later", bodies=sources(robots, people), cameras=(ABOVE,), encode=small)
    return begun.folder, later.folder


def pool(folder):
    store = Store(folder).whole()
    g = torch.Generator().manual_seed(5)
    texts = torch.randn(len(store.info.texts), 3, 4, generator=g)
    return Pool(store, texts, torch.device("cpu"), True)


def alike(one, other):
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in fields(one)]
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def looked(growing, step):
    """Look until somebody answers."""
    until = time.monotonic() + 20
    while (said := growing.look(step)) is None and time.monotonic() < until:
        growing._looked = -1e9
        time.sleep(0.01)
    return said


def test_a_store_that_comes_is_drawn_from_the_noted_step_on_and_again_by_who_goes_on(stores, tmp_path):
    begun, later = stores
    growing = Growing([pool(begun)], tmp_path / "more", tmp_path / "joined.jsonl", pool)
    (tmp_path / "more").mkdir()
    assert growing.look(0) is None
    shutil.copytree(later, tmp_path / "aside/later")
    (tmp_path / "aside").rename(tmp_path / "more/deep")
    said = looked(growing, 10)
    assert "deep/later" in said
    assert f"{len(pool(later)):,} of {len(pool(begun)) + len(pool(later)):,}" in said
    (line,) = (tmp_path / "joined.jsonl").read_text().splitlines()
    since = json.loads(line)["step"]
    assert since > 11, "the batch after the step is being drawn already"

    alone = Mixture(pools=[pool(begun)], weights=[1.0])
    both = [pool(begun), pool(later)]
    mixed = Mixture(pools=both, weights=[float(len(one)) for one in both])
    again = Growing([pool(begun)], tmp_path / "nothing", tmp_path / "joined.jsonl", pool)
    for step in range(since + 20):
        wanted = (alone if step < since else mixed).draw(DRAW, 3, step, 0)
        assert alike(growing.draw(DRAW, 3, step, 0), wanted)
        assert alike(again.draw(DRAW, 3, step, 0), wanted)
    assert any(
        not alike(alone.draw(DRAW, 3, step, 0), mixed.draw(DRAW, 3, step, 0))
        for step in range(since, since + 20)
    )
    growing._looked = -1e9
    assert looked_once(growing) is None, "it does not join twice"


def looked_once(growing):
    growing.look(50)
    assert growing._coming is not None
    growing._coming.result(timeout=20)
    return growing.look(51)


def test_what_is_not_whole_waits_and_what_does_not_belong_is_left_out(stores, tmp_path):
    begun, later = stores
    shutil.copytree(later, tmp_path / "more/later")
    done = np.load(tmp_path / "more/later/done.npy")
    np.save(tmp_path / "more/later/done.npy", np.zeros_like(done))
    assert list(whole_stores(tmp_path / "more")) == []
    np.save(tmp_path / "more/later/done.npy", done)
    assert list(whole_stores(tmp_path / "more")) == [tmp_path / "more/later"]

    def refused(folder):
        raise DataError(f"{folder} is of another robot")

    growing = Growing([pool(begun)], tmp_path / "more", tmp_path / "joined.jsonl", refused)
    assert "left out" in looked(growing, 0)
    assert len(growing.pools) == 1
    assert not (tmp_path / "joined.jsonl").exists()


def test_a_run_that_goes_on_with_what_joined_is_the_uninterrupted_one(stores, tmp_path):
    begun, later = stores

    def run(out, more, on_step=lambda growing, step: None, steps=12):
        out.mkdir(exist_ok=True)
        stage = toy.make_stage(begun)
        growing = Growing([pool(begun)], more, out / "joined.jsonl", pool)
        stage = replace(stage, samples=growing)
        world = World(mode="single", rank=0, size=1, device=torch.device("cpu"))
        hooks = Hooks(on_step=lambda step: on_step(growing, step))
        config = replace(toy.CONFIG, steps=steps)
        trainer = Trainer(stage=stage, config=config, run=out, world=world, call=stage.module, hooks=hooks)
        trainer.resume()
        trainer.train()
        return {name: p.detach().clone() for name, p in stage.module.named_parameters()}

    shutil.copytree(later, tmp_path / "more/later")
    joined = []

    def wait(growing, step):
        if step == 3:
            joined.append(looked(growing, step))

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        whole = run(tmp_path / "whole", tmp_path / "more", wait)
        plain = run(tmp_path / "plain", tmp_path / "nothing")
        (tmp_path / "cut").mkdir()
        shutil.copy(
            tmp_path / "whole/joined.jsonl", tmp_path / "cut"
        )  # killed after the note, before a checkpoint
        run(tmp_path / "cut", tmp_path / "nothing", steps=12)
        shutil.rmtree(tmp_path / "cut/checkpoints/step-00000012")
        resumed = run(tmp_path / "cut", tmp_path / "nothing")
    finally:
        torch.set_num_threads(threads)
    assert joined
    assert joined[0]
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())
    assert any(not torch.equal(plain[name], value) for name, value in whole.items())


def test_the_first_step_may_wait_for_samples_but_not_for_ever(stores, tmp_path):
    begun, later = stores
    (tmp_path / "more").mkdir()
    growing = Growing([pool(begun)], tmp_path / "more", tmp_path / "joined.jsonl", pool)
    told = []
    growing.wait_for(10**9, 0, time.monotonic() + 0.2, told.append)
    assert len(told) == 1
    assert "1,000,000,000 are waited for" in told.pop()
    shutil.copytree(later, tmp_path / "aside/later")
    (tmp_path / "aside").rename(tmp_path / "more/deep")
    growing._looked = -1e9
    growing.wait_for(len(pool(begun)) + 1, 0, time.monotonic() + 20, told.append)
    assert len(told) == 2
    assert len(growing.pools) == 2

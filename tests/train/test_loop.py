"""The loop: it learns, it resumes to the same bits, it survives kills, full disks and numbers that are not finite."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hostbot.data.batches import DrawConfig
from hostbot.model.shared import any_layer
from hostbot.train import checkpoint, compiled
from hostbot.train.compiled import TOLERANCE, checked_difference, compile_checked, difference, gradients
from hostbot.train.config import OptimConfig, TrainConfig
from hostbot.train.contract import Hooks
from hostbot.train.distributed import World
from hostbot.train.log import read_log
from hostbot.train.loop import Trainer
from hostbot.train.muon import StackedMuon
from hostbot.train.optim import make_optimisers
from hostbot.train.runs import RunConfig, claim
from hostbot.train.stages import LossWeights
from hostbot.types import BadInput
from tests.data.toy import ABOVE, make_store, small
from tests.train import toy

TIMES = {"samples_per_s", "data_wait"}
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("samples") / "store", cameras=(ABOVE,), encode=small).folder


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    toy.run(store, out)
    return out


def state_of(run: Path) -> dict[str, torch.Tensor]:
    """Everything in the last checkpoint, read with the library alone."""
    from safetensors.torch import load_file

    step = checkpoint.steps_of(run)[-1]
    files = sorted(checkpoint.folder_of(run, step).glob("*.safetensors"))
    assert len(files) == 1
    return load_file(files[0]) | {"step": torch.tensor(step)}


def log_of(run: Path):
    return [{k: v for k, v in line.items() if k not in TIMES} for line in read_log(run / "log.jsonl")]


def same(a: Path, b: Path) -> bool:
    one, other = state_of(a), state_of(b)
    return (
        one.keys() == other.keys()
        and all(torch.equal(one[k], other[k]) for k in one)
        and log_of(a) == log_of(b)
    )


def program(store: Path, out: Path, **config: object) -> list[str]:
    return [sys.executable, "-m", "tests.train.toy", str(store), str(out), "--config", json.dumps(config)]


def test_losses_fall_and_are_logged_each_by_name(store, tmp_path):
    config = replace(toy.CONFIG, steps=60, log_every=10, optim=OptimConfig(lr=3e-3), save_every=100)
    toy.run(store, tmp_path, config)
    lines = read_log(tmp_path / "log.jsonl")
    assert [line["step"] for line in lines] == [10, 20, 30, 40, 50, 60]
    assert {"total", "loc", "obs", "act", "point", "p_error", "a_error", "point_hit", "grad_norm"} <= lines[
        0
    ].keys()
    assert lines[-1]["total"] < 0.7 * lines[0]["total"]


def test_a_resumed_run_is_the_uninterrupted_one_to_the_last_bit(store, tmp_path, whole):
    """Stopped between log lines and between checkpoints, twice."""
    for stop_at in (4, 7):

        def stop(step, at=stop_at):
            if step == at:
                os.kill(os.getpid(), signal.SIGTERM)

        trainer = toy.run(store, tmp_path, hooks=Hooks(on_step=stop))
        assert trainer.outcome.signal == signal.SIGTERM
        assert not trainer.outcome.finished
        assert stop_at <= trainer.step <= stop_at + 1
    assert toy.run(store, tmp_path).outcome.finished
    assert same(tmp_path, whole)


def test_a_time_limit_leaves_a_checkpoint_to_go_on_from(store, tmp_path, whole):
    outcome = toy.run(store, tmp_path, minutes=0.0).outcome
    assert outcome.step == 1
    assert not outcome.finished
    toy.run(store, tmp_path)
    assert same(tmp_path, whole)


def killed_run(store: Path, out: Path, rng: random.Random, longest: float) -> bool:
    """Start the program and kill it at a random moment; whether it was still running."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(program(store, out, save_every=1, steps=30), cwd=ROOT, env=environment)
    seen, begin = len(checkpoint.steps_of(out)), time.monotonic()
    while process.poll() is None and len(checkpoint.steps_of(out)) == seen and time.monotonic() - begin < 120:
        if (out / "log.jsonl").exists() and list((out / "checkpoints").glob(".step-*")):
            break
        time.sleep(0.005)
    time.sleep(rng.uniform(0, longest))
    running = process.poll() is None
    process.kill()
    process.wait()
    return running


def kill_and_compare(store, tmp_path, kills):
    rng = random.Random(0)
    config = replace(toy.CONFIG, save_every=1, steps=30)
    toy.run(store, tmp_path / "whole", config)
    out, struck = tmp_path / "killed", 0
    for _ in range(kills):
        struck += killed_run(store, out, rng, 0.3)
        if checkpoint.steps_of(out)[-1:] == [30]:
            break
    assert struck >= 1, "no kill fell into a run"
    toy.run(store, out, config)
    assert same(out, tmp_path / "whole")
    assert not list((out / "checkpoints").glob(".*")), "what a kill left behind is cleared away"


def test_killed_at_random_moments_it_goes_on_to_the_same_bits(store, tmp_path):
    kill_and_compare(store, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_twenty_random_moments_it_goes_on_to_the_same_bits(store, tmp_path):
    for round_ in range(7):
        kill_and_compare(store, tmp_path / str(round_), 3)


def test_a_full_disk_is_told_and_loses_nothing(store, tmp_path, whole):
    """The last checkpoint's file may not grow past 100 kB: a sentence, and the one before is whole."""
    toy.run(store, tmp_path, replace(toy.CONFIG, steps=12), hooks=Hooks(on_step=_stop_at(6)))
    limit = (
        "import signal, resource, runpy, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "
        f"sys.argv = ['toy', {str(store)!r}, {str(tmp_path)!r}]; "
        "runpy.run_module('tests.train.toy', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", limit], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "could not be written" in done.stderr
    assert "the last whole one is of step 6" in done.stderr or "of step 7" in done.stderr, done.stderr
    toy.run(store, tmp_path)
    assert same(tmp_path, whole)


def _stop_at(at):
    def stop(step):
        if step == at:
            os.kill(os.getpid(), signal.SIGTERM)

    return stop


def test_a_failed_checkpoint_in_between_does_not_stop_the_run(store, tmp_path, whole, monkeypatch):
    real, said, calls = checkpoint.save_file, [], []

    def sometimes(*args, **kwargs):
        calls.append(1)
        if len(calls) in (2, 3):
            raise OSError(28, "No space left on device")
        return real(*args, **kwargs)

    monkeypatch.setattr(checkpoint, "save_file", sometimes)
    toy.run(store, tmp_path, hooks=Hooks(on_warning=said.append))
    assert len(said) == 2
    assert "No space left" in said[0]
    assert "step 0" in said[0]
    assert same(tmp_path, whole)


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_done(store, tmp_path, monkeypatch):
    monkeypatch.setattr(
        checkpoint, "_prepare", lambda aside: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    with pytest.raises(BadInput, match=r"Permission denied.*nothing was begun"):
        toy.run(store, tmp_path)


def test_a_step_that_is_not_finite_changes_nothing_and_many_stop_the_run(store, tmp_path):
    stage = toy.make_stage(store)
    real = type(stage.module).forward
    before = {}

    def poisoned(self, batch, generator):
        figures = real(self, batch, generator)
        return figures | {"total": figures["total"] * math.nan}

    stage.module.__class__ = type("Poisoned", (type(stage.module),), {"forward": poisoned})
    from hostbot.train.distributed import joined
    from hostbot.train.loop import Trainer

    with joined("single", "cpu") as world:
        trainer = Trainer(
            stage=stage, config=replace(toy.CONFIG, max_bad=3), run=tmp_path, world=world, call=stage.module
        )
        before = {n: p.detach().clone() for n, p in stage.module.named_parameters()}
        with pytest.raises(BadInput, match="not finite for 3 steps"):
            trainer.train()
    assert all(torch.equal(before[n], p) for n, p in stage.module.named_parameters())
    assert checkpoint.steps_of(tmp_path) == [0]


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("broken", [(), (0,), (4, 5)])
def test_a_run_that_is_ahead_of_its_figures_learns_the_same(store, tmp_path, broken):
    """The same weights, the same log, nothing changed by a step that is not finite; noticed a step later at most."""
    config = replace(
        toy.CONFIG,
        steps=9,
        batch=4,
        micro=4,
        log_every=3,
        save_every=4,
        optim=OptimConfig(kind="muon", lr=1e-3, muon_lr=0.01, weight_decay=0.1),
    )
    found = []
    for run_ahead in (False, True):
        stage = toy.make_stage(store)
        world, run = (
            World(mode="single", rank=0, size=1, device=torch.device("cpu")),
            tmp_path / str(run_ahead),
        )
        plain = stage.module.forward

        def forward(batch, generator, plain=plain):
            figures = plain(batch, generator)
            worth = math.nan if trainer.step in broken else 1.0  # noqa: B023
            return figures | {"total": figures["total"] * worth}

        stage.module.forward = forward
        trainer = Trainer(stage=stage, config=config, run=run, world=world, call=stage.module)
        trainer.optimisers = make_optimisers(stage.module, config.optim, fused=True)
        trainer.run_ahead = run_ahead
        trainer.train()
        lines = [
            {k: v for k, v in line.items() if k not in ("samples_per_s", "data_wait")}
            for line in read_log(run / "log.jsonl")
        ]
        found.append((stage.module.state_dict(), lines, checkpoint.steps_of(run)))
    for name, value in found[0][0].items():
        assert torch.allclose(value, found[1][0][name], rtol=1e-5, atol=1e-7), name
        assert torch.isfinite(value).all()
    assert [line["step"] for line in found[1][1]] == [3, 6, 9]
    assert found[0][2] == found[1][2]
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert one.keys() == other.keys()
        assert all(one[k] == pytest.approx(other[k], rel=1e-4) for k in one), (one, other)
    assert sum(3 * line["skipped"] for line in found[1][1]) == pytest.approx(len(broken))


@pytest.mark.usefixtures("one_thread")
def test_a_run_that_is_ahead_gives_up_where_nothing_is_learned(store, tmp_path):
    stage = toy.make_stage(store)
    config = replace(toy.CONFIG, steps=30, batch=4, micro=4, max_bad=3, log_every=100, save_every=100)
    plain = stage.module.forward
    stage.module.forward = lambda b, g: plain(b, g) | {"total": plain(b, g)["total"] * math.nan}
    world = World(mode="single", rank=0, size=1, device=torch.device("cpu"))
    trainer = Trainer(stage=stage, config=config, run=tmp_path, world=world, call=stage.module)
    trainer.optimisers = make_optimisers(stage.module, config.optim, fused=True)
    trainer.run_ahead = True
    with pytest.raises(BadInput, match="not finite for 3 steps"):
        trainer.train()
    assert trainer.step <= 4


def test_a_damaged_or_foreign_checkpoint_is_refused(store, tmp_path):
    toy.run(store, tmp_path, replace(toy.CONFIG, steps=3))
    with pytest.raises(BadInput, match="seed 0, not 1"):
        toy.run(store, tmp_path, replace(toy.CONFIG, seed=1))
    file = checkpoint.folder_of(tmp_path, 3) / "rank-00000.safetensors"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(BadInput, match="bytes"):
        toy.run(store, tmp_path)


def test_a_run_begun_before_a_setting_was_there_goes_on(tmp_path):
    """It was made with the default; another value is another run."""
    config = toy_run()
    checkpoints = tmp_path / "checkpoints" / "step-00000000"
    claim(tmp_path, config, resume=False)
    checkpoints.mkdir(parents=True)
    (checkpoints / "state.json").write_text("{}")
    assert checkpoint.steps_of(tmp_path) == [0]
    path = tmp_path / "config.json"
    old = json.loads(path.read_text())
    del old["drills"], old["draw"]["shift"], old["weights"]["pair"]
    path.write_text(json.dumps(old))
    claim(tmp_path, config, resume=True)
    path.write_text(json.dumps(old))
    with pytest.raises(BadInput, match=r"other settings \(draw\)"):
        claim(tmp_path, replace(config, draw=replace(config.draw, shift=1)), resume=True)


def toy_run():
    return RunConfig(
        name="toy",
        model=toy.MODEL,
        train=toy.CONFIG,
        draw=DrawConfig(micro=4),
        weights=LossWeights(),
        samples=("somewhere",),
        shares=(),
    )


def test_only_the_last_checkpoints_are_kept(whole):
    assert checkpoint.steps_of(whole) == [9, 12]


def test_schedules_warm_up_and_decay():
    config = OptimConfig(warmup=10, decay="cosine", floor=0.1)
    assert config.scale(0, 100) == pytest.approx(0.1)
    assert config.scale(9, 100) == 1.0
    assert config.scale(55, 100) == pytest.approx(0.55)
    assert config.scale(100, 100) == pytest.approx(0.1)
    assert OptimConfig().scale(10_000, 100) == 1.0, "the paper's rate is constant"
    late = OptimConfig(decay="linear", decay_from=0.8)
    assert [late.scale(s, 100) for s in (0, 80, 90, 100)] == pytest.approx([1, 1, 0.5, 0])


def test_steps_are_fitted_to_the_clock(store, tmp_path, monkeypatch):
    """A clock on which every step takes two seconds, but for the slow first ones."""
    stage, world = toy.make_stage(store), World(mode="single", rank=0, size=1, device=torch.device("cpu"))
    given = {"stage": stage, "world": world, "call": stage.module, "fit": True}
    config = replace(toy.CONFIG, steps=10**6, save_every=10**6)
    trainer = Trainer(config=config, run=tmp_path, minutes=5.0, **given)
    monkeypatch.setattr("hostbot.train.loop.time", Clock(trainer))
    trainer.begun = 0.0
    outcome = trainer.train()
    # 10 steps of 5 s, 30 of 2 s: 190 s are left, of which 95 % may be used.
    assert outcome.step == 40 + int(0.95 * (300 - 110) / 2)
    assert outcome.finished
    assert read_log(tmp_path / "log.jsonl")[-1]["lr"] < 1e-5, "the decay has ended"
    with pytest.raises(BadInput, match="how many --minutes"):
        Trainer(config=config, run=tmp_path, **given)


class Clock:
    def __init__(self, trainer):
        self.trainer = trainer

    def monotonic(self):
        return 5.0 * min(self.trainer.step, 10) + 2.0 * max(0, self.trainer.step - 10)

    perf_counter = monotonic


def test_muon_takes_the_blocks_matrices_and_resumes(store, tmp_path):
    config = replace(toy.CONFIG, optim=OptimConfig(kind="muon", lr=1e-3, muon_lr=0.01))
    toy.run(store, tmp_path / "whole", config)
    toy.run(store, tmp_path / "parts", config, hooks=Hooks(on_step=_stop_at(5)))
    toy.run(store, tmp_path / "parts", config)
    assert same(tmp_path / "parts", tmp_path / "whole")
    names = state_of(tmp_path / "whole")
    assert "optim/momentum_buffer/model.video.blocks.0.qkvg.weight" in names
    assert "optim/exp_avg/model.video.patch_in.weight" in names


def test_matrices_orthogonalised_together_step_as_one_by_one():
    g = torch.Generator().manual_seed(0)
    shapes = [(24, 8), (8, 24), (24, 8), (16, 16), (8, 24)]
    start = [torch.randn(shape, generator=g) for shape in shapes]
    ends = []
    for kind in (torch.optim.Muon, StackedMuon):
        g.manual_seed(1)
        parameters = [torch.nn.Parameter(matrix.clone()) for matrix in start]
        optimiser = kind(parameters, lr=0.02, weight_decay=0.01, momentum=0.95)
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = torch.randn(parameter.shape, generator=g)
            optimiser.step()
        ends.append(([p.detach() for p in parameters], optimiser.state_dict()["state"]))
    for one, other, begun in zip(ends[0][0], ends[1][0], start, strict=True):
        assert (other - one).norm() < 0.02 * (one - begun).norm()  # bfloat16, in another order
    for key, state in ends[0][1].items():
        torch.testing.assert_close(ends[1][1][key]["momentum_buffer"], state["momentum_buffer"])


def test_fused_layers_are_used_only_if_their_gradients_agree(store, monkeypatch):
    stage, world = toy.make_stage(store), World(mode="single", rank=0, size=1, device=torch.device("cpu"))
    model, said = stage.module.model, []
    plain = model.joint_layer
    monkeypatch.setattr(model, "compile_layers", lambda: setattr(model, "joint_layer", _halved(plain)))
    assert compile_checked(stage, toy.CONFIG, world, said.append) > 0.05
    assert model.joint_layer is plain
    assert "training goes on without them" in said[0]
    fused = lambda *args: plain(*args)  # noqa: E731
    monkeypatch.setattr(model, "compile_layers", lambda: setattr(model, "joint_layer", fused))
    assert compile_checked(stage, toy.CONFIG, world, said.append) < 1e-5
    assert model.joint_layer is fused
    assert said[1].startswith("layers are fused")
    assert all(parameter.grad is None for parameter in stage.module.parameters())


def test_what_rounding_explains_is_excused_and_nothing_else(store, monkeypatch):
    """Where gradients of a batch nearly cancel, two orders of adding in bfloat16 differ by much of the rest."""
    stage, world = toy.make_stage(store), World(mode="single", rank=0, size=1, device=torch.device("cpu"))
    half = replace(toy.CONFIG, precision="bfloat16")
    exact = gradients(stage, replace(half, precision="float32"), world)
    generator = torch.Generator().manual_seed(0)

    def rounded(share):
        noise = {n: torch.randn(g.shape, generator=generator) for n, g in exact.items()}
        return {n: g + share * g.norm() * noise[n] / noise[n].norm() for n, g in exact.items()}

    plain, fused = rounded(0.15), rounded(0.15)
    assert difference(fused, plain) > 2 * TOLERANCE
    assert checked_difference(stage, half, world, 0, fused, plain) == 0.0
    name = max(fused, key=lambda n: float(fused[n].norm()))
    wrong = fused | {name: 2 * fused[name]}
    assert checked_difference(stage, half, world, 0, wrong, plain) > TOLERANCE
    half_off = {n: g / 1.5 for n, g in exact.items()}
    none = {n: torch.zeros_like(g) for n, g in exact.items()}
    assert difference(none, half_off, exact) > TOLERANCE


def test_a_second_look_that_finds_no_memory_excuses_nothing_and_leaves_nothing(store, monkeypatch):
    stage, world = toy.make_stage(store), World(mode="single", rank=0, size=1, device=torch.device("cpu"))
    half, policy = replace(toy.CONFIG, precision="bfloat16"), stage.module
    plain, fused = gradients(stage, half, world), lambda *args: any_layer(*args)
    wrong = {n: 2 * g for n, g in plain.items()}
    policy.model.joint_layer = fused

    def no_room(*given):
        assert policy.model.joint_layer is any_layer
        next(policy.parameters()).grad = torch.ones_like(next(policy.parameters()))
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(compiled, "gradients", no_room)
    assert checked_difference(stage, half, world, 0, wrong, plain) == pytest.approx(1.0)
    assert policy.model.joint_layer is fused
    assert all(parameter.grad is None for parameter in policy.parameters())


def _halved(layer):
    """A layer with the right values and half of one gradient."""

    def call(*args):
        demo, *rest = layer(*args)
        return (0.5 * demo + 0.5 * demo.detach(), *rest)

    return call


def test_wrong_sizes_are_refused():
    with pytest.raises(BadInput, match="micro-batches of 3"):
        TrainConfig(steps=1, batch=8, micro=3)
    with pytest.raises(BadInput, match="evenly by 3 ranks"):
        toy.CONFIG.micros(0, 3)

"""Training: schedule, guard, collapse, two processes, killed and resumed."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hostbot.align.aligner import Aligner, AlignerConfig
from hostbot.align.calibrate import calibrate
from hostbot.align.checkpoint import Saved, save, step_folders
from hostbot.align.collapse import CollapseConfig, clock_share, look_for_collapse
from hostbot.align.distributed import World
from hostbot.align.evaluate import Truth
from hostbot.align.look import LookConfig
from hostbot.align.negatives import negatives_loss
from hostbot.align.recipe import TrainConfig, learning_rate, paper_recipe, small_draw, small_recipe
from hostbot.align.report import EvalPair, evaluate
from hostbot.align.small import SmallFrameEncoder
from hostbot.align.twice import TwiceConfig, two_looks_loss
from hostbot.types import BadInput
from tests.align import tiny_qwen
from tests.align.fakes import FilmSource
from tests.align.training import CONFIG, ENCODER, make_trainer

ROOT = Path(__file__).parents[2]
ALONE = [sys.executable, "-m", "tests.align.training"]
TWO = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", ALONE[2]]


def run_training(out, *flags, command=ALONE):
    done = subprocess.run(
        [*command, str(out), *map(str, flags)], capture_output=True, text=True, timeout=200, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((out / "losses.json").read_text())


def last_tensors(out):
    saved = Saved(step_folders(out / "run")[-1][1])
    return {name: saved.tensor(name) for name in sorted(saved.names())}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of one process, and its folder."""
    out = tmp_path_factory.mktemp("whole")
    return out, run_training(out)


def test_training_learns(whole):
    """Frames find their way back better than at first; were all frames alike, this loss would be 1."""
    log = [json.loads(line) for line in (whole[0] / "run" / "log.jsonl").read_text().splitlines()]
    assert np.mean([entry["tcc"] for entry in log[-3:]]) < 0.9 * log[0]["tcc"]


def test_two_processes_give_the_losses_of_one(whole, tmp_path):
    losses = run_training(tmp_path, command=TWO)
    np.testing.assert_allclose(losses, whole[1], rtol=2e-3)
    one, two = last_tensors(whole[0]), last_tensors(tmp_path)
    assert one.keys() == two.keys()
    for name in (n for n in one if n.startswith("model/")):
        torch.testing.assert_close(two[name], one[name], atol=2e-3, rtol=0)


def test_two_processes_fine_tune_qwen_as_one_does(tmp_path):
    """Processes hold clips of different numbers of views, and still run the sharded model equally often."""
    (tmp_path / "qwen").mkdir()
    tiny_qwen.write(tmp_path / "qwen")
    one = [report.total for report in make_trainer(tmp_path / "one", qwen=tmp_path / "qwen").run()]
    two = run_training(tmp_path / "two", "--qwen", tmp_path / "qwen", command=TWO)
    np.testing.assert_allclose(two, one, rtol=2e-3)
    assert one[0] != one[-1]


def test_killed_training_goes_on_bit_equal(whole, tmp_path):
    process = subprocess.Popen(
        [*ALONE, str(tmp_path), "--slow"], stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    )
    for line in process.stdout:
        if int(line) >= 6:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert 4 <= step_folders(tmp_path / "run")[-1][0] < 12
    run_training(tmp_path, "--resume")
    one, two = last_tensors(whole[0]), last_tensors(tmp_path)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    logs = [(out / "run" / "log.jsonl").read_text().splitlines() for out in (whole[0], tmp_path)]
    steps = [[{**json.loads(line), "time": 0} for line in log] for log in logs]
    assert steps[0] == steps[1]


def test_the_number_of_processes_may_change_on_the_way(whole, tmp_path):
    """A checkpoint of one process, gone on with by two, ends where one would have."""
    trainer = make_trainer(tmp_path)
    for report in trainer.run():
        if report.step == 8:
            trainer.stop()
    run_training(tmp_path, "--resume", command=TWO)
    one, two = last_tensors(whole[0]), last_tensors(tmp_path)
    for name in (n for n in one if n.startswith("model/")):
        torch.testing.assert_close(two[name], one[name], atol=2e-3, rtol=0)


def sphere_of(*shape, seed=0):
    return torch.nn.functional.normalize(
        torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1
    )


def test_negatives_are_the_frames_of_other_tasks_only():
    demo, robot = sphere_of(4, 3, 6), sphere_of(4, 5, 6, seed=1)
    n, m, tasks = [3, 2, 3, 1], [5, 4, 1, 5], [0, 1, 0, 2]
    sides = []
    for a, b, la, lb in ((demo, robot, n, m), (robot, demo, m, n)):
        found = []
        for k in range(4):
            foes = [j for j in range(4) if tasks[j] != tasks[k]]
            for t in range(la[k]):
                near = [
                    sum(math.exp((2 * float(a[k, t] @ b[j, s]) - 2) / 0.2) for s in range(lb[j]))
                    for j in range(4)
                ]
                found.append(math.log(1 + sum(near[j] for j in foes) / len(foes) / near[k]))
        sides.append(np.mean(found))
    lengths = torch.tensor(n), torch.tensor(m)
    loss = negatives_loss(demo, robot, *lengths, torch.tensor(tasks), 0.2)
    assert float(loss) == pytest.approx(np.mean(sides), rel=1e-5)
    assert float(negatives_loss(demo, robot, *lengths, torch.zeros(4).long(), 0.2)) == 0


def test_two_looks_are_asked_for_the_same_moment():
    first, second = sphere_of(2, 4, 6), sphere_of(2, 4, 6, seed=1)
    times, lengths = torch.tensor([[0, 2, 3, 9], [1, 2, 0, 0]]), [4, 2]
    videos = []
    for k, num in enumerate(lengths):
        when = times[k, :num].tolist()
        scores = [[(2 * float(first[k, t] @ second[k, s]) - 2) / 0.1 for s in range(num)] for t in range(num)]
        sides = []
        for table in (np.array(scores), np.array(scores).T):
            found = np.exp(table) / np.exp(table).sum(1, keepdims=True)
            near = np.array([[math.exp(-((a - b) ** 2) / (2 * 2.0**2)) for b in when] for a in when])
            sides.append(-(near / near.sum(1, keepdims=True) * np.log(found)).sum(1).mean())
        videos.append(np.mean(sides))
    config = TwiceConfig(temperature=0.1, frames=2.0)
    loss = two_looks_loss(first, second, times, torch.tensor(lengths), config)
    assert float(loss) == pytest.approx(np.mean(videos), rel=1e-5)


def test_the_recipes_say_what_they_are():
    paper, small = paper_recipe(), small_recipe()
    assert (paper.two_looks, paper.negatives, paper.draw.two_looks) == (0, 0, False)
    assert paper.loss.match.kappa * paper.loss.match.gamma_f == pytest.approx(0.01)
    assert small.loss.match.kappa * small.loss.match.gamma_f == pytest.approx(0.05)
    with pytest.raises(BadInput, match="draw.two_looks is off"):
        TrainConfig(two_looks=0.5)


def test_weights_decay_and_biases_do_not(tmp_path):
    matrices, others = make_trainer(
        tmp_path, dataclasses.replace(CONFIG, weight_decay=0.3)
    ).optimiser.param_groups
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert {p.ndim for p in others["params"]} == {1}
    assert len(matrices["params"]) + len(others["params"]) == len(
        list(SmallFrameEncoder(ENCODER).parameters())
    )


def test_training_aligns_new_videos_far_better_than_the_clock(tmp_path):
    """From pixels to figures: videos never seen, of other backgrounds and paces, as one view and as three."""
    config = dataclasses.replace(
        CONFIG, steps=160, batch_size=6, learning_rate=2e-3, warmup=20, min_ratio=0.05, save_every=1000,
        negatives=0.3, draw=small_draw(max_steps=24, look=LookConfig(flip=0.0)),
    )  # fmt: skip
    trainer = make_trainer(tmp_path, config, per_task=6, lengths=(12, 24))
    reports = list(trainer.run())
    assert reports[-1].collapse.sentence == ""
    encoder = AlignerConfig(encoder=ENCODER, max_steps=64)
    aligner = Aligner(trainer.encoder, encoder)
    aligner = calibrate(aligner, trainer.pairs, 40).of(aligner)
    robot = FilmSource(
        "robot", views=("left_wrist", "right_wrist", "third_person"), seed=100, lengths=(20, 30)
    )
    demo = FilmSource("human", seed=300, lengths=(20, 40))
    pairs = [
        EvalPair(task=str(t), group="", robot=4 * t + k, demo=4 * t + k, wrong_demo=(4 * t + 4) % 12)
        for t in range(3)
        for k in range(4)
    ]

    def truth_of(pair):
        events = np.array([e.frame for e in robot.events(pair.robot)])
        paths = robot.data[pair.robot][1], demo.data[pair.demo][1]
        return Truth(robot_progress=paths[0], demo_progress=paths[1], robot_events=events)

    figures = evaluate(aligner, robot, demo, pairs, truth_of).figures()
    assert figures["event_error"]["mean"] < 0.4 * figures["event_error_clock"]["mean"]
    assert figures["auroc_wrong_task"] > 0.95
    assert figures["auroc_backwards"] > 0.95


def test_the_learning_rate_warms_up_and_falls_to_its_share():
    config = TrainConfig(steps=1000, warmup=100, learning_rate=2.0, min_ratio=0.3)
    assert learning_rate(config, 0) == pytest.approx(0.02)
    assert learning_rate(config, 99) == pytest.approx(2.0)
    assert learning_rate(config, 550) == pytest.approx(2.0 * (0.3 + 0.7 * 0.5))
    assert learning_rate(config, 1000) == pytest.approx(0.6)


def test_a_loss_that_is_not_finite_leaves_the_weights_alone_and_stops_in_the_end(tmp_path, monkeypatch):
    config = dataclasses.replace(CONFIG, patience=3)
    trainer = make_trainer(tmp_path, config)
    before = {name: p.detach().clone() for name, p in trainer.named.items()}
    sound = trainer.loss

    def broken(batch):
        found = sound(batch)
        return dataclasses.replace(found, total=found.total * math.nan)

    monkeypatch.setattr(trainer, "loss", broken)
    reports = []
    with pytest.raises(BadInput, match="not finite 3 steps in a row"):
        reports.extend(trainer.run())
    assert [r.skipped for r in reports] == [True, True]
    assert all(torch.equal(p, before[name]) for name, p in trainer.named.items())


def test_asked_to_stop_it_saves_and_ends(tmp_path):
    trainer = make_trainer(tmp_path)
    for report in trainer.run():
        if report.step == 2:
            trainer.stop()
    assert trainer.step == 3
    assert [step for step, _ in step_folders(tmp_path / "run")] == [3]


def test_looks_for_collapse_are_logged(whole):
    log = [json.loads(line) for line in (whole[0] / "run" / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log if entry["collapse"]] == [6, 12]
    assert [entry["step"] for entry in log] == list(range(1, 13))


def test_resuming_asks_for_the_same_settings_and_a_checkpoint(whole, tmp_path):
    with pytest.raises(BadInput, match="no checkpoint"):
        make_trainer(tmp_path).resume()
    other = make_trainer(whole[0], dataclasses.replace(CONFIG, learning_rate=5.0))
    with pytest.raises(BadInput, match="learning_rate \\(0.0003, now 5.0\\)"):
        other.resume()


def test_batches_that_do_not_divide_are_refused(tmp_path):
    with pytest.raises(BadInput, match="4 pairs cannot be shared by 3"):
        make_trainer(tmp_path, world=World(rank=0, size=3))


def test_checkpoints_are_whole_or_refused(tmp_path):
    tensors = {"a": torch.arange(4.0), "b": torch.ones(2, 2)}
    save(tmp_path / "one", tensors.items(), {"step": 1}, writes=True)
    assert torch.equal(Saved(tmp_path / "one").tensor("a"), tensors["a"])
    with pytest.raises(BadInput, match="exists already"):
        save(tmp_path / "one", tensors.items(), {}, writes=True)
    with pytest.raises(BadInput, match="has no c"):
        Saved(tmp_path / "one").tensor("c")

    def interrupted():
        yield "a", torch.ones(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "two", interrupted(), {}, writes=True)
    assert [p.name for p in tmp_path.iterdir()] == ["one"]
    file = next((tmp_path / "one").glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(BadInput, match="bytes, not the"):
        Saved(tmp_path / "one")


def test_large_checkpoints_are_cut_into_files(tmp_path, monkeypatch):
    monkeypatch.setattr("hostbot.align.checkpoint._SHARD_BYTES", 32)
    tensors = {f"t{i}": torch.full((4,), float(i)) for i in range(5)}
    save(tmp_path / "one", tensors.items(), {}, writes=True)
    assert len(list((tmp_path / "one").glob("*.safetensors"))) == 3
    saved = Saved(tmp_path / "one")
    assert all(torch.equal(saved.tensor(name), tensor) for name, tensor in tensors.items())


def sphere(points):
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def test_collapse_is_told_apart_from_health():
    rng = np.random.default_rng(0)
    times = [np.linspace(0, 1, n)[:, None] for n in (20, 30, 25, 40)]
    tasks = ["a", "a", "b", "b"]
    alike = [sphere(np.ones((len(t), 8)) + 0.01 * rng.normal(size=(len(t), 8))) for t in times]
    curve = rng.normal(size=(2, 8))
    clock = [sphere(np.cos(3 * t) * curve[0] + np.sin(3 * t) * curve[1]) for t in times]
    curves = {"a": rng.normal(size=(2, 8)), "b": rng.normal(size=(2, 8))}
    sound = [
        sphere(np.cos(3 * t) * curves[k][0] + np.sin(3 * t) * curves[k][1])
        for t, k in zip(times, tasks, strict=True)
    ]
    config = CollapseConfig()
    assert "all look alike" in look_for_collapse(alike, tasks, config).sentence
    found = look_for_collapse(clock, tasks, config)
    assert "a clock" in found.sentence
    assert found.clock > 0.95
    assert look_for_collapse(sound, tasks, config).sentence == ""
    assert clock_share([np.ones((5, 3))] * 2) == 0.0
    with pytest.raises(BadInput, match="two tasks"):
        look_for_collapse(sound, ["a"] * 4, config)

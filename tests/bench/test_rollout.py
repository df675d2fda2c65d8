"""The evaluator judges as the bench does, gives the same table for the same seeds, and loses nothing when stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hostbot.bench.films import Film, get
from hostbot.bench.model import Model
from hostbot.bench.players import Replay, chunk_of, scripted, shown_video
from hostbot.bench.report import digest, markdown, report
from hostbot.bench.results import TRIALS, RolloutConfig, Row, read_results
from hostbot.bench.rollout import Rollout
from hostbot.bench.suites import SuiteConfig, Trial, names, sibling, trials, waves
from hostbot.bench.worker import Begin, Run, Seen, Stage, WorkerConfig
from hostbot.policy.execution import ExecutionConfig, Pilot
from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig
from hostbot.sim.episode import robot_episode
from hostbot.types import BadInput, Observation
from hostbot.video import fit_frames
from tests.policy.small_policy import small_policy

TASKS = ("topple-blue_bottle", "fold-pink_sock")
SUITE = SuiteConfig(tasks=TASKS, trials=2, videos=1)


def config(**changes) -> RolloutConfig:
    return replace(RolloutConfig(suite=SUITE, wave=3, workers=1), **changes)


def evaluate(folder: Path, player, settings: RolloutConfig, **more):
    rollout = Rollout(player, settings, (16, 16), **more)
    list(rollout.run(folder))
    return rollout, list(read_results(folder).values())


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """Human videos are made once for all tests here."""
    return tmp_path_factory.mktemp("films")


# Suites -----------------------------------------------------------------------------------------------


def test_a_suite_is_a_fixed_list():
    listed = trials(SuiteConfig(trials=3, videos=2))
    assert len(listed) == 150 == len({t.key for t in listed})
    assert listed == trials(SuiteConfig(trials=3, videos=2))
    assert {t.task for t in listed[:50]} == set(split().novel)  # every task early
    assert {t.video_seed for t in listed} == {6000, 6001}
    assert {t.seed for t in listed} == {6000, 6001, 6002}
    assert [t for wave in waves(listed, 32) for t in wave] == listed


def test_a_swapped_video_is_another_tasks_of_the_same_scene():
    for trial in trials(SuiteConfig(suite="comparison", trials=2, shown="swapped")):
        assert trial.shown_task != trial.task
        assert task(trial.task).affords(task(trial.shown_task))


def test_families_of_a_suite():
    listed = names(SuiteConfig(suite="train", families=("press", "wipe")))
    assert {task(name).family for name in listed} == {"press", "wipe"}
    assert len(listed) == 12
    with pytest.raises(BadInput, match="novel has no family press; it has"):
        names(SuiteConfig(suite="novel", families=("press",)))


def test_a_robots_video_is_from_its_own_cameras_in_another_scene(tmp_path):
    film = Film(task="press-red_button", seed=6000, body="robot", image_size=(16, 16))
    made = get(film, tmp_path)
    assert set(made.views) == {"third_person", "left_wrist", "right_wrist"}
    assert all(frames.shape == (made.num_frames, 16, 16, 3) for frames in made.views.values())
    assert made.first_touched == "red_button"
    here = robot_episode(task("press-red_button"), 6000, EnvConfig(size=96))
    before = fit_frames(here.trajectory.views["third_person"][:1], (16, 16))
    assert np.abs(before.astype(int) - made.views["third_person"][0]).max() > 40
    again = get(film, tmp_path)
    assert all(np.array_equal(made.views[view], again.views[view]) for view in made.views)
    (trial,) = trials(SuiteConfig(tasks=("press-red_button",), trials=1, shown_by="robot"))
    shown = shown_video(trial, made)
    assert shown is not None
    assert set(shown.views) == set(made.views)


def test_suites_that_cannot_be():
    with pytest.raises(BadInput, match="neither a video nor an instruction"):
        SuiteConfig(shown="none", told=False)
    with pytest.raises(BadInput, match="there is no task"):
        names(SuiteConfig(tasks=("fly",)))
    with pytest.raises(BadInput, match="twice"):
        names(SuiteConfig(tasks=(TASKS[0], TASKS[0])))


# Judgement --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("execute", [None, 6])
def test_the_expert_replayed_scores_what_the_bench_says(tmp_path, films, execute):
    settings = config(execution=ExecutionConfig(execute=execute))
    _, results = evaluate(tmp_path, Replay(), settings, films=films)
    assert len(results) == 4
    for result in results:
        made = robot_episode(task(result.task), result.seed, EnvConfig(views=()))
        assert (result.success, result.frames) == (made.success, len(made.trajectory))
        assert result.touched in (result.meant, "")  # what is tapped for two frames may count as not touched
    assert all(result.success for result in results)
    assert sum(result.touched != "" for result in results) >= 3


@pytest.mark.parametrize("name", ["zero", "hold"])
def test_doing_nothing_scores_nothing(tmp_path, films, name):
    settings = config(suite=replace(SUITE, trials=1), seconds=5.0)
    _, results = evaluate(tmp_path, scripted(name), settings, films=films)
    assert [r.success for r in results] == [False, False]
    assert {r.frames for r in results} == {80}


def test_an_expert_may_act_up_to_an_event_of_its_own(tmp_path, films):
    """Who holds still from there on has done what was done by then."""
    press = SuiteConfig(tasks=("press-red_button",), trials=2, videos=1)
    found = {}
    for after in ("contact", "press"):
        settings = config(suite=press, seconds=5.0, after=after)
        _, found[after] = evaluate(tmp_path / after, scripted("hold"), settings, films=films)
    assert [result.success for result in found["contact"]] == [False, False]
    assert [result.success for result in found["press"]] == [True, True]
    with pytest.raises(BadInput, match="notes no event 'grasp'; it notes approach, contact, press"):
        evaluate(tmp_path / "none", scripted("hold"), config(suite=press, after="grasp"), films=films)
    with pytest.raises(BadInput, match="another evaluation"):
        evaluate(tmp_path / "press", scripted("hold"), config(suite=press, seconds=5.0), films=films)


def test_who_follows_a_swapped_video_is_seen_to():
    """The expert of the task that was shown acts: that one gets done, and not the one that was asked for."""
    name = "stack-red_small_pot-black_pot"
    trial = Trial(
        task=name,
        seed=6000,
        shown_task=sibling(name, 6000),
        video_seed=6000,
        shown="swapped",
        shown_by="human",
        told=True,
        perturb="none",
    )
    settings = WorkerConfig(slots=1, env=EnvConfig(), image_size=(16, 16), pictures=False)
    stage = Stage(settings, np.zeros((1, 3, 16, 16, 3), np.uint8))
    stage.begin(Begin(slot=0, trial=trial))
    actor = stage._places[0].env.expert(task(trial.shown_task))
    seen = Seen(slot=0, frame=0, state=np.zeros(20, np.float32))
    while seen.outcome is None:
        seen = stage.run(Run(slot=0, actions=actor.act()[None].astype(np.float32)))
    assert seen.outcome.followed
    assert not seen.outcome.success


# The same table ---------------------------------------------------------------------------------------


def short(**changes) -> RolloutConfig:
    return config(seconds=3.0, **changes)


@pytest.fixture(scope="module")
def model():
    return Model(small_policy())


@pytest.fixture(scope="module")
def table(model, films, tmp_path_factory):
    """A model's results, one worker."""
    folder = tmp_path_factory.mktemp("table")
    return folder, evaluate(folder, model, short(workers=1), films=films)[1]


def test_a_model_of_random_weights_runs_end_to_end(table):
    _, results = table
    assert len(results) == 4
    for result in results:
        assert (result.frames, result.cycles) == (48, 3)
        assert 0 <= result.progress <= 1
        assert 0 <= result.confidence <= 1
    found = report(results)
    assert found.all.n == 4
    assert digest(found) in markdown(found, "small")


def test_the_same_seeds_give_the_same_table_with_any_number_of_workers(table, model, films, tmp_path):
    again = evaluate(tmp_path, model, short(workers=2, in_flight=1), films=films)[1]
    assert sorted(again, key=lambda r: r.key) == sorted(table[1], key=lambda r: r.key)
    other = replace(SUITE, first_seed=6100)
    with pytest.raises(BadInput, match="another evaluation"):
        evaluate(tmp_path, model, short(suite=other), films=films)


def test_stopped_and_gone_on_with_gives_the_same_table(table, model, films, tmp_path):
    rollout = Rollout(model, short(), (16, 16), films)
    run = rollout.run(tmp_path)
    next(run)
    run.close()  # as Ctrl-C does
    assert len(read_results(tmp_path)) == 1
    with (tmp_path / TRIALS).open("a") as file:
        file.write('{"task": "fold-pink_sock", "se')  # and a line that was cut short
    again, results = evaluate(tmp_path, model, short(), films=films)
    assert digest(report(results)) == digest(report(table[1]))
    assert again.num_changed == 0
    assert list(Rollout(model, short(), (16, 16), films).run(tmp_path)) == []  # nothing left to do


def test_another_demonstration_is_another_trial(table, model, films, tmp_path):
    """What is shown reaches the model: its beliefs differ when the frames come in another order."""
    settings = short(suite=replace(SUITE, trials=1, shown="shuffled"))
    shuffled = {r.key: r for r in evaluate(tmp_path, model, settings, films=films)[1]}
    own = {r.key: r for r in table[1]}
    assert any(shuffled[key].confidence != own[key].confidence for key in shuffled)


def test_without_a_video_there_is_no_progress(model, films, tmp_path):
    settings = short(suite=replace(SUITE, trials=1, shown="none"))
    for result in evaluate(tmp_path, model, settings, films=films)[1]:
        assert result.progress is None
        assert result.localisation_error is None


def test_the_expert_may_drive_while_the_model_says_where_it_is(model, films, tmp_path):
    settings = config(suite=replace(SUITE, trials=1), driver="expert")
    results = evaluate(tmp_path, model, settings, films=films)[1]
    assert all(r.success for r in results)
    assert all(0 < r.localisation_error <= 1 for r in results)  # of random weights
    assert all(r.localisation_cycles == r.cycles for r in results)


# Execution --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("execute", "lead"), [(None, 0), (5, 0), (12, 3), (8, 4), (16, 8)])
def test_a_lead_is_played_as_a_pilot_with_that_delay_would(execute, lead):
    """Chunks say when they were decided; the evaluator and the pilot carry out the same steps."""

    def decide(now: float):
        return chunk_of(np.tile(now + np.arange(16, dtype=np.float32)[:, None] / 100, (1, 20)))

    settings = ExecutionConfig(execute=execute, lead=lead)
    rollout = Rollout(scripted("hold"), RolloutConfig(execution=settings))
    row = Row(trial=trials(SUITE)[0], worker=0, slot=0)
    played: list[float] = []
    while len(played) < 60:
        row.seen = Seen(slot=0, frame=len(played), state=np.zeros(20, np.float32))
        played += rollout._next_actions(row, decide(len(played)))[:, 0].tolist()
    flown = []
    with Pilot(lambda seen: decide(float(seen.state[0])), settings) as pilot:
        for step in range(60):
            flown.append(
                float(pilot.act(lambda s=step: Observation(views={}, state=np.full(20, s, np.float32)))[0])
            )
            if pilot._next is not None:
                pilot._next.result()
    assert np.allclose(played[:60], flown, atol=1e-5)


def test_a_lead_beyond_half_is_refused():
    rollout = Rollout(scripted("hold"), RolloutConfig(execution=ExecutionConfig(execute=8, lead=5)))
    with pytest.raises(BadInput, match="more than half"):
        rollout._next_actions(Row(trial=trials(SUITE)[0], worker=0, slot=0), chunk_of(np.zeros((16, 20))))


def test_a_player_that_fails_is_not_hidden(films, tmp_path):
    class Broken(Replay):
        def act(self, sessions: Sequence[Any], observations: Sequence[Observation]):
            return [chunk_of(np.full((16, 20), np.nan, np.float32)) for _ in sessions]

    with pytest.raises(BadInput, match="20 finite numbers"):
        evaluate(tmp_path, Broken(), config(), films=films)


# Killed -----------------------------------------------------------------------------------------------


def lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def test_killed_and_gone_on_with_through_the_command_line(films, tmp_path):
    def command(out: str) -> list[str]:
        flags = ["--policy", "expert", "--tasks", *TASKS, "--trials", "3", "--videos", "1", "--films", "0"]
        where = ["--out", str(tmp_path / out), "--videos-at", str(films), "--workers", "1", "--wave", "2"]
        return [sys.executable, "-m", "hostbot", "eval", *flags, *where, "--json"]

    whole = json.loads(subprocess.run(command("whole"), capture_output=True, check=True).stdout)
    killed = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while lines(tmp_path / "killed" / TRIALS) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert 2 <= lines(tmp_path / "killed" / TRIALS) < 6
    gone_on = json.loads(subprocess.run(command("killed"), capture_output=True, check=True).stdout)
    assert gone_on["digest"] == whole["digest"]
    assert gone_on["trials_now"] < whole["trials_now"] == 6
    assert (tmp_path / "killed" / "report.md").read_text() == (tmp_path / "whole" / "report.md").read_text()

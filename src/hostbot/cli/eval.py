"""``hostbot eval``: closed-loop success in the bench, or predicted against recorded actions."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from hostbot.cli.policies import policy_folder
from hostbot.cli.show import print_json, print_table, progress
from hostbot.types import BadInput

if TYPE_CHECKING:
    from hostbot.bench.players import Player
    from hostbot.bench.results import RolloutConfig
    from hostbot.bench.rollout import Keep
    from hostbot.policy.policy import Policy

_SCRIPTED = ("expert", "zero", "hold")


@dataclass(frozen=True, kw_only=True)
class Eval:
    """Put a policy to the test: closed-loop success in the bench, or with --open-loop its numbers on a dataset.

    The same command gives the same table; interrupted, it goes on where it stopped.
    """

    policy: Annotated[str, arg(metavar="FOLDER|URL|NAME")] = "shipped"
    """A policy's folder, a server's address (ws://host:port), or one of shipped (the weights that come with hostbot),
    expert (replayed), zero, hold."""
    out: Path = Path("evaluation")
    """Folder for trials, report and films; an evaluation already there is gone on with."""
    suite: Literal["novel", "mastered", "comparison", "train", "all"] = "novel"
    """Which tasks."""
    families: tuple[str, ...] = ()
    """Only the suite's tasks of these families."""
    tasks: tuple[str, ...] = ()
    """These tasks instead (hostbot sim list)."""
    trials: int = 20
    """Scenes a task."""
    videos: int = 4
    """Different videos a task; trials take them in turn."""
    body: Literal["human", "robot"] = "human"
    """Whose videos: a human's, or the robot expert's in another scene."""
    demo: Literal["own", "swapped", "shuffled", "none"] = "own"
    """The task's video, another task's of the same scene, its frames in random order, or none."""
    video_only: bool = False
    """Do not tell the instruction."""
    perturb: Literal["none", "light", "objects", "scene", "disturb"] = "none"
    """Change the robot's scene; hostbot sim play --help."""
    drive: Literal["policy", "expert"] = "policy"
    """expert: the expert acts and the policy only says where in the video it is, to measure localisation."""
    after: Annotated[str, arg(metavar="EVENT")] = ""
    """The expert acts up to this event (contact, grasp, carry …) and the policy goes on: so it shows where it fails.
    For --tasks that all have it."""
    execute: Annotated[int | None, arg(metavar="STEPS")] = None
    """Steps of each chunk that are executed; if not said as many as the policy does best with: all in the paper."""
    skip_future: bool = False
    """Leave the visual stage out: faster."""
    noise: Annotated[float | None, arg(metavar="SCALE")] = None
    """Of what future and actions are made from, 0 to 1; as the policy says without it."""
    reach: Annotated[int | None, arg(metavar="FRAMES")] = None
    """How far from where it can be expected in the video a robot is looked for first; everywhere without it."""
    stir: Annotated[float, arg(metavar="METRES")] = 0.0
    """More than those, until a hand or its jaws were moved so far: nobody waits for ever where the video waits."""
    lead: int = 0
    """Look so many steps before these are over, as when thinking while moving."""
    pace: Annotated[float | None, arg(metavar="FACTOR")] = None
    """Play the human video so many times as fast."""
    first_seed: int = 6000
    """Seed of each task's first scene."""
    seconds: float = 14.0
    """How long a robot may take."""
    keep_actions: bool = False
    """Keep what was carried out, for `hostbot sim record --led`."""
    films: int = 4
    """Trials to film: human, robot, predicted future."""
    size: int = 96
    """Height and width at which the bench draws a view, as it did for the training data."""
    workers: int = 0
    """Simulation processes; 0 is one a core."""
    wave: int = 0
    """Trials that decide together; 0 is 32 on a GPU and 8 on a CPU. Part of what makes a table the same."""
    videos_at: Annotated[Path | None, arg(metavar="DIR")] = None
    """Keep human videos here for the next evaluation."""
    token_file: Annotated[Path | None, arg(metavar="FILE")] = None
    """With a server: what it asks of its clients."""
    device: str = "auto"
    """auto, cpu, cuda."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """How weights are held."""
    open_loop: Annotated[Path | None, arg(metavar="DATASET")] = None
    """Compare predicted with recorded actions on this dataset instead."""
    episodes: tuple[int, ...] = (0,)
    """With --open-loop: which episodes."""
    open_loop_demo: Literal["self", "other", "none"] = "self"
    """With --open-loop: the episode's own video, another one's of the same task, or the instruction alone."""
    demos: Annotated[Path | None, arg(metavar="DATASET")] = None
    """With --open-loop-demo other: where demonstrations are, if not in the dataset."""
    json: bool = False
    """Print figures as JSON."""

    def run(self) -> None:
        """Evaluate and report."""
        self._check()
        if self.open_loop is None:
            _closed_loop(self)
            return
        from hostbot.cli.open_loop import compare_dataset

        if self.policy in _SCRIPTED or _is_url(self.policy):
            raise BadInput(
                f"{self.policy!r} has no predictions to look at: --open-loop needs a policy's folder"
            )
        compare_dataset(self, self.open_loop, _load(self, _device(self.device), 1))

    def _check(self) -> None:
        """Refuse settings that would do nothing."""
        if not self.seconds > 0:
            raise BadInput(f"--seconds is how long a robot may take, above 0; got {self.seconds}")
        deciding = self.skip_future or self.noise is not None or self.reach is not None
        if deciding and (self.policy in _SCRIPTED or _is_url(self.policy)):
            raise BadInput(
                f"--skip-future, --noise and --reach are for a policy's folder: how {self.policy!r} decides is not ours"
            )
        if self.reach is not None and self.demo == "none":
            raise BadInput("--reach tells where in a video to look, and with --demo none there is none")
        if self.after and (self.open_loop is not None or self.drive == "expert" or self.lead):
            raise BadInput("--after is for a policy that acts in the bench in the end, without --lead")
        if self.keep_actions and (self.open_loop is not None or self.drive == "expert"):
            raise BadInput(
                "--keep-actions is for a robot that carries out what the policy decides: nobody does here"
            )
        if self.keep_actions and self.perturb != "none":
            raise BadInput(
                "--keep-actions is for scenes as they are: what was done in others leads nowhere there"
            )
        if self.stir and (self.open_loop is not None or self.drive == "expert"):
            raise BadInput("--stir is for a robot that carries out what the policy decides: nobody does here")


# Closed loop ------------------------------------------------------------------------------------------


def _closed_loop(flags: Eval) -> None:
    from hostbot.bench.report import report, write_report
    from hostbot.bench.results import read_results
    from hostbot.bench.rollout import Rollout
    from hostbot.bench.suites import trials
    from hostbot.config import provenance

    device = _device(flags.device)
    config = _config(flags, device)
    wanted = {trial.key for trial in trials(config.suite)}
    local = flags.policy not in _SCRIPTED and not _is_url(flags.policy)
    policy = _load(flags, device, config.wave) if local else None
    if policy is not None:
        config = replace(config, rate_hz=policy.embodiment.rate_hz)
        if flags.execute is None:
            config = replace(config, execution=replace(config.execution, execute=policy.spec.execute))
    rollout = Rollout(
        _player(flags, policy),
        config,
        (64, 64) if policy is None else policy.spec.image_size,
        flags.videos_at,
        keep_actions=flags.keep_actions,
    )
    begun = time.perf_counter()
    done = len(wanted & set(read_results(flags.out)))
    with progress("trials", len(wanted)) as tick:
        tick(done)
        for finished in rollout.run(flags.out, _keep(flags)):
            if finished.pictures:
                _film(flags.out, finished, policy)
            tick()
    results = [result for key, result in read_results(flags.out).items() if key in wanted]
    found = report(results, config.rate_hz)
    title = f"{rollout.player.identity}: {', '.join(flags.tasks or (flags.suite, *flags.families))}"
    about = {
        "player": rollout.player.identity,
        "config": config.same(),
        "trials_now": len(wanted) - done,
        "seconds_now": round(time.perf_counter() - begun, 1),
        "changed_when_run_again": rollout.num_changed,
        "provenance": provenance(),
    }
    write_report(flags.out, found, title, about)
    _print(flags, found, title, rollout.num_changed)


def _print(flags: Eval, found: Any, title: str, num_changed: int) -> None:
    from hostbot.bench.report import COLUMNS, row
    from hostbot.config import read_json

    if flags.json:
        print_json(read_json(flags.out / "report.json"))
        return
    print_table(title, COLUMNS, [row(one) for one in (*found.tasks, found.all)])
    if num_changed:
        print(
            f"{num_changed} trials that ran again after an interruption came out otherwise; the first was kept"
        )
    print(f"wrote {flags.out / 'report.md'} and report.json")


def _config(flags: Eval, device: str) -> RolloutConfig:
    from hostbot.bench.results import RolloutConfig
    from hostbot.bench.suites import SuiteConfig
    from hostbot.policy.execution import ExecutionConfig

    wave = flags.wave or (32 if device.startswith("cuda") else 8)
    workers = flags.workers or os.cpu_count() or 1
    return RolloutConfig(
        suite=SuiteConfig(
            suite=flags.suite,
            families=flags.families,
            tasks=flags.tasks,
            trials=flags.trials,
            videos=flags.videos,
            first_seed=flags.first_seed,
            shown=flags.demo,
            shown_by=flags.body,
            told=not flags.video_only,
            perturb=flags.perturb,
        ),
        wave=wave,
        seconds=flags.seconds,
        execution=ExecutionConfig(execute=flags.execute, lead=flags.lead, stir=flags.stir),
        driver="expert" if flags.drive == "expert" else "player",
        after=flags.after,
        pace=flags.pace,
        size=flags.size,
        workers=workers,
        # A server takes only so many robots; without one, enough waves to keep every process busy.
        in_flight=1 if _is_url(flags.policy) else max(2, -(-8 * workers // wave)),
    )


def _player(flags: Eval, policy: Policy | None) -> Player:
    if _is_url(flags.policy):
        from hostbot.bench.remote import Remote, connector

        token = flags.token_file.read_text().strip() if flags.token_file else None
        return Remote(flags.policy, connector(flags.policy, token))
    if policy is None:
        from hostbot.bench.players import scripted

        return scripted(flags.policy)
    from hostbot.bench.model import Model

    return Model(policy, flags.pace)


def _is_url(policy: str) -> bool:
    return policy.startswith(("ws://", "wss://"))


def _load(flags: Eval, device: str, wave: int) -> Policy:
    import torch

    from hostbot.policy.bundle import read_bundle
    from hostbot.policy.policy import Policy, PolicyConfig

    folder = policy_folder(Path(flags.policy))
    # On a GPU one batch size is one set of graphs; on a CPU a smaller batch is less work.
    sizes = (wave,) if device.startswith("cuda") else tuple(2**n for n in range(wave.bit_length() + 1))
    dtype = torch.bfloat16 if flags.dtype == "bfloat16" else torch.float32
    cascade = read_bundle(folder).spec.cascade
    if flags.skip_future:
        cascade = replace(cascade, skip_future=True)
    if flags.noise is not None:
        cascade = replace(cascade, noise_o=flags.noise, noise_a=flags.noise)
    policy = Policy.load(
        folder, device=device, dtype=dtype, config=PolicyConfig(batch_sizes=sizes, cascade=cascade)
    )
    if flags.reach is not None:
        policy.window_config = replace(policy.window_config, reach=flags.reach)
    return policy


def _device(wanted: str) -> str:
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise BadInput("there is no CUDA device here; leave --device out, or say --device cpu")
    return wanted


def _keep(flags: Eval) -> Keep | None:
    """The first trials of as many tasks as shall be filmed."""
    if flags.films == 0:
        return None
    from hostbot.bench.suites import SuiteConfig, names

    listed = names(SuiteConfig(suite=flags.suite, families=flags.families, tasks=flags.tasks))
    step = max(1, len(listed) // flags.films)
    chosen = set(listed[::step][: flags.films])
    return lambda trial: trial.task in chosen and trial.seed == flags.first_seed


def _film(folder: Path, finished: Any, policy: Policy | None) -> None:
    from hostbot.bench.movie import write_movie

    (folder / "films").mkdir(exist_ok=True)
    result = finished.result
    name = f"{result.task}-{result.seed}-{'done' if result.success else 'not_done'}.mp4"
    write_movie(folder / "films" / name, finished, None if policy is None else policy.imagine)


VERBS: tuple[type, ...] = (Eval,)

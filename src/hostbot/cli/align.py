"""``hostbot align``: which moment of one video is which of another, and everything that is made of it."""

from __future__ import annotations

import math
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from tyro.conf import Positional, arg

from hostbot.cli.show import print_json, print_table, progress
from hostbot.config import provenance, record_run, write_json
from hostbot.types import BadInput, DataError, EpisodeSource

if TYPE_CHECKING:
    from hostbot.align.aligner import Aligner
    from hostbot.align.report import EvalPair
    from hostbot.align.train import Trainer

Weights = Annotated[
    Path | None,
    arg(metavar="FILE.json", help="Trained weights (align.json of a run); those shipped by default."),
]
Device = Annotated[
    str | None, arg(metavar="NAME", help="cpu, cuda or cuda:N; for training a GPU where there is one.")
]


def aligner_at(weights: Path | None, device: str | None = None) -> Aligner:
    """Trained weights on a device."""
    from hostbot.align.aligner import load_aligner

    return load_aligner(weights, device or "cpu")


def dataset_at(path: Path) -> EpisodeSource:
    """A dataset that says its own frame rate."""
    from hostbot.data.sources import open_source

    return open_source(path)


def by_task(source: EpisodeSource) -> dict[str, list[int]]:
    """Task -> episodes."""
    from hostbot.data.pairs import task_key

    found: dict[str, list[int]] = {}
    for index in range(len(source)):
        found.setdefault(task_key(source.episode(index).instruction), []).append(index)
    return found


@dataclass(frozen=True)
class Train:
    """Train a frame encoder on same-task pairs; also under torchrun. Ctrl-C saves, --resume goes on."""

    robot: Annotated[Positional[Path], arg(metavar="ROBOT")]
    """Robot dataset."""
    out: Annotated[Positional[Path], arg(metavar="OUT")]
    """Folder of the run: checkpoints, log.jsonl, and align.json with align.safetensors in the end."""
    human: Annotated[Path | None, arg(metavar="DATASET")] = None
    """Dataset of people's videos, paired with the robot's by task."""
    split: Annotated[Path | None, arg(metavar="FILE")] = None
    """A split (`hostbot data pairs`): only its training part is learned from."""
    cache: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Where frames are kept decoded; OUT/cache by default."""
    qwen: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Fine-tune this Qwen3-VL-Embedding checkpoint, with the paper's settings, instead of a small encoder."""
    steps: int | None = None
    """Optimiser steps."""
    batch_size: int | None = None
    """Pairs of a step, over all processes."""
    learning_rate: float | None = None
    human_share: float = 0.5
    """Of human-robot pairs; the rest is robot-robot."""
    frames: int = 64
    """Most frames of a video in one step."""
    save_every: int = 500
    """Steps between checkpoints."""
    minutes: float = math.inf
    """Stop cleanly after so many minutes; --resume goes on."""
    seed: int = 0
    resume: bool = False
    """Go on from the last checkpoint in OUT."""
    device: Device = None

    def run(self) -> None:
        """Decode once, train, calibrate, export."""
        from hostbot.align.distributed import joined

        with joined(self.device) as world:
            trainer = self._trainer(world)
            if self.resume:
                print(f"going on after step {trainer.resume()}") if world.leads else trainer.resume()
            elif any(self.out.glob("step-*")):
                raise BadInput(f"{self.out} holds a run; give --resume to go on with it, or another folder")
            if world.leads:
                record_run(self.out, self, {"align": self.seed})
            self._train(trainer)
            self._export(trainer)

    def _trainer(self, world: object) -> Trainer:
        import torch

        from hostbot.align.aligner import build_encoder
        from hostbot.align.cache import CacheConfig, build_cache
        from hostbot.align.distributed import World
        from hostbot.align.draw import DrawConfig, Pairs
        from hostbot.align.qwen import QwenConfig
        from hostbot.align.recipe import paper_recipe, small_recipe
        from hostbot.align.small import SmallConfig
        from hostbot.align.train import Trainer

        assert isinstance(world, World)
        sources = {"robot": dataset_at(self.robot)}
        if self.human is not None:
            sources["human"] = dataset_at(self.human)
        encoder = QwenConfig(folder=str(self.qwen)) if self.qwen else SmallConfig()
        kept = CacheConfig(size=encoder.size)
        caches = {}
        for body, source in sources.items():
            with progress(f"decoding {body}", len(source)) as tick:
                caches[body] = build_cache(source, self.cache or self.out / "cache", kept, tick)
        draw = DrawConfig(human_share=self.human_share, max_steps=self.frames)
        recipe = paper_recipe if self.qwen else small_recipe
        chosen = {
            k: getattr(self, k)
            for k in ("steps", "batch_size", "learning_rate")
            if getattr(self, k) is not None
        }
        config = recipe(draw=draw, seed=self.seed, save_every=self.save_every, **chosen)
        torch.manual_seed(self.seed)
        pairs = Pairs(caches, self._tasks(sources), draw, self.seed)
        return Trainer(build_encoder(encoder), pairs, config, self.out, world)

    def _tasks(self, sources: dict[str, EpisodeSource]) -> dict[str, dict[str, list[int]]]:
        from hostbot.data.pairs import load_split

        if self.split is not None:
            split = load_split(self.split, sources)  # type: ignore[arg-type]
            return {t.task: {body: list(found) for body, found in t.train.items()} for t in split.tasks}
        tasks: dict[str, dict[str, list[int]]] = {}
        for body, source in sources.items():
            for task, episodes in by_task(source).items():
                tasks.setdefault(task, {})[body] = episodes
        return tasks

    def _train(self, trainer: Trainer) -> None:
        until = time.monotonic() + 60 * self.minutes
        before = signal.signal(signal.SIGINT, lambda *_: self._asked(trainer))
        try:
            with progress("training", trainer.config.steps) as tick:
                tick(trainer.step)
                for report in trainer.run():
                    tick()
                    if time.monotonic() > until:
                        trainer.stop()
                    if trainer.world.leads and report.collapse and report.collapse.sentence:
                        print(f"step {report.step}: {report.collapse.sentence}")
        finally:
            signal.signal(signal.SIGINT, before)
        if trainer.step < trainer.config.steps:
            raise KeyboardInterrupt(f"saved after step {trainer.step}; go on with --resume")

    @staticmethod
    def _asked(trainer: Trainer) -> None:
        if trainer.stopping:
            raise KeyboardInterrupt("the last checkpoint is whole, go on with --resume")
        trainer.stop()

    def _export(self, trainer: Trainer) -> None:
        from hostbot.align.aligner import Aligner, AlignerConfig, save_aligner
        from hostbot.align.calibrate import calibrate

        config = AlignerConfig(
            encoder=trainer.encoder.config,  # type: ignore[arg-type]
            match=trainer.config.loss.match,
        )
        calibration = calibrate(Aligner(trainer.encoder, config, trainer.world.device), trainer.pairs)
        config = AlignerConfig(encoder=config.encoder, match=config.match, calibration=calibration)
        path = self.out / "align.json"
        save_aligner(trainer.encoder, config, path, {"steps": trainer.step}, writes=trainer.world.leads)
        if trainer.world.leads:
            print(f"{path}: trained for {trainer.step} steps; try `hostbot align eval`")


@dataclass(frozen=True)
class Map:
    """Which moment of one video is which of another: a map as JSON and CSV, and both played in step."""

    a: Annotated[Positional[Path], arg(metavar="A.mp4")]
    """The demonstration: any video file."""
    b: Annotated[Positional[Path], arg(metavar="B.mp4")]
    """Another video of the same activity."""
    out: Path = Path("map.json")
    """The map to write; the table (.csv) and the video (.mp4) get the same name."""
    video: bool = True
    """Write the video too; --no-video leaves it out."""
    weights: Weights = None
    device: Device = None
    overwrite: bool = False
    """Replace files that are there."""

    def run(self) -> None:
        """Embed both, align, write, and say how sure it is."""
        from hostbot.align.mapping import map_values, write_csv, write_side_by_side
        from hostbot.align.videos import align_whole, embed_video

        if self.out.suffix != ".json":
            raise BadInput(f"the map is a .json file, got --out {self.out}")
        targets = [self.out.with_suffix(s) for s in (".json", ".csv", *([".mp4"] if self.video else []))]
        for target in targets:
            if target.exists() and not self.overwrite:
                raise BadInput(f"{target} exists; pass --overwrite to replace it")
            if target.resolve() in (self.a.resolve(), self.b.resolve()):
                raise BadInput(f"{target} is one of the videos; give another --out")
        self.out.parent.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        aligner = aligner_at(self.weights, self.device)
        with progress("looking", 2) as tick:
            first = embed_video(aligner, self.a)
            tick()
            second = embed_video(aligner, self.b)
            tick()
        found = align_whole(aligner, first, second)
        values = map_values(self.a, self.b, first, second, found)
        write_json(self.out, values)
        write_csv(targets[1], values)
        if self.video:
            total = first.num_frames + second.num_frames
            with progress("writing video", total) as tick:
                tick(0, total=write_side_by_side(self.a, self.b, found, targets[2], tick=tick))
        seconds = time.perf_counter() - begin
        frames = first.num_frames + second.num_frames
        print(
            f"wrote {', '.join(map(str, targets))}: {frames} frames in {seconds:.1f} s, {frames / seconds:.0f}/s"
        )
        print(_how_sure(found.confidence, aligner.config.confident))


def _how_sure(confidence: float, threshold: float) -> str:
    if confidence >= threshold:
        return f"confidence {confidence:.2f}"
    return (
        f"confidence {confidence:.2f} is low (below {threshold:.2f}): these may not show the same task, or one of them "
        "runs backwards or is cut; do not rely on this map"
    )


@dataclass(frozen=True)
class Label:
    """Label a robot dataset with its correspondences to demonstrations of the same tasks; run again to go on."""

    robot: Annotated[Positional[Path], arg(metavar="ROBOT")]
    """Robot dataset (LeRobot); the labels go beside it, into meta/hostbot/alignment."""
    demos: Annotated[Path | None, arg(metavar="DATASET")] = None
    """Demonstrations, such as people's videos; the robot's other episodes where it is left out."""
    name: str | None = None
    """What to call the labels; the demonstrations' name by default."""
    demos_per_robot: int = 8
    """Most demonstrations an episode is aligned with, drawn by seed."""
    min_confidence: float | None = None
    """Below it a pair is left out; the weights' own threshold by default."""
    max_cost: float | None = None
    """Path cost a step above which a pair is left out."""
    shard: Annotated[str, arg(metavar="I/N")] = "1/1"
    """This process's share, such as 3/8; shards may run on different machines."""
    seed: int = 0
    weights: Weights = None
    device: Device = None
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Align what has no label yet and say what was left out and why."""
        from hostbot.align.label import LabelConfig, label, parts_of_shard
        from hostbot.align.labels import FOLDER

        robot = dataset_at(self.robot)
        demo = dataset_at(self.demos) if self.demos else robot
        pairs = self._pairs(robot, demo, same=self.demos is None)
        config = LabelConfig(min_confidence=self.min_confidence, max_cost=self.max_cost)
        shard = parse_shard(self.shard)
        parts = parts_of_shard(len(pairs), config, shard)
        mine = min(len(pairs), parts.stop * config.pairs_a_part) - parts.start * config.pairs_a_part
        folder = self.robot / FOLDER / (self.name or demo.name)
        aligner = aligner_at(self.weights, self.device)
        try:
            with progress("labelling", max(0, mine)) as tick:
                report = label(aligner, robot, demo, pairs, folder, config, shard=shard, tick=tick)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"finished parts are in {folder}; run it again to go on") from None
        if self.json:
            print_json(asdict(report) | {"folder": str(folder)})
            return
        print(f"{folder}: {report.num_done} of {report.num_pairs} pairs labelled, {report.num_kept} reliable")
        for reason, count in report.left_out.items():
            print(f"left out: {count} pairs, {reason}")

    def _pairs(self, robot: EpisodeSource, demo: EpisodeSource, *, same: bool) -> list[tuple[int, int]]:
        if self.demos_per_robot < 1:
            raise BadInput(f"--demos-per-robot must be at least 1, got {self.demos_per_robot}")
        demos = by_task(demo)
        pairs = []
        for task, episodes in sorted(by_task(robot).items()):
            for episode in episodes:
                choices = [d for d in demos.get(task, ()) if not same or d != episode]
                rng = np.random.default_rng([self.seed, episode])
                chosen = rng.permutation(len(choices))[: self.demos_per_robot]
                pairs += [(episode, choices[i]) for i in sorted(chosen.tolist())]
        return pairs


def parse_shard(text: str) -> tuple[int, int]:
    """``3/8`` as (2, 8)."""
    index, _, total = text.partition("/")
    if not (index.isdigit() and total.isdigit() and 1 <= int(index) <= int(total)):
        raise BadInput(f"--shard is I/N with I from 1 to N, such as 3/8, got {text!r}")
    return int(index) - 1, int(total)


@dataclass(frozen=True)
class Eval:
    """How good the alignment is on pairs whose events are known, beside matching by clock time."""

    robot: Annotated[Positional[Path], arg(metavar="ROBOT")]
    """Robot dataset with events (`hostbot sim record` makes one)."""
    human: Annotated[Path | None, arg(metavar="DATASET")] = None
    """Demonstrations with events; the robot's other episodes where it is left out."""
    pairs_per_task: int = 4
    """Pairs drawn of each task."""
    seed: int = 0
    weights: Weights = None
    device: Device = None
    by: Literal["family", "task"] = "family"
    """What the rows of the table are."""
    out: Annotated[Path | None, arg(metavar="FILE.json")] = None
    """Keep all figures here."""
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Align, compare with truth, print."""
        from hostbot.align.evaluate import Truth, table
        from hostbot.align.report import evaluate
        from hostbot.sim.progress import knots
        from hostbot.sim.progress import progress as true_progress

        robot = dataset_at(self.robot)
        demo = dataset_at(self.human) if self.human else robot
        aligner = aligner_at(self.weights, self.device)
        pairs = self._pairs(robot, demo)

        def truth_of(pair: EvalPair) -> Truth:
            events = robot.events(pair.robot), demo.events(pair.demo)
            lengths = robot.episode(pair.robot).length, demo.episode(pair.demo).length
            ours, theirs = true_progress(*events, *lengths)
            inner = knots(*events, *lengths)[0][1:-1].astype(int)
            return Truth(robot_progress=ours, demo_progress=theirs, robot_events=inner)

        with progress("aligning", len(pairs)) as tick:
            found = evaluate(aligner, robot, demo, pairs, truth_of, tick)
        rows = table(found.scores)
        columns = [self.by, "pairs", "event error", "by the clock", "Kendall's tau"]
        figures = found.figures() | {
            "weights": aligner.identity,
            "groups": [dict(zip(columns, row, strict=True)) for row in rows],
            "provenance": provenance(),
        }
        if self.out is not None:
            write_json(self.out, figures)
        if self.json:
            print_json(figures)
            return
        print_table("mean absolute progress error at events", columns, rows)
        _print_figures(figures)

    def _pairs(self, robot: EpisodeSource, demo: EpisodeSource) -> list[EvalPair]:
        from hostbot.align.report import EvalPair

        rng = np.random.default_rng(self.seed)
        ours, theirs = by_task(robot), by_task(demo)
        families = _families() if self.by == "family" else {}
        pairs = []
        for task in sorted(ours):
            others = [d for other, episodes in theirs.items() if other != task for d in episodes]
            choices = [
                (r, d) for r in ours[task] for d in theirs.get(task, ())
                if (demo is not robot or r != d) and robot.events(r) and demo.events(d)
            ]  # fmt: skip
            for i in sorted(rng.permutation(len(choices))[: self.pairs_per_task].tolist()):
                wrong = others[int(rng.integers(len(others)))] if others else None
                group = families.get(task, task)
                pairs.append(
                    EvalPair(
                        task=task, group=group, robot=choices[i][0], demo=choices[i][1], wrong_demo=wrong
                    )
                )
        if not pairs:
            raise DataError(
                f"{robot.name} and {demo.name} share no task with recorded events; there is no truth"
            )
        return pairs


def _families() -> dict[str, str]:
    """Task -> family for the tasks of the bench."""
    from hostbot.data.pairs import task_key
    from hostbot.sim.catalogue import tasks

    return {task_key(task.instructions[0]): task.family for task in tasks().values()}


def _print_figures(figures: dict[str, object]) -> None:
    def told(value: object) -> str:
        if isinstance(value, dict):
            return f"{value['mean']:.4f} ± {value['deviation']:.4f}" if value else "no events"
        return "–" if value is None else f"{value:.4f}"

    rows = [
        ("progress error at events", told(figures["event_error"]), told(figures["event_error_clock"])),
        ("Kendall's tau, nearest neighbours", told(figures["kendall_tau"]), "1 by definition"),
        ("phase progression R²", told(figures["phase_r2"]), told(figures["phase_r2_clock"])),
        ("AUROC, same task against wrong task", told(figures["auroc_wrong_task"]), "–"),
        ("AUROC, forwards against backwards", told(figures["auroc_backwards"]), "–"),
    ]
    print_table(f"{figures['pairs']} pairs", ["", "aligned", "clock time"], rows)


@dataclass(frozen=True)
class Plot:
    """Draw how two videos align: cost matrix, matching probabilities, path, and clock time for comparison."""

    a: Annotated[Positional[Path], arg(metavar="A.mp4")]
    """The demonstration."""
    b: Annotated[Positional[Path], arg(metavar="B.mp4")]
    """Another video of the same activity."""
    out: Path = Path("alignment.png")
    """The picture (.png, .pdf or .svg)."""
    weights: Weights = None
    device: Device = None

    def run(self) -> None:
        """Embed both and draw."""
        from hostbot.align.plot import plot_alignment
        from hostbot.align.videos import embed_video

        if self.out.suffix.lower() not in (".png", ".pdf", ".svg"):
            raise BadInput(f"--out must be a .png, .pdf or .svg file, got {self.out}")
        aligner = aligner_at(self.weights, self.device)
        first, second = embed_video(aligner, self.a), embed_video(aligner, self.b)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        plot_alignment(aligner, first, second, self.out, (self.a.name, self.b.name))
        print(f"wrote {self.out}")


VERBS: tuple[type, ...] = (Train, Map, Label, Eval, Plot)

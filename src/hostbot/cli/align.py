"""``hostbot align``: which moment of one video is which of another, and everything that is made of it."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from tyro.conf import Positional, arg

from hostbot.cli.align_common import Device, Weights, aligner_at, by_task, dataset_at
from hostbot.cli.align_eval import Eval
from hostbot.cli.align_train import Train
from hostbot.cli.show import print_json, progress
from hostbot.config import write_json
from hostbot.types import BadInput, EpisodeSource


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
    name: Annotated[str | None, arg(metavar="NAME")] = None
    """What to call the labels; the demonstrations' name by default."""
    demos_per_robot: int = 8
    """Most demonstrations an episode is aligned with, drawn by seed."""
    min_confidence: Annotated[float | None, arg(metavar="SHARE")] = None
    """Below it a pair is left out; the weights' own threshold by default."""
    max_cost: Annotated[float | None, arg(metavar="NATS")] = None
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

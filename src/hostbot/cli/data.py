"""``hostbot data``: look at, convert, check and prepare datasets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from tyro.conf import Positional, arg

from hostbot.cli.show import print_json, print_table, progress
from hostbot.types import BadInput, DataError, EpisodeSource

Fps = Annotated[
    float | None,
    arg(metavar="HZ", help="Frames a second, where the layout does not say it (HOST release, videos)."),
]


EmbodimentName = Annotated[
    str | None,
    arg(
        metavar="NAME",
        help="What the numbers mean, where the dataset does not say it: bimanual, single_arm, joints, or a .json file.",
    ),
]


def source_at(path: Path, fps: float | None) -> EpisodeSource:
    """A dataset of any layout we read."""
    from hostbot.data.sources import open_source

    return open_source(path, fps)


@dataclass(frozen=True)
class Info:
    """What is in a dataset: episodes, tasks, views, features. Reads no rows and no more than a frame a view."""

    path: Annotated[Positional[Path], arg(metavar="DATASET")]
    """A LeRobot folder (v3.0, v2.1, v2.0), HOST release episodes, or a folder of videos."""
    fps: Fps = None
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Print it."""
        from hostbot.data.info import describe

        found = describe(source_at(self.path, self.fps), self.path)
        if self.json:
            print_json(asdict(found))
            return
        spread = ", ".join(f"{share} {frames:g}" for share, frames in found.length_quantiles.items())
        facts = [
            ("layout", found.layout),
            ("robot", found.robot_type or "not said"),
            ("episodes", found.num_episodes),
            ("frames", f"{found.num_frames:,} at {found.fps:g} Hz, {found.hours:.2f} hours"),
            ("episode length", spread),
            ("embodiment", found.embodiment or "not said"),
            ("statistics", "written" if found.has_statistics else "missing: run hostbot data stats"),
            ("events", found.num_events),
            ("checksums", found.has_checksums),
            ("size on disk", f"{found.num_bytes / 2**20:,.1f} MiB"),
        ]
        print_table(found.path, ["", ""], facts)
        cameras = [(name, f"{v.height}x{v.width}", v.codec or "not said") for name, v in found.views.items()]
        print_table("views", ["view", "size", "codec"], cameras)
        features = [(name, f.dtype, "x".join(map(str, f.shape))) for name, f in found.features.items()]
        print_table("features", ["feature", "type", "shape"], features)
        tasks = list(found.tasks.items())
        title = "tasks" if len(tasks) <= 20 else f"tasks (20 of {len(tasks)}; all with --json)"
        print_table(title, ["task", "episodes"], tasks[:20])
        for sentence in found.notes:
            print(f"not served: {sentence}")


@dataclass(frozen=True)
class Convert:
    """Copy any dataset we read into a LeRobot v3.0 dataset. Interrupted, it goes on with --resume."""

    path: Annotated[Positional[Path], arg(metavar="DATASET")]
    """The dataset to copy."""
    out: Annotated[Positional[Path], arg(metavar="OUT")]
    """A new folder."""
    fps: Fps = None
    size: Annotated[tuple[int, int] | None, arg(metavar="HEIGHT WIDTH")] = None
    """Height and width of every view in the copy."""
    clean: bool = False
    """Remove frames in which nothing moves, at the paper's thresholds."""
    embodiment: EmbodimentName = None
    codec: Literal["h264", "hevc", "av1"] = "h264"
    """How views are encoded."""
    resume: bool = False
    """Go on with an interrupted copy."""
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Copy, then say what was copied and what was not."""
        from hostbot.data.clean import CleanConfig
        from hostbot.data.convert import ConvertConfig, convert
        from hostbot.data.embodiments import resolve_embodiment

        source = source_at(self.path, self.fps)
        if self.out.exists() and any(self.out.iterdir()) and not self.resume:
            raise DataError(f"{self.out} is not empty; give a new folder, or --resume to go on with a copy")
        embodiment = resolve_embodiment(self.embodiment, source) if self.embodiment else None
        config = ConvertConfig(size=self.size, clean=CleanConfig() if self.clean else None, codec=self.codec)
        try:
            with progress("converting", len(source)) as tick:
                report = convert(
                    source, self.out, config, embodiment=embodiment, resume=self.resume, tick=tick
                )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"what is in {self.out} is whole, go on with --resume") from None
        if self.json:
            print_json(asdict(report))
            return
        print(f"{self.out}: {report.num_episodes} episodes, {report.num_frames} frames")
        if self.clean:
            print(f"removed {report.num_removed} static frames")
        for sentence in report.left_out:
            print(f"left out: {sentence}")


@dataclass(frozen=True)
class Stats:
    """Write the normalisation statistics that training requires: min, max, mean, deviation, quantiles."""

    path: Annotated[Positional[Path], arg(metavar="DATASET")]
    """A LeRobot dataset."""
    embodiment: EmbodimentName = None
    horizon: int = 32
    """Steps of an action chunk."""
    keep_static: bool = False
    """Count static frames too."""
    any_rotation: bool = False
    """Bound rotations by what any rotation has instead: what was never turned that way while it was recorded can be
    later."""
    overwrite: bool = False
    """Replace statistics that were written before."""
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Compute, save and print."""
        from hostbot.config import to_dict
        from hostbot.data.embodiments import resolve_embodiment
        from hostbot.data.sidecar import write_embodiment
        from hostbot.data.sources import open_source
        from hostbot.data.stats import (
            StatsConfig,
            any_rotation,
            compute_statistics,
            save_statistics,
            statistics_path,
        )

        source, target = open_source(self.path), statistics_path(self.path)
        if target.exists() and not self.overwrite:
            raise DataError(f"{target} exists; statistics are written once, pass --overwrite to replace them")
        if self.horizon < 1:
            raise BadInput(f"--horizon must be at least 1, got {self.horizon}")
        embodiment = resolve_embodiment(self.embodiment, source) if self.embodiment else None
        if self.any_rotation and (embodiment or source.embodiment) is None:
            raise BadInput("--any-rotation needs to know which numbers are rotations: name the --embodiment")
        config = StatsConfig(horizon=self.horizon, **({"clean": None} if self.keep_static else {}))
        with progress("statistics (three passes)", 3 * len(source)) as tick:
            found = compute_statistics(source, config, embodiment=embodiment, tick=tick)
        if self.any_rotation:
            found = any_rotation(found)
        save_statistics(found, target, overwrite=self.overwrite)
        if embodiment is not None and source.embodiment is None:
            write_embodiment(self.path, embodiment)
        if self.json:
            print_json(to_dict(found))
            return
        for name, feature in found.features.items():
            rows = zip(
                feature.min, feature.q01, feature.mean, feature.q99, feature.max, feature.std, strict=True
            )
            body = [(axis, *row) for axis, row in enumerate(rows)]
            print_table(
                f"{name} ({feature.count:,} rows)", ["", "min", "1 %", "mean", "99 %", "max", "std"], body
            )
        print(f"{found.num_removed} of {found.num_frames} frames were static and left out")
        if found.embodiment is None:
            print(
                "the dataset does not say what its numbers mean: no relative actions; name it with --embodiment"
            )
        print(f"written to {target}")


@dataclass(frozen=True)
class View:
    """Look at a dataset: a contact sheet (PNG) and, with --recording, a Rerun recording (.rrd)."""

    path: Annotated[Positional[Path], arg(metavar="DATASET")]
    """The dataset."""
    out: Path = Path("sheet.png")
    """The contact sheet."""
    episodes: Annotated[tuple[int, ...], arg(metavar="N ...")] = ()
    """Which episodes; by default six, evenly spaced."""
    columns: int = 8
    """Frames of an episode on the sheet."""
    recording: Annotated[Path | None, arg(metavar="FILE.rrd")] = None
    """Also write these episodes as a Rerun recording; open it with `rerun FILE`."""
    fps: Fps = None

    def run(self) -> None:
        """Draw and write."""
        from hostbot.data.recording import write_recording
        from hostbot.data.sheet import contact_sheet

        source = source_at(self.path, self.fps)
        episodes = list(self.episodes) or _spread(len(source), 6)
        if wrong := [e for e in episodes if not 0 <= e < len(source)]:
            raise BadInput(f"episode {wrong[0]} was asked for, but {source.name} has 0..{len(source) - 1}")
        if not 1 <= self.columns <= 64:
            raise BadInput(f"--columns must be in 1..64, got {self.columns}")
        if self.out.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
            raise BadInput(f"--out must be a .png, .jpg or .webp file, got {self.out}")
        self.out.parent.mkdir(parents=True, exist_ok=True)
        contact_sheet(source, episodes, self.columns).save(self.out)
        print(f"contact sheet: {self.out}")
        if self.recording is not None:
            with progress("recording", len(episodes)) as tick:
                write_recording(source, episodes, self.recording, tick=tick)
            print(f"recording: {self.recording}")


def _spread(total: int, wanted: int) -> list[int]:
    return sorted(set(np.round(np.linspace(0, total - 1, min(total, wanted))).astype(int).tolist()))


@dataclass(frozen=True)
class Check:
    """Verify a LeRobot dataset wholly: every file, row and frame. Exit code 2 if anything is wrong."""

    path: Annotated[Positional[Path], arg(metavar="DATASET")]
    """A LeRobot dataset."""
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Verify and print."""
        from hostbot.data.check import check_dataset

        if not self.path.is_dir():
            raise DataError(f"{self.path} is not a folder; give a LeRobot dataset")
        with progress("checking", 1) as tick:
            report = check_dataset(self.path, progress=lambda _, total: tick(total=total))
        if self.json:
            print_json(asdict(report))
        for problem in report.problems if not self.json else ():
            print(f"problem: {problem}")
        if report.problems:
            raise DataError(f"{self.path} has {len(report.problems)} problem(s)")
        if not self.json:
            print(f"{self.path}: {report.num_episodes} episodes, {report.num_frames} frames, all sound")


@dataclass(frozen=True)
class Repair:
    """Finish what a killed writer had begun, so that other tools too see the dataset whole."""

    path: Annotated[Positional[Path], arg(metavar="DATASET")]
    """A LeRobot dataset that hostbot wrote."""

    def run(self) -> None:
        """Finish the last commit and forget what was never committed."""
        from hostbot.data.check import repair_dataset
        from hostbot.data.store import open_dataset

        repair_dataset(self.path)
        print(f"{self.path}: {len(open_dataset(self.path))} episodes, whole")


@dataclass(frozen=True)
class Join:
    """Put datasets of one kind together, in the order given; videos are taken over untouched."""

    out: Annotated[Positional[Path], arg(metavar="OUT")]
    """A new folder."""
    parts: Annotated[Positional[tuple[Path, ...]], arg(metavar="DATASET")]
    """Two or more LeRobot datasets that hostbot wrote, with the same features, views and rate."""

    def run(self) -> None:
        """Join and say what came out."""
        from hostbot.data.concat import concatenate
        from hostbot.data.store import open_dataset

        with progress("joining", len(self.parts)) as tick:
            concatenate(self.parts, self.out, tick=tick)
        whole = open_dataset(self.out)
        print(f"{self.out}: {len(whole)} episodes, {whole.num_frames} frames")


@dataclass(frozen=True)
class Pairs:
    """Split episodes by seed and pair those of the same task: robot with robot, human with robot."""

    robot: Annotated[Positional[Path], arg(metavar="DATASET")]
    """Robot dataset."""
    human: Annotated[Path | None, arg(metavar="DATASET")] = None
    """Dataset of people's videos."""
    out: Path = Path("split.json")
    """The split file: small, sorted, with a hash; commit it."""
    seed: int = 0
    novel_tasks: float = 0.0
    """Share of tasks held out whole."""
    validation: float = 0.1
    """Share of the other tasks' episodes held out."""
    overwrite: bool = False
    """Replace a split that was made before."""
    fps: Fps = None
    json: bool = False
    """Print one JSON value."""

    def run(self) -> None:
        """Make the split and count its pairs."""
        from hostbot.data.pairs import Body, SplitConfig, make_split, pairs, save_split, unpaired_tasks

        def opened(path: Path) -> EpisodeSource:
            return source_at(path, None if (path / "meta" / "info.json").exists() else self.fps)

        sources: dict[Body, EpisodeSource] = {"robot": opened(self.robot)}
        if self.human is not None:
            sources["human"] = opened(self.human)
        config = SplitConfig(seed=self.seed, novel_tasks=self.novel_tasks, validation=self.validation)
        split = make_split(sources, config)
        save_split(split, self.out, overwrite=self.overwrite)
        counts = [
            {
                "part": part,
                "demonstrations": body,
                "pairs": sum(1 for _ in pairs(split, part, body)),
                "tasks_without_a_pair": unpaired_tasks(split, part, body),
            }
            for part in ("train", "validation", "novel")
            for body in sources
        ]
        if self.json:
            print_json({"split": str(self.out), "digest": split.digest, "pairs": counts})
            return
        rows = [(c["part"], c["demonstrations"], c["pairs"], len(c["tasks_without_a_pair"])) for c in counts]  # type: ignore[arg-type]
        print_table("same-task pairs", ["part", "demonstrations", "pairs", "tasks without a pair"], rows)
        print(f"written to {self.out}")


VERBS = (Info, Convert, Stats, View, Check, Join, Repair, Pairs)

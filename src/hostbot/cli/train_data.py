"""What the verbs of ``hostbot train`` share about data: flags, sources, labels, stores."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from hostbot.cli.show import progress
from hostbot.types import BadInput

if TYPE_CHECKING:
    from hostbot.data.pairs import Body
    from hostbot.train.prepare import Preparation
    from hostbot.types import Camera, EpisodeSource

Preset = Literal["tiny", "wan5b"]


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where samples come from."""

    robot: Path
    """The robot's dataset; its statistics must have been written (hostbot data stats)."""
    vae: Path
    """The VAE: a run of `hostbot train vae`, or Wan2.2's folder."""
    human: Annotated[Path | None, arg(metavar="DATASET")] = None
    """Dataset of human demonstrations."""
    labels: str = "events"
    """A folder of `hostbot align label`; `events`, the truth of the bench's recordings; or `clock`."""
    statistics: Annotated[Path | None, arg(metavar="FILE")] = None
    """Statistics of other recordings of the same robot, which a policy that is gone on with was normalised by."""
    cameras: str = ""
    """`bench`, or a .json of calibrated cameras, for pointing; without it there is no matching."""
    preset: Preset = "tiny"
    """Sizes, rates and augmentation."""
    variant: Literal["full", "progress_window", "clock_window", "whole_video", "release"] = "full"
    """What is coupled: all as in the paper, or one of its ablations."""
    haste: Annotated[float | None, arg(metavar="SHARE")] = None
    """Least pace of coupled targets, as a share of the robot's own; the preset's if not said (tiny 1, wan5b 0)."""
    text: Annotated[Path | None, arg(metavar="DIR")] = None
    """UMT5's folder (wan5b)."""
    demos: int = 2
    """Demonstrations each robot episode is paired with."""
    robot_takes: int = 1
    """Versions of a robot episode; the first as recorded, further ones with their own speed and colours."""
    demo_takes: int = 1
    """Versions of a demonstration."""
    mirror: bool = False
    """Half of all versions left for right, where a task does not say which side; the robot's sides must be alike."""
    states: Annotated[int | None, arg(metavar="N")] = None
    """States drawn of a robot episode for each demonstration; all of them if not said."""
    decisive: float = 0.5
    """Share of those states where it is decided what comes next."""
    workers: int = 0
    """Processes that couple and decode; 0 does it in this one."""
    device: Annotated[str | None, arg(metavar="NAME")] = None
    """cuda or cpu; the first there is."""
    bfloat16: bool | None = None
    """Encode with bfloat16 products: about twice as fast on a GPU; wan5b does unless told otherwise."""
    seed: int = 0


def parse_shard(text: str) -> tuple[int, int]:
    """``2/8`` as (1, 8)."""
    index, _, total = text.partition("/")
    if not (index.isdigit() and total.isdigit() and 1 <= int(index) <= int(total)):
        raise BadInput(f"a shard is written I/N with I from 1 to N, got {text!r}")
    return int(index) - 1, int(total)


def open_sources(data: Data) -> dict[Body, EpisodeSource]:
    """The datasets by body."""
    from hostbot.data.sources import open_source

    sources: dict[Body, EpisodeSource] = {"robot": open_source(data.robot, None)}
    if data.human is not None:
        sources["human"] = open_source(data.human, None)
    return sources


def sample_config(data: Data) -> Any:
    """The preset's way to make samples, with what was asked for."""
    from hostbot.presets import PRESETS, sampling

    config = sampling(PRESETS[data.preset](), data.variant)
    if data.haste is not None:
        if config.couple.targets != "coupled":
            raise BadInput(f"--haste is for coupled targets, and {data.variant!r} has none")
        config = replace(config, couple=replace(config.couple, haste=data.haste))
    return replace(
        config,
        take=replace(config.take, mirror=data.mirror),
        demos=data.demos,
        robot_takes=data.robot_takes,
        demo_takes=data.demo_takes,
        states=data.states,
        decisive=data.decisive,
        seed=data.seed,
    )


def find_cameras(named: str) -> tuple[Camera, ...]:
    """The bench's cameras, those of a file, or none."""
    from hostbot.data.cameras import load_cameras

    if named == "bench":
        from hostbot.sim.cameras import bench_cameras

        return bench_cameras()
    return load_cameras(Path(named)) if named else ()


def preparation(
    data: Data,
    sources: dict[Body, EpisodeSource],
    chosen: Any,
    body: Literal["robot", "human"],
    part: str,
    split: str,
) -> Preparation:
    """Everything a store is made from."""
    from hostbot.data.processes import get_ready

    get_ready(data.workers)
    import torch

    from hostbot.data.stats import load_statistics, statistics_path
    from hostbot.data.wordings import read_wordings
    from hostbot.model.text import HashedWords, TextEncoder, load_umt5
    from hostbot.model.vae import LatentCodec, load_vae
    from hostbot.presets import PRESETS
    from hostbot.train.latents import ClipEncoder
    from hostbot.train.prepare import Preparation, labels_of

    model = PRESETS[data.preset]().model
    device = data.device or ("cuda" if torch.cuda.is_available() else "cpu")
    half = data.preset == "wan5b" if data.bfloat16 is None else data.bfloat16
    words = HashedWords(model.video.text_dim, model.text_length)
    text: TextEncoder = load_umt5(data.text, model.text_length) if data.text else words
    if data.preset == "wan5b" and data.text is None:
        raise BadInput("wan5b reads instructions with UMT5: give its folder with --text")
    labels, labels_name = labels_of(data.labels, sources, body)
    return Preparation(
        sources=sources,
        pairs=chosen,
        labels=labels,
        labels_name=labels_name,
        statistics=load_statistics(data.statistics)
        if data.statistics is not None
        else load_statistics(statistics_path(data.robot), sources["robot"]),
        config=sample_config(data),
        encoder=ClipEncoder(LatentCodec(load_vae(data.vae), device), half),
        text=text,
        part=part,
        split=split,
        cameras=find_cameras(data.cameras),
        wordings=read_wordings(data.robot),
    )


def make_samples(
    work: Preparation, out: Path, workers: int, shard: tuple[int, int], until: float = float("inf")
) -> dict[str, Any]:
    """Plan and encode with a progress bar; figures of what is there."""
    from hostbot.data.processes import get_ready

    get_ready(workers)
    with progress("coupling pairs", len(work.pairs)) as tick:
        store, pieces = work.begin(out, tick=tick, workers=workers)
    begin, clips = time.perf_counter(), 0
    with progress("encoding", len(pieces)) as tick:
        tick(int(store.done.sum()))
        for count in work.go_on(store, pieces, workers, shard):
            clips += count
            tick()
            if time.monotonic() > until:
                break
    seconds = time.perf_counter() - begin
    return {
        "samples": len(store.rows),
        "demonstrations": len(store.takes.episode),
        "instructions": len(store.info.texts),
        "pairs": store.info.num_pairs,
        "pairs_refused": store.info.num_refused,
        "decision_points": round(float(store.rows.decision.mean()), 4),
        "points_seen": round(float(store.rows.seen.any(1).mean()), 4),
        "pieces_done": int(store.done.sum()),
        "pieces": len(pieces),
        "gib": round((store.demo.nbytes + store.clip.nbytes) / 2**30, 3),
        "clips_per_s": round(clips / max(seconds, 1e-9), 1),
    }

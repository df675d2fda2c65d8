"""``hostbot train``: samples from data, the tiny VAE, matching, both stages, fine-tuning."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from hostbot.cli.show import print_json, print_table, progress
from hostbot.types import BadInput

if TYPE_CHECKING:
    from hostbot.data.pairs import Body
    from hostbot.train.loop import Hooks, Outcome
    from hostbot.train.prepare import Preparation
    from hostbot.train.runs import RunOptions
    from hostbot.types import Camera, EpisodeSource

Preset = Literal["tiny", "wan5b"]
ModeName = Literal["single", "ddp", "fsdp", "hsdp"]


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where samples come from."""

    robot: Path
    """The robot's dataset; its statistics must have been written (hostbot data stats)."""
    vae: Path
    """The VAE: a run of `hostbot train vae`, or Wan2.2's folder."""
    human: Path | None = None
    """Dataset of human demonstrations."""
    labels: str = "events"
    """A folder of `hostbot align label`; `events`, the truth of the bench's recordings; or `clock`."""
    cameras: str = ""
    """`bench`, or a .json of calibrated cameras, for pointing; without it there is no matching."""
    preset: Preset = "tiny"
    """Sizes, rates and augmentation."""
    variant: Literal["full", "progress_window", "clock_window", "whole_video", "release"] = "full"
    """What is coupled: all as in the paper, or one of its ablations."""
    text: Path | None = None
    """UMT5's folder (wan5b)."""
    demos: int = 2
    """Demonstrations each robot episode is paired with."""
    robot_takes: int = 1
    """Versions of a robot episode; the first as recorded, further ones with their own speed and colours."""
    demo_takes: int = 1
    """Versions of a demonstration."""
    states: int | None = None
    """States drawn of a robot episode for each demonstration; all of them if not said."""
    workers: int = 0
    """Processes that decode; 0 decodes in this one."""
    device: str | None = None
    """cuda or cpu; the first there is."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Samples(Data):
    """Couple, encode and store training samples; run it again to go on."""

    split: Path
    """A split (hostbot data pairs)."""
    out: Path
    """The store to write."""
    part: Literal["train", "validation"] = "train"
    """Which part of the split; novel tasks are never trained on."""
    body: Literal["robot", "human"] = "robot"
    """Who demonstrates: robots in stage 1, humans in stage 2."""
    shard: str = "1/1"
    """I/N: do the I-th of N shares of the work, on a machine of its own."""
    minutes: float = float("inf")
    """Stop cleanly after so many minutes."""
    json: bool = False
    """Print figures as JSON."""

    def run(self) -> None:
        """Plan, then encode what is missing."""
        from hostbot.data.pairs import load_split, pairs
        from hostbot.data.plan import choose_pairs

        until = time.monotonic() + 60 * self.minutes
        sources = open_sources(self)
        split = load_split(self.split, sources)
        config = sample_config(self)
        chosen = choose_pairs(pairs(split, self.part, self.body), config)
        work = preparation(self, sources, chosen, self.body, self.part, split.digest)
        figures = make_samples(work, self.out, self.workers, parse_shard(self.shard), until)
        if self.json:
            print_json(figures)
        else:
            print_table(str(self.out), ["", ""], list(figures.items()))


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

    return replace(
        sampling(PRESETS[data.preset](), data.variant),
        demos=data.demos,
        robot_takes=data.robot_takes,
        demo_takes=data.demo_takes,
        states=data.states,
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
    import torch

    from hostbot.data.stats import load_statistics, statistics_path
    from hostbot.model.text import HashedWords, TextEncoder, load_umt5
    from hostbot.model.vae import LatentCodec, load_vae
    from hostbot.presets import PRESETS
    from hostbot.train.latents import ClipEncoder
    from hostbot.train.prepare import Preparation, labels_of

    model = PRESETS[data.preset]().model
    device = data.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device != "cpu" and data.preset == "wan5b" else torch.float32
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
        statistics=load_statistics(statistics_path(data.robot), sources["robot"]),
        config=sample_config(data),
        encoder=ClipEncoder(LatentCodec(load_vae(data.vae), device, dtype)),
        text=text,
        part=part,
        split=split,
        cameras=find_cameras(data.cameras),
    )


def make_samples(
    work: Preparation, out: Path, workers: int, shard: tuple[int, int], until: float = float("inf")
) -> dict[str, Any]:
    """Plan and encode with a progress bar; figures of what is there."""
    with progress("coupling pairs", len(work.pairs)) as tick:
        store, pieces = work.begin(out, clips=256, tick=tick)
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


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What every training verb takes."""

    out: Path
    """The run's folder."""
    resume: bool = False
    """Go on with the run that is there."""
    steps: int | None = None
    """Steps in all; the preset's if not said. May be raised for a run that is gone on with."""
    batch: int | None = None
    """Samples a step, all ranks together."""
    micro: int | None = None
    """Samples of a micro-batch; a rank computes batch / micro / ranks of them a step."""
    lr: float | None = None
    """Peak learning rate."""
    minutes: float = float("inf")
    """Stop by itself after so many minutes, with a checkpoint; --resume goes on."""
    mode: ModeName = "single"
    """One process; or ddp, fsdp, hsdp under torchrun."""
    device: str | None = None
    """cuda or cpu; the first there is."""
    seed: int = 0
    save_every: int | None = None
    """Steps between checkpoints."""
    log_every: int | None = None
    """Steps between lines of the log."""
    validate_every: int = 0
    """Steps between validations; 0: none."""
    compile: bool | None = None
    """Fuse layers (GPU only); the preset's if not said."""
    tensorboard: bool = False
    """Write TensorBoard files besides the JSON lines."""
    json: bool = False
    """Print figures as JSON."""


def train_config(loop: Loop, base: Any) -> Any:
    """The preset's settings with what was asked for."""
    optim = base.optim if loop.lr is None else replace(base.optim, lr=loop.lr)
    named = ("steps", "batch", "micro", "save_every", "log_every", "compile")
    given = {name: value for name in named if (value := getattr(loop, name)) is not None}
    if "batch" in given and "micro" not in given:
        given["micro"] = min(base.micro, given["batch"])
    return replace(base, **given, optim=optim, seed=loop.seed, validate_every=loop.validate_every)


def run_options(loop: Loop, hooks: Hooks, **more: Any) -> RunOptions:
    """What does not change the outcome."""
    from hostbot.train.runs import RunOptions

    return RunOptions(
        out=loop.out,
        resume=loop.resume,
        mode=loop.mode,
        device=loop.device,
        minutes=loop.minutes,
        tensorboard=loop.tensorboard,
        hooks=hooks,
        **more,
    )


@contextmanager
def shown(what: str, total: int) -> Iterator[Hooks]:
    """A bar with rate and time left on the first rank, and warnings as they come."""
    import os
    import sys

    from hostbot.train.loop import Hooks

    if os.environ.get("RANK", "0") != "0":
        yield Hooks()
        return
    at = [0]
    with progress(what, total) as tick:

        def on_step(step: int) -> None:
            tick(step - at[0])
            at[0] = step

        yield Hooks(on_step=on_step, on_warning=lambda said: print(f"hostbot: {said}", file=sys.stderr))


def tell(outcome: Outcome, folder: Path, run: Path, as_json: bool) -> None:
    """How it ended, with the last line of the log."""
    import os
    import signal

    from hostbot.train.log import read_log

    if os.environ.get("RANK", "0") == "0":
        lines = read_log(run / "log.jsonl") if (run / "log.jsonl").exists() else []
        last: Mapping[str, Any] = lines[-1] if lines else {}
        if as_json:
            print_json(
                {"step": outcome.step, "finished": outcome.finished, "wrote": str(folder), "last": last}
            )
        else:
            print_table(f"step {outcome.step}", ["", ""], [(k, v) for k, v in last.items() if k != "step"])
            print(f"wrote {folder}" + ("" if outcome.finished else f"; go on with --resume --out {run}"))
    if outcome.signal == signal.SIGINT:
        raise KeyboardInterrupt(f"step {outcome.step} is saved, --resume goes on")


@dataclass(frozen=True, kw_only=True)
class Vae(Loop):
    """Train the tiny VAE on frames of datasets; leaves OUT/vae."""

    data: tuple[Path, ...]
    """Datasets, robot and human."""
    clips: int = 20_000
    """Clips drawn from them, kept in OUT/clips.npy."""

    def run(self) -> None:
        """Collect, train, export."""
        from hostbot.data.sources import open_source
        from hostbot.data.stats import fingerprint
        from hostbot.presets import tiny, training
        from hostbot.train.vae import VaeRun, train_vae

        sources = [open_source(path, None) for path in self.data]
        config = VaeRun(
            train=train_config(self, training("tiny", "vae")),
            size=tiny().data.image_size,
            fingerprints=tuple(map(fingerprint, sources)),
            clips=self.clips,
        )
        with shown("training the VAE", config.train.steps) as hooks:
            outcome, folder = train_vae(config, sources, run_options(self, hooks))
        tell(outcome, folder, self.out, self.json)


@dataclass(frozen=True, kw_only=True)
class Learning(Loop):
    """What matching, both stages and fine-tuning take."""

    source: Annotated[Path | None, arg(name="from", metavar="RUN")] = None
    """Start from these weights: a run, a policy, or a checkpoint of `hostbot model init`."""
    preset: Preset = "tiny"
    """Sizes and settings."""
    optimiser: Literal["adamw", "muon"] | None = None
    """AdamW as in the paper, or Muon for the blocks' matrices."""
    shared: int = 1
    """Samples that share one window of one demonstration."""
    point: float | None = None
    """Weight of pointing at the next contact."""
    place: Literal["auto", "device", "disk"] = "auto"
    """Where latents lie while training: in the GPU's memory if they fit, or read from the disk."""


def learn(
    verb: Learning,
    stage: Literal["match", "1", "2", "sft"],
    samples: tuple[Path, ...],
    *,
    weights: tuple[float, ...] = (),
    validation: tuple[Path, ...] = (),
    vae: Path | None = None,
    rank: int | None = None,
    draw: Mapping[str, Any] | None = None,
) -> None:
    """Train a policy's stage and tell."""
    from hostbot.presets import PRESETS, drawing, training, weighting
    from hostbot.train.lora import LoraConfig
    from hostbot.train.runs import RunConfig, train_policy

    train = train_config(verb, training(verb.preset, stage))
    if verb.optimiser is not None:
        train = replace(train, optim=replace(train.optim, kind=verb.optimiser))
    if verb.source is None and verb.preset == "wan5b":
        raise BadInput("wan5b starts from Wan's weights: make them with `hostbot model init` and give --from")
    losses = weighting(verb.preset, stage)
    config = RunConfig(
        name=verb.preset,
        model=PRESETS[verb.preset]().model,
        train=train,
        draw=replace(drawing(verb.preset, stage, train.micro), shared=verb.shared, **(draw or {})),
        weights=losses if verb.point is None else replace(losses, point=verb.point),
        samples=tuple(str(path.resolve()) for path in samples),
        shares=weights,
        source="" if verb.source is None else str(verb.source.resolve()),
        lora=None if rank is None else LoraConfig(rank=rank, alpha=float(rank)),
    )
    what = {"match": "matching", "1": "stage 1", "2": "stage 2", "sft": "fine-tuning"}[stage]
    with shown(what, train.steps) as hooks:
        options = run_options(verb, hooks, validation=validation, vae=vae, place=verb.place)
        outcome, folder = train_policy(config, options)
    tell(outcome, folder, verb.out, verb.json)


@dataclass(frozen=True, kw_only=True)
class Stored(Learning):
    """What verbs that train on stores take."""

    samples: tuple[Path, ...]
    """Stores of `hostbot train samples`."""
    weights: tuple[float, ...] = ()
    """How often each store is drawn from; as often as it has samples if not said."""
    validation: tuple[Path, ...] = ()
    """Stores of held-out samples."""
    vae: Path | None = None
    """The VAE the samples were made with, for pictures of predictions and for the exported policy."""


@dataclass(frozen=True, kw_only=True)
class Match(Stored):
    """Learn to point at the next contact in the robot's own view: which object is the demonstrated one."""

    def run(self) -> None:
        """Train and export."""
        learn(self, "match", self.samples, weights=self.weights, validation=self.validation, vae=self.vae)


@dataclass(frozen=True, kw_only=True)
class Policy(Stored):
    """Train the policy: stage 1 on robot demonstrations, stage 2 on human ones."""

    stage: Literal[1, 2] = 1
    """The stages share everything but their data and their length."""
    demo_dropout: float = 0.5
    """How often there is no demonstration."""
    text_dropout: float = 0.0
    """How often there is a demonstration but no instruction."""
    decisions: float | None = None
    """Share of samples drawn from decision points."""

    def run(self) -> None:
        """Train and export."""
        draw: dict[str, float] = {"demo_dropout": self.demo_dropout, "text_dropout": self.text_dropout}
        if self.decisions is not None:
            draw["decisions"] = self.decisions
        stage: Literal["1", "2"] = "1" if self.stage == 1 else "2"
        learn(
            self,
            stage,
            self.samples,
            weights=self.weights,
            validation=self.validation,
            vae=self.vae,
            draw=draw,
        )


@dataclass(frozen=True, kw_only=True)
class Sft(Learning):
    """Fine-tune on a few demonstrations of one task, all weights or low-rank changes of them."""

    robot: Path
    """The robot's dataset; its statistics must have been written."""
    vae: Path
    """The VAE of the policy that is fine-tuned."""
    task: str
    """The task's instruction, as the dataset has it."""
    demonstrations: int = 10
    """Robot episodes of the task that are used: the first so many."""
    lora: int | None = None
    """Rank of the change; all weights are trained if it is not given."""
    demo_dropout: float = 1.0
    """How often there is no demonstration; 1 is fine-tuning on the instruction alone."""
    workers: int = 0
    """Processes that decode."""
    text: Path | None = None
    """UMT5's folder (wan5b)."""

    def run(self) -> None:
        """Make samples of the chosen episodes, then train on them."""
        from hostbot.data.pairs import Pair, task_key

        if self.source is None:
            raise BadInput("fine-tuning starts from a trained policy: give --from")
        data = Data(
            robot=self.robot,
            vae=self.vae,
            labels="clock",
            preset=self.preset,
            text=self.text,
            device=self.device,
        )
        sources = open_sources(data)
        robot, wanted = sources["robot"], task_key(self.task)
        found = [i for i in range(len(robot)) if task_key(robot.episode(i).instruction) == wanted]
        if len(found) < self.demonstrations:
            raise BadInput(
                f"{robot.name} has {len(found)} episodes of {self.task!r}, {self.demonstrations} were asked for"
            )
        used = found[: self.demonstrations]
        others = [(a, b) for a in used for b in used if a != b or len(used) == 1]
        chosen = [Pair(task=wanted, demo_body="robot", demo=b, robot=a) for a, b in others]
        chosen = list({pair.robot: pair for pair in chosen}.values())
        work = preparation(data, sources, chosen, "robot", "train", "")
        store = self.out / "samples"
        make_samples(work, store, self.workers, (0, 1))
        learn(self, "sft", (store,), vae=self.vae, rank=self.lora, draw={"demo_dropout": self.demo_dropout})


VERBS: tuple[type, ...] = (Samples, Vae, Match, Policy, Sft)

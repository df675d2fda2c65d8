"""``hostbot train``: samples from data, the tiny VAE, matching, both stages, fine-tuning."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from hostbot.cli.show import print_json, print_table
from hostbot.cli.train_data import (
    Data,
    make_samples,
    open_sources,
    parse_shard,
    preparation,
    sample_config,
)
from hostbot.cli.train_loop import Learning, Loop, learn, run_options, shown, tell, train_config
from hostbot.types import BadInput


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
        from hostbot.data.sampling import choose_pairs

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


@dataclass(frozen=True, kw_only=True)
class Vae(Loop):
    """Train the tiny VAE on frames of datasets; leaves OUT/vae."""

    data: tuple[Path, ...]
    """Datasets, robot and human."""
    clips: int = 20_000
    """Clips drawn from them, kept in OUT/clips.npy."""
    focus: float = 1.0
    """How much more a pixel counts that stands out from those around it, as small things do."""
    chroma: float = 0.0
    """How much more an error in colour counts than one in brightness; 3 keeps more of what tells things apart."""
    channels: int = 16
    """Numbers of a latent."""
    width: int = 16
    """Channels of the encoder's first stage."""
    decoder_width: int = 24
    growth: tuple[int, int, int] = (1, 2, 2)
    """Widths of the three stages, as multiples of the first."""
    fine: bool = False
    """Latents at a quarter of a view's side instead of an eighth."""
    source: Annotated[Path | None, arg(name="from", metavar="DIR")] = None
    """Start from this VAE, and keep its shape, instead of from nothing."""
    workers: int = 0
    """Processes that decode clips; 0 decodes in this one."""

    def run(self) -> None:
        """Collect, train, export."""
        from hostbot.data.sources import open_source
        from hostbot.data.stats import fingerprint
        from hostbot.model.vae import VaeShape
        from hostbot.presets import tiny, training
        from hostbot.train.vae import VaeRun, train_vae

        shape = VaeShape(
            channels=self.channels,
            width=self.width,
            decoder_width=self.decoder_width,
            growth=self.growth,
            fine=self.fine,
        )
        if self.source is not None and shape != VaeShape():
            raise BadInput("a VAE that is gone on from keeps its shape: leave its sizes out, or --from")
        sources = [open_source(path, None) for path in self.data]
        config = VaeRun(
            train=train_config(self, training("tiny", "vae")),
            size=tiny().data.image_size,
            fingerprints=tuple(map(fingerprint, sources)),
            clips=self.clips,
            focus=self.focus,
            chroma=self.chroma,
            shape=shape,
            source="" if self.source is None else str(self.source.resolve()),
        )
        with shown("training the VAE", config.train.steps) as hooks:
            outcome, folder = train_vae(config, sources, run_options(self, hooks), workers=self.workers)
        tell(outcome, folder, self.out, self.json)


@dataclass(frozen=True, kw_only=True)
class Stored(Learning):
    """What verbs that train on stores take."""

    samples: tuple[Path, ...]
    """Stores of `hostbot train samples`."""
    weights: tuple[float, ...] = ()
    """How often each store is drawn from; as often as it has samples if not said."""
    more: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder below which further stores may come while it learns; each joins once it is whole. Without --weights."""
    at_least: int = 0
    """Samples to wait for before the first step, where more are to come; layers are fused meanwhile."""
    export_often: bool = False
    """Leave OUT/policy at every checkpoint, for whoever wants to try it meanwhile."""
    validation: tuple[Path, ...] = ()
    """Stores of held-out samples."""
    vae: Annotated[Path | None, arg(metavar="DIR")] = None
    """The VAE the samples were made with, for pictures of predictions and for the exported policy."""


@dataclass(frozen=True, kw_only=True)
class Match(Stored):
    """Learn to point at the next contact in the robot's own view: which object is the demonstrated one."""

    text_dropout: float = 0.5
    """How often there is no instruction: the video alone must be enough."""
    one_view: float = 0.3
    """How often only one view of a demonstration is shown, of those that have more."""
    sight: tuple[str, ...] = ()
    """The robot's views that are looked at, by name, for fewer tokens; all if not said."""
    exchange: bool = False
    """Any robot with any demonstration of the same instruction; for samples made with --states 1, such as drills."""
    shift: int = 0
    """Latents by which pictures are moved at most, across and down, so that they are not learned by heart."""
    pair: float = 0.0
    """How much it counts to find the place by comparing tokens halfway through the layers, too; 1 is as much."""

    def run(self) -> None:
        """Train and export."""
        draw = {
            "text_dropout": self.text_dropout,
            "one_view": self.one_view,
            "exchange": self.exchange,
            "shift": self.shift,
        }
        learn(
            self,
            "match",
            self.samples,
            weights=self.weights,
            validation=self.validation,
            vae=self.vae,
            more=self.more,
            at_least=self.at_least,
            export_often=self.export_often,
            draw=draw,
            sight=self.sight,
            pair=self.pair,
        )


@dataclass(frozen=True, kw_only=True)
class Policy(Stored):
    """Train the policy: stage 1 on robot demonstrations, stage 2 on human ones."""

    stage: Literal[1, 2] = 1
    """The stages share everything but their data and their length."""
    demo_dropout: float = 0.5
    """How often there is no demonstration."""
    text_dropout: float = 0.0
    """How often there is a demonstration but no instruction."""
    misled: float = 0.0
    """How often there is a demonstration, and an instruction drawn at random: what is shown counts, not what is
    said."""
    one_view: float = 0.3
    """How often only one view of a demonstration is shown, of those that have more."""
    decisions: Annotated[float | None, arg(metavar="SHARE")] = None
    """Share of samples drawn from decision points."""
    drills: tuple[Path, ...] = ()
    """Stores of sketched drills from which pointing alone is learned, so that it is not forgotten."""
    drill_share: float = 0.25
    """Share of steps that are drills, where there are any."""
    shift: int = 0
    """Latents by which pictures are moved at most, across and down: a scene is then not always seen alike."""

    def run(self) -> None:
        """Train and export."""
        draw: dict[str, float] = {
            "demo_dropout": self.demo_dropout,
            "text_dropout": self.text_dropout,
            "misled": self.misled,
            "one_view": self.one_view,
            "shift": self.shift,
        }
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
            more=self.more,
            at_least=self.at_least,
            export_often=self.export_often,
            draw=draw,
            drills=self.drills,
            drill_share=self.drill_share,
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
    lora: Annotated[int | None, arg(metavar="RANK")] = None
    """Rank of the change; all weights are trained if it is not given."""
    demo_dropout: float = 1.0
    """How often there is no demonstration; 1 is fine-tuning on the instruction alone."""
    workers: int = 0
    """Processes that decode."""
    text: Annotated[Path | None, arg(metavar="DIR")] = None
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

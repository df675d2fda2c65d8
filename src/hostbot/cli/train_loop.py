"""What the verbs of ``hostbot train`` share about the loop: flags, settings, progress, the end."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from hostbot.cli.show import print_json, print_table, progress
from hostbot.cli.train_data import Preset
from hostbot.cli.train_rollouts import rollout_check
from hostbot.types import BadInput

if TYPE_CHECKING:
    from hostbot.train.contract import Hooks, Outcome
    from hostbot.train.runs import DrillConfig, RunOptions

ModeName = Literal["single", "ddp", "fsdp", "hsdp"]


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What every training verb takes."""

    out: Path
    """The run's folder."""
    resume: bool = False
    """Go on with the run that is there."""
    steps: Annotated[int | None, arg(metavar="N")] = None
    """Steps in all; the preset's if not said. May be raised for a run that is gone on with."""
    batch: Annotated[int | None, arg(metavar="N")] = None
    """Samples a step, all ranks together."""
    micro: Annotated[int | None, arg(metavar="N")] = None
    """Samples of a micro-batch; a rank computes batch / micro / ranks of them a step."""
    lr: Annotated[float | None, arg(metavar="RATE")] = None
    """Peak learning rate."""
    minutes: float = float("inf")
    """Stop by itself after so many minutes, with a checkpoint; --resume goes on."""
    fit: bool = False
    """Choose --steps by the pace of the first ones, so that the learning rate has decayed when --minutes are over."""
    mode: ModeName = "single"
    """One process; or ddp, fsdp, hsdp under torchrun."""
    device: Annotated[str | None, arg(metavar="NAME")] = None
    """cuda or cpu; the first there is."""
    seed: int = 0
    save_every: Annotated[int | None, arg(metavar="STEPS")] = None
    """Steps between checkpoints."""
    log_every: Annotated[int | None, arg(metavar="STEPS")] = None
    """Steps between lines of the log."""
    validate_every: int = 0
    """Steps between validations; 0: none."""
    precision: Literal["float32", "bfloat16"] | None = None
    """Of products; weights and moments are float32 always."""
    checkpointing: bool | None = None
    """Compute blocks again in the backward pass instead of keeping their activations."""
    compile: bool | None = None
    """Fuse layers (GPU only); the preset's if not said."""
    tensorboard: bool = False
    """Write TensorBoard files besides the JSON lines."""
    json: bool = False
    """Print figures as JSON."""


def train_config(loop: Loop, base: Any) -> Any:
    """The preset's settings with what was asked for."""
    optim = base.optim if loop.lr is None else replace(base.optim, lr=loop.lr)
    named = ("steps", "batch", "micro", "save_every", "log_every", "precision", "checkpointing", "compile")
    given = {name: value for name in named if (value := getattr(loop, name)) is not None}
    if "batch" in given and "micro" not in given:
        # A preset that takes its batch whole takes another one whole, too.
        given["micro"] = given["batch"] if base.micro == base.batch else math.gcd(base.micro, given["batch"])
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
        fit=loop.fit,
        tensorboard=loop.tensorboard,
        hooks=hooks,
        **more,
    )


@contextmanager
def shown(what: str, total: int) -> Iterator[Hooks]:
    """A bar with rate and time left on the first rank, and warnings as they come."""
    from hostbot.train.contract import Hooks

    if os.environ.get("RANK", "0") != "0":
        yield Hooks()
        return
    at = [0]
    with progress(what, total) as tick:

        def on_step(step: int) -> None:
            tick(step - at[0])
            at[0] = step

        def say(sentence: str) -> None:
            print(f"hostbot: {sentence}", file=sys.stderr)

        yield Hooks(
            on_step=on_step, on_warning=say, on_steps=lambda steps: say(f"{steps:,} steps fit into the time")
        )


def tell(outcome: Outcome, folder: Path, run: Path, as_json: bool) -> None:
    """How it ended, with the last line of the log."""
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
class Learning(Loop):
    """What matching, both stages and fine-tuning take."""

    source: Annotated[Path | None, arg(name="from", metavar="RUN")] = None
    """Start from these weights: a run, a policy, or a checkpoint of `hostbot model init`."""
    preset: Preset = "tiny"
    """Sizes and settings."""
    patch: Annotated[int | None, arg(metavar="N")] = None
    """Latents along a token's side; the preset's if not said. 1 sees finer, with four times the tokens of 2."""
    stem: Annotated[int | None, arg(metavar="CHANNELS")] = None
    """Convolutions over what is seen, before it is cut into tokens; 0: none. As the weights have it that are started
    from, or the preset, if not said; weights without can be given one."""
    optimiser: Literal["adamw", "muon"] | None = None
    """AdamW as in the paper, or Muon for the blocks' matrices."""
    shared: int = 1
    """Samples that share one window of one demonstration."""
    point: Annotated[float | None, arg(metavar="WEIGHT")] = None
    """Weight of pointing at the next contact."""
    rollouts: int = 0
    """Training tasks tried in the bench at each validation, in scenes never recorded; needs --vae."""
    rollout_size: int = 96
    """Height and width at which those scenes are drawn, as the recordings were."""
    place: Literal["auto", "device", "disk"] = "auto"
    """Where latents lie while training: in the GPU's memory if they fit, or read from the disk."""
    graphs: bool = False
    """Replay a step's passes as CUDA graphs, for models so small that launching kernels takes longest."""
    run_ahead: bool = False
    """With --graphs: begin a step before the figures of the last one are known, so that the GPU need not wait."""


def _model(verb: Learning, samples: Path) -> Any:
    """The preset's model for latents of the shape that the samples have."""
    from hostbot.data.samples import Store
    from hostbot.model.checkpoint import read_manifest
    from hostbot.presets import PRESETS
    from hostbot.train.export import model_folder

    model = PRESETS[verb.preset]().model
    grid, (channels, height, width) = model.grid, Store(samples).info.latent
    grid = replace(
        grid,
        latent_channels=channels,
        view_height=height // grid.num_views,
        view_width=width,
        patch=grid.patch if verb.patch is None else verb.patch,
    )
    stem = verb.stem
    if stem is None and verb.source is not None:
        stem = int(read_manifest(model_folder(verb.source))["config"].get("stem", 0))
    return replace(model, grid=grid, stem=model.stem if stem is None else stem)


def _sight(names: tuple[str, ...], samples: Path) -> tuple[int, ...]:
    """Where the named views stand among the robot's."""
    from hostbot.data.samples import Store

    views = Store(samples).config.embodiment.views
    unknown = [name for name in names if name not in views]
    if unknown:
        raise BadInput(f"the robot has no view {unknown[0]!r}, only {', '.join(views)}")
    return tuple(sorted({views.index(name) for name in names}))


def _drills(micro: int, shared: int, drills: tuple[Path, ...], share: float) -> DrillConfig | None:
    """Drills with the settings they were first learned with, looked at in the view that people's videos have."""
    from hostbot.presets import drilling
    from hostbot.train.runs import DrillConfig

    if not 0 < share < 1 and (drills or share != 0):
        raise BadInput(f"drills are a share of the steps between 0 and 1, got {share:g}")
    if not drills:
        return None
    draw, weights = drilling(micro, shared)
    return DrillConfig(
        samples=tuple(str(path.resolve()) for path in drills), share=share, draw=draw,
        weights=replace(weights, sight=_sight(("third_person",), drills[0])),
    )  # fmt: skip


def learn(
    verb: Learning,
    stage: Literal["match", "1", "2", "sft"],
    samples: tuple[Path, ...],
    *,
    weights: tuple[float, ...] = (),
    validation: tuple[Path, ...] = (),
    vae: Path | None = None,
    more: Path | None = None,
    at_least: int = 0,
    export_often: bool = False,
    rank: int | None = None,
    draw: Mapping[str, Any] | None = None,
    sight: tuple[str, ...] = (),
    pair: float = 0.0,
    drills: tuple[Path, ...] = (),
    drill_share: float = 0.0,
) -> None:
    """Train a policy's stage and tell."""
    from hostbot.presets import drawing, training, weighting
    from hostbot.train.lora import LoraConfig
    from hostbot.train.runs import RunConfig, train_policy

    train = train_config(verb, training(verb.preset, stage))
    if verb.optimiser is not None:
        train = replace(train, optim=replace(train.optim, kind=verb.optimiser))
    if verb.source is None and verb.preset == "wan5b":
        raise BadInput("wan5b starts from Wan's weights: make them with `hostbot model init` and give --from")
    losses = replace(weighting(verb.preset, stage), pair=pair)
    if sight:
        losses = replace(losses, sight=_sight(sight, samples[0]))
    config = RunConfig(
        name=verb.preset,
        model=_model(verb, samples[0]),
        train=train,
        draw=replace(drawing(verb.preset, stage, train.micro), shared=verb.shared, **(draw or {})),
        weights=losses if verb.point is None else replace(losses, point=verb.point),
        samples=tuple(str(path.resolve()) for path in samples),
        shares=weights,
        source="" if verb.source is None else str(verb.source.resolve()),
        lora=None if rank is None else LoraConfig(rank=rank, alpha=float(rank)),
        drills=_drills(train.micro, verb.shared, drills, drill_share),
    )
    what = {"match": "matching", "1": "stage 1", "2": "stage 2", "sft": "fine-tuning"}[stage]
    with shown(what, train.steps) as hooks:
        check = rollout_check(verb.out, verb.rollouts, verb.rollout_size) if verb.rollouts else None
        options = run_options(
            verb,
            hooks,
            validation=validation,
            vae=vae,
            more=more,
            at_least=at_least,
            export_often=export_often,
            place=verb.place,
            check=check,
            graphs=verb.graphs,
            run_ahead=verb.run_ahead,
        )
        outcome, folder = train_policy(config, options)
    tell(outcome, folder, verb.out, verb.json)

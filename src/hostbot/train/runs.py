"""A run from its settings to its policy: model, samples, ranks, loop, export."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from hostbot.config import provenance, read_json, to_dict, write_json
from hostbot.data.batches import DrawConfig, Mixture, Pool
from hostbot.data.growing import Growing
from hostbot.data.samples import Store, StoreInfo
from hostbot.model.checkpoint import empty_model
from hostbot.model.host import HostConfig, HostModel
from hostbot.model.vae import LatentCodec, load_vae
from hostbot.policy.bundle import PolicySpec, find_text_encoder
from hostbot.policy.policy import Policy as Acting
from hostbot.train.checkpoint import steps_of
from hostbot.train.compiled import compile_checked
from hostbot.train.config import Mode, TrainConfig
from hostbot.train.contract import Hooks, Outcome, Stage
from hostbot.train.distributed import World, distribute, joined
from hostbot.train.evaluate import validator
from hostbot.train.export import export, load_head, load_model, spec_of
from hostbot.train.graphs import graphs_checked
from hostbot.train.loop import Trainer
from hostbot.train.lora import LoraConfig, adapt
from hostbot.train.prepare import read_texts
from hostbot.train.stages import Drills, LossWeights, Policy, PolicyStage
from hostbot.types import BadInput

B = TypeVar("B")
_MAY_CHANGE = ("steps", "log_every", "save_every", "keep", "validate_every")
_OWN_SHARE = 0.5
"""Of free device memory that samples may take."""


@dataclass(frozen=True, kw_only=True)
class DrillConfig:
    """Drills among a policy's steps, so that it does not forget to look for what is shown."""

    samples: tuple[str, ...]
    share: float
    """Of all steps."""
    draw: DrawConfig
    weights: LossWeights


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What decides a run's outcome; ``RUN/config.json``."""

    name: str
    model: HostConfig
    train: TrainConfig
    draw: DrawConfig
    weights: LossWeights
    samples: tuple[str, ...]
    shares: tuple[float, ...]
    """How often each store is drawn from."""
    source: str = ""
    """Weights it starts from; empty: drawn from the seed."""
    lora: LoraConfig | None = None
    drills: DrillConfig | None = None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What does not change the outcome."""

    out: Path
    resume: bool = False
    mode: Mode = "single"
    device: str | None = None
    minutes: float = float("inf")
    """Of everything since ``begun``: samples that are read and layers that are fused count, too."""
    fit: bool = False
    """As many steps as the minutes allow."""
    begun: float = field(default_factory=time.monotonic)
    graphs: bool = False
    """Replay a step's passes as CUDA graphs."""
    run_ahead: bool = False
    """With graphs: begin a step before the figures of the last one are known."""
    more: Path | None = None
    """Folder below which further stores may come while it learns; what joined when is in ``RUN/joined.jsonl``."""
    at_least: int = 0
    """Samples that are waited for before the first step; layers are fused meanwhile."""
    export_often: bool = False
    """Leave the policy at every checkpoint, not at the end alone."""
    validation: tuple[Path, ...] = ()
    vae: Path | None = None
    tensorboard: bool = False
    place: Literal["auto", "device", "disk"] = "auto"
    hooks: Hooks = field(default_factory=Hooks)
    check: Callable[[Acting, int], dict[str, float]] | None = None
    """More figures at a validation, rollouts for example, of a policy made from the weights as they are then."""


def claim(run: Path, config: object, resume: bool) -> None:
    """Note what a run is, or refuse to go on with another one; what may differ is how long and how often."""
    path, now = run / "config.json", to_dict(config)
    if steps_of(run):  # a run that failed before its first checkpoint has nothing to lose
        if not resume:
            raise BadInput(f"{run} holds a run already: give --resume to go on with it, or another --out")
        before = _filled(config, read_json(path))
        differing = [k for k in now if _settings(now)[k] != _settings(before).get(k)]
        if differing:
            raise BadInput(
                f"{run} was begun with other settings ({', '.join(differing)}); use those to go on"
            )
    elif resume and not path.exists():
        raise BadInput(f"{run} holds no run to go on with: leave --resume out to begin one")
    run.mkdir(parents=True, exist_ok=True)
    write_json(path, now)
    write_json(run / "run.json", provenance())


def claim_together(run: Path, config: object, resume: bool, world: World) -> None:
    """``claim`` by the first rank, its refusal told to all."""
    error = None
    if world.is_main:
        try:
            claim(run, config, resume)
        except (BadInput, OSError) as reason:
            error = str(reason)
    if (told := world.first_error(error)) is not None:
        raise BadInput(told)


def _filled(config: object, before: dict[str, Any]) -> dict[str, Any]:
    """What a run was begun with, settings that came later at their defaults: that is what it was made with."""
    found = dict(before)
    for one in fields(config) if is_dataclass(config) else ():
        value = getattr(config, one.name)
        if one.name not in found and one.default is not MISSING:
            found[one.name] = one.default
        elif is_dataclass(value) and isinstance(found.get(one.name), dict):
            found[one.name] = _filled(value, found[one.name])
    return found


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    """A config without what may change, as JSON has it."""
    plain: dict[str, Any] = json.loads(json.dumps(values))
    plain["train"] = {k: v for k, v in plain.get("train", {}).items() if k not in _MAY_CHANGE}
    return plain


def open_pools(
    folders: Sequence[str | Path], world: World, place: str, draw_from: Sequence[float]
) -> tuple[Mixture, list[Store], str]:
    """Stores made ready to be drawn from; they must agree on everything the model must know."""
    stores = [Store(Path(folder)).whole() for folder in folders]
    texts = [read_texts(store) for store in stores]
    for store, (_, identity) in zip(stores, texts, strict=True):
        _check_alike(store, identity, stores[0], texts[0][1])
    size = sum(store.demo.nbytes + store.clip.nbytes for store in stores)
    resident = place == "device" or (place == "auto" and _fits(size, world))
    pools = [Pool(s, t, world.device, resident) for s, (t, _) in zip(stores, texts, strict=True)]
    shares = draw_from or [float(len(pool)) for pool in pools]
    return Mixture(pools=pools, weights=shares), stores, texts[0][1]


def _check_alike(store: Store, identity: str, first: Store, wanted: str) -> None:
    """Refuse samples that were not made as those of the rest of the run."""
    if _essence(store.info) != _essence(first.info):
        raise BadInput(
            f"{store.folder} and {first.folder} were made with another VAE, statistics, coupling or robot: "
            "samples of one run must agree on them"
        )
    if identity != wanted:
        raise BadInput(f"{store.folder} was read by {identity}, {first.folder} by {wanted}")


def _growing(
    samples: Mixture, first: Store, text: str, options: RunOptions, config: RunConfig, world: World
) -> Growing:
    """Samples to which further stores may come."""
    assert options.more is not None
    if world.mode != "single":
        raise BadInput("samples that come while a run learns are for one process: leave --more or --mode out")
    if not options.more.is_dir():
        raise BadInput(f"{options.more} is no folder: give the one below which more samples are to come")
    if config.shares:
        raise BadInput("samples that come while a run learns are drawn alike: leave --more or --weights out")

    def opened(folder: Path) -> Pool:
        store = Store(folder).whole()
        texts, identity = read_texts(store)
        _check_alike(store, identity, first, text)
        return Pool(store, texts, world.device, samples.pools[0].resident)

    return Growing(samples.pools, options.more, options.out / "joined.jsonl", opened)


def _essence(info: StoreInfo) -> tuple[object, ...]:
    config = info.config
    return info.latent, info.origin.latents, info.statistics, config.couple, config.embodiment


def _fits(size: int, world: World) -> bool:
    if world.device.type != "cuda":
        return False
    return size < _OWN_SHARE * torch.cuda.mem_get_info(world.device)[0]


def resumed(
    stage: Stage[B], config: TrainConfig, call: nn.Module, options: RunOptions, world: World
) -> Trainer[B]:
    """The loop of a run, where its last checkpoint left it."""
    trainer = Trainer(
        stage=stage,
        config=config,
        run=options.out,
        world=world,
        call=call,
        hooks=options.hooks,
        tensorboard=options.tensorboard,
        minutes=options.minutes,
        fit=options.fit,
        begun=options.begun,
    )
    trainer.resume()
    return trainer


def train_policy(config: RunConfig, options: RunOptions) -> tuple[Outcome, Path]:
    """Train a policy and leave ``RUN/policy``; a run that is stopped leaves what it has so far, too."""
    with joined(options.mode, options.device) as world:
        claim_together(options.out, config, options.resume, world)
        torch.backends.cudnn.deterministic = True  # or a stem's gradients would differ from run to run
        given, stores, text = open_pools(config.samples, world, options.place, config.shares)
        growing = None
        if options.more is not None:
            growing = _growing(given, stores[0], text, options, config, world)
        samples = growing or given
        codec = _codec(options, stores[0], world)
        policy = _policy(config, world)
        check = _check(config, options, policy, world, codec, stores[0], text)
        seed = config.train.seed
        drills = None
        if config.drills is not None:
            drills = _drills(config.drills, stores[0], text, world, options.place)
        stage = PolicyStage(
            module=policy, samples=samples, draw=config.draw, seed=seed, check=check, drills=drills
        )
        partial = config.weights.flow == 0 or drills is not None
        call = distribute(policy, policy.model, world, config.train.precision == "bfloat16", partial)
        if config.train.compile and world.device.type == "cuda":
            compile_checked(stage, config.train, world, options.hooks.on_warning)
        learner = None
        if options.graphs:
            learner = graphs_checked(stage, config.train, world, options.hooks.on_warning)

        def leave(step: int, finished: bool) -> Path:
            return export(
                trainer,
                policy,
                stores[0].info,
                name=config.name,
                text=text,
                vae=None if codec is None else codec.vae,
                notes={"step": step, "finished": finished, "run": to_dict(config)},
            )

        options = replace(options, hooks=_hooks(options, growing, lambda step: leave(step, False)))
        trainer = resumed(stage, config.train, call, options, world)
        trainer.learner = learner
        trainer.run_ahead = options.run_ahead and learner is not None
        if options.run_ahead and learner is None:
            options.hooks.on_warning("without graphs no step runs ahead: training goes on step by step")
        if growing is not None and options.at_least:
            until = options.begun + 60 * options.minutes
            growing.wait_for(options.at_least, trainer.step, until, options.hooks.on_warning)
        outcome = trainer.train()
        if growing is not None:
            growing.close()
        return outcome, leave(outcome.step, outcome.finished)


def _hooks(options: RunOptions, growing: Growing | None, leave: Callable[[int], object]) -> Hooks:
    """Whoever wants to know, and what a run does besides between its steps."""
    hooks = options.hooks

    def on_step(step: int) -> None:
        if growing is not None and (joined := growing.look(step)):
            hooks.on_warning(joined)
        hooks.on_step(step)

    def on_save(step: int) -> None:
        if options.export_often:
            leave(step)
        hooks.on_save(step)

    return replace(hooks, on_step=on_step, on_save=on_save)


def _drills(config: DrillConfig, like: Store, text: str, world: World, place: str) -> Drills:
    samples, stores, identity = open_pools(config.samples, world, place, ())
    if identity != text:
        raise BadInput(f"{stores[0].folder} was read by {identity}, {like.folder} by {text}")
    if config.draw.exchange and not all(pool.single for pool in samples.pools):
        raise BadInput("drills have one state an episode: make their store with --states 1")
    if _essence(stores[0].info) != _essence(like.info):
        raise BadInput(
            f"{stores[0].folder} and {like.folder} were made with another VAE, statistics, coupling or robot: "
            "drills must agree with a run's samples on them"
        )
    return Drills(samples=samples, draw=config.draw, share=config.share)


def _policy(config: RunConfig, world: World) -> Policy:
    torch.manual_seed(config.train.seed)
    source = Path(config.source) if config.source else None
    model = load_model(source, config.model, world) if source else HostModel(config.model)
    if config.lora is not None:
        adapt(model, config.lora)
    model.checkpointing = config.train.checkpointing
    drills = None if config.drills is None else config.drills.weights
    policy = Policy(model, config.weights, config.draw.shared, drills=drills)
    if source is not None:
        load_head(source, policy.point)
    return policy.to(world.device)


def _acting(model: HostModel, spec: PolicySpec, store: Store, codec: LatentCodec) -> Acting:
    """A policy with a copy of the weights: the one that learns must not be frozen."""
    copy = empty_model(model.config, torch.float32, next(model.parameters()).device)
    copy.load_state_dict({n: p.detach() for n, p in model.named_parameters()})
    words = find_text_encoder(spec, model.config, store.folder)
    return Acting(copy, codec, words, spec, store.info.statistics)


def _codec(options: RunOptions, store: Store, world: World) -> LatentCodec | None:
    """The VAE the samples were made with, for pictures and for the exported policy."""
    if options.vae is None:
        return None
    codec = LatentCodec(load_vae(options.vae), world.device)
    if codec.identity != store.info.origin.latents:
        raise BadInput(f"{options.vae} is not the VAE that {store.folder} was made with")
    return codec


def _check(
    config: RunConfig,
    options: RunOptions,
    policy: Policy,
    world: World,
    codec: LatentCodec | None,
    store: Store,
    text: str,
) -> Callable[[int], dict[str, float]]:
    """Held-out figures, on the first rank of a run whose weights are whole there."""
    if not world.is_main or world.mode in ("fsdp", "hsdp"):
        return lambda step: {}
    checks: list[Callable[[int], Any]] = []
    if options.validation:
        held_out, _, _ = open_pools(options.validation, world, "disk", ())
        draw = replace(
            config.draw, micro=min(256, config.draw.micro) // config.draw.shared * config.draw.shared
        )
        checks.append(validator(policy, held_out, draw, seed=config.train.seed, run=options.out, codec=codec))
    if options.check is not None:
        if codec is None:
            raise BadInput("rollouts need the VAE: give it with --vae")
        more, eyes = options.check, codec
        spec = spec_of(store.info, config.name, text)
        checks.append(lambda step: more(_acting(policy.model, spec, store, eyes), step))

    def check(step: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for one in checks:
            found |= one(step)
        return found

    return check

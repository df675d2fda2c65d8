"""What a run leaves for use: a policy's folder, written whole, with the averaged weights where there are any.

``RUN/policy`` is the bundle that ``hostbot eval`` and the server take; ``RUN/policy/point.safetensors`` is the
auxiliary head, which only the next stage of training reads.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLWan
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.tensor import DTensor

from hostbot.data.samples import StoreInfo
from hostbot.model import checkpoint
from hostbot.model.host import HostConfig, HostModel
from hostbot.policy.bundle import PolicySpec, write_bundle
from hostbot.train.distributed import World
from hostbot.train.loop import Trainer
from hostbot.train.lora import merged
from hostbot.train.stages import PointHead, Policy
from hostbot.types import BadInput

POLICY, POINT = "policy", "point.safetensors"


def whole_weights(trainer: Trainer[Any]) -> dict[str, Tensor]:
    """Every weight of the stage on rank 0's CPU, averaged where an average is kept; other ranks get nothing."""
    averaged = trainer.average.values if trainer.average is not None else {}
    found = {}
    for name, parameter in trainer.stage.module.named_parameters():
        value = averaged.get(name, parameter.detach())
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if trainer.world.is_main:
            found[name] = whole.cpu()
    return found


def spec_of(info: StoreInfo, name: str, text: str) -> PolicySpec:
    """What the policy must be given in use: what its samples were made with."""
    config = info.config
    return PolicySpec(
        name=name,
        embodiment=config.embodiment,
        image_size=config.image_size,
        video_stride=config.couple.stride,
        text_encoder=text,
        codec=info.origin.latents,
        relative_actions=config.relative_actions,
        whole_video=config.couple.whole,
        normalize=config.normalize,
    )


def export(
    trainer: Trainer[Any],
    policy: Policy,
    info: StoreInfo,
    *,
    name: str,
    text: str,
    vae: AutoencoderKLWan | None,
    notes: Mapping[str, Any],
) -> Path:
    """Write ``RUN/policy``; one that is there is replaced once the new one is whole."""
    weights = whole_weights(trainer)
    folder = trainer.run / POLICY
    if trainer.world.is_main:
        _write(folder, weights, policy, info, spec_of(info, name, text), vae, notes)
    trainer.world.wait()
    return folder


def _write(
    folder: Path,
    weights: dict[str, Tensor],
    policy: Policy,
    info: StoreInfo,
    spec: PolicySpec,
    vae: AutoencoderKLWan | None,
    notes: Mapping[str, Any],
) -> None:
    weights = merged(weights, policy.model)
    model = checkpoint.empty_model(policy.model.config, torch.float32)
    model.load_state_dict({n[6:]: w for n, w in weights.items() if n.startswith("model.")})
    new = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    shutil.rmtree(new, ignore_errors=True)
    write_bundle(new, model=model, spec=spec, statistics=info.statistics, vae=vae, notes=notes)
    head = {n[6:]: w for n, w in weights.items() if n.startswith("point.")}
    save_file(head, new / POINT, metadata={"cells": str(policy.point.cells)})
    if folder.exists():
        old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
        folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old)
    else:
        new.rename(folder)


def model_folder(source: Path) -> Path:
    """The weights behind ``--from``: a run, a policy, or a checkpoint of the model."""
    for folder in (source / POLICY / "model", source / "model", source):
        if (folder / checkpoint.MANIFEST).is_file():
            return folder
    raise BadInput(f"{source} has no weights to start from: give a run that is finished, a policy or a model")


def load_model(source: Path, config: HostConfig, world: World) -> HostModel:
    """Weights to start from, in float32; a model of other sizes is refused, one of other loss settings is not.

    One without a stem is given the one that is wanted.
    """
    model = checkpoint.load(model_folder(source), torch.float32, world.device)
    if _sizes(model.config) != _sizes(config):
        raise BadInput(
            f"{source} is a model of other sizes; give the --preset and the --patch it was made with"
        )
    if config.stem and not model.config.stem:
        model.give_stem(config.stem)
    if config.stem != model.config.stem:
        raise BadInput(f"{source} has a stem of {model.config.stem} channels, not of {config.stem}")
    model.config = config
    return model


def _sizes(config: HostConfig) -> tuple[object, ...]:
    return (
        config.video,
        config.action,
        config.grid,
        config.action_dim,
        config.state_dim,
        config.horizon,
        config.text_length,
    )


def load_head(source: Path, head: PointHead) -> bool:
    """The auxiliary head of the stage before, where it left one of this size; a part it had not begins anew."""
    for path in (source / POLICY / POINT, source / POINT, source.parent / POINT):
        if path.is_file():
            found, wanted = load_file(path), head.state_dict()
            known = {n: t for n, t in found.items() if n in wanted and wanted[n].shape == t.shape}
            if all(name in known for name in wanted if name.startswith("out.")):
                head.load_state_dict(known, strict=False)
                return True
    return False

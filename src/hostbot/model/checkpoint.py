"""Our own checkpoints: a folder of ``model.safetensors`` and ``model.json``, whole or not there at all."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from hostbot.model.host import HostConfig, HostModel
from hostbot.types import BadInput

WEIGHTS, MANIFEST, FORMAT = "model.safetensors", "model.json", 1
T = TypeVar("T")


def from_json(cls: type[T], data: Mapping[str, Any]) -> T:
    """A dataclass from what ``dataclasses.asdict`` made of it; a name it does not know is refused."""
    hints = typing.get_type_hints(cls)
    unknown = set(data) - set(hints)
    if unknown:
        raise BadInput(f"{cls.__name__} has no {', '.join(sorted(unknown))}")
    return cls(**{name: _value(hints[name], value) for name, value in data.items()})


def _value(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value)
    if isinstance(value, list) and typing.get_origin(hint) in (tuple, types.UnionType):
        return tuple(value)
    return value


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save(model: HostModel, folder: Path, notes: Mapping[str, Any] | None = None) -> None:
    """Write a checkpoint aside, manifest last, and move it into place; an existing one is not overwritten."""
    if folder.exists():
        raise BadInput(f"{folder} exists already: choose another name or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        save_file({k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()}, aside / WEIGHTS)
        sync(aside / WEIGHTS)
        manifest = {
            "format": FORMAT,
            "bytes": (aside / WEIGHTS).stat().st_size,
            "config": dataclasses.asdict(model.config),
            "notes": dict(notes or {}),
        }
        (aside / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        sync(aside / MANIFEST)
        sync(aside)
        aside.chmod(0o755)
        aside.rename(folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    path = folder / MANIFEST
    if not path.is_file():
        raise BadInput(f"{folder} is no hostbot checkpoint: it has no {MANIFEST}")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise BadInput(f"{path} is damaged: {error}") from error
    if manifest.get("format") != FORMAT:
        raise BadInput(f"{path} has format {manifest.get('format')}; this hostbot reads format {FORMAT}")
    size = (folder / WEIGHTS).stat().st_size if (folder / WEIGHTS).is_file() else 0
    if size != manifest["bytes"]:
        raise BadInput(f"{folder / WEIGHTS} has {size} bytes, not the {manifest['bytes']} it was saved with")
    return manifest


def empty_model(config: HostConfig, dtype: torch.dtype, device: torch.device | str = "cpu") -> HostModel:
    """A model whose weights are allocated once, in their final type and place, and hold nothing yet."""
    with torch.device("meta"):
        model = HostModel(config).to(dtype)
    return model.to_empty(device=device)


def load(folder: Path, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> HostModel:
    """A model from a checkpoint, strictly, each tensor read from the map into its place."""
    config = from_json(HostConfig, read_manifest(folder)["config"])
    model = empty_model(config, dtype, device)
    wanted = model.state_dict()
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file, torch.no_grad():
            names = set(file.keys())
            if names != set(wanted):
                odd = ", ".join(sorted(names ^ set(wanted))[:3])
                raise BadInput(f"{folder} does not hold this model's weights; they differ at {odd}")
            for name, parameter in wanted.items():
                tensor = file.get_tensor(name)
                if tensor.shape != parameter.shape:
                    raise BadInput(f"{name} is {tuple(tensor.shape)}, not {tuple(parameter.shape)}")
                parameter.copy_(tensor)
    except SafetensorError as error:
        raise BadInput(f"{folder / WEIGHTS} is damaged: {error}") from error
    return model

"""Checkpoints of a run: each rank writes its share, the manifest comes last, the folder is moved into place.

``RUN/checkpoints/step-00001000`` holds ``rank-*.safetensors`` and ``state.json``. Every tensor is a run of rows of a
whole one, and says which; so any number of ranks can read what any other number wrote. Nothing is pickled.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from hostbot.config import read_json, write_json
from hostbot.model.checkpoint import sync
from hostbot.train.distributed import World
from hostbot.types import BadInput

FORMAT = 1
_MANIFEST, _NAME = "state.json", re.compile(r"step-(\d{8,})")


class NotWritten(Exception):
    """A checkpoint could not be written; the ones before it are as they were."""


def folder_of(run: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return run / "checkpoints" / f"step-{step:08d}"


def steps_of(run: Path) -> list[int]:
    """Steps of which there is a whole checkpoint, in order."""
    found = (_NAME.fullmatch(path.name) for path in (run / "checkpoints").glob("step-*"))
    return sorted(int(m[1]) for m in found if m and (folder_of(run, int(m[1])) / _MANIFEST).is_file())


def local_rows(tensor: Tensor) -> tuple[Tensor, int, bool]:
    """What this rank holds of a tensor, the row it begins at, and whether this rank is the one to write it."""
    if not isinstance(tensor, DTensor):
        return tensor.detach(), 0, True
    if any(isinstance(p, Shard) and p.dim != 0 for p in tensor.placements):
        raise BadInput("checkpoints hold tensors sharded by rows; this one is sharded otherwise")
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    place = list(tensor.device_mesh.get_coordinate() or ())
    first = all(isinstance(p, Shard) or at == 0 for p, at in zip(tensor.placements, place, strict=True))
    return tensor.to_local().detach(), offset[0] if offset else 0, first


def save(
    run: Path, step: int, state: Iterable[tuple[str, Tensor]], notes: Mapping[str, Any], world: World
) -> None:
    """Write a checkpoint with all ranks, or raise ``NotWritten`` on all of them and leave no trace."""
    target = folder_of(run, step)
    aside = target.with_name(f".{target.name}.tmp")
    error = world.first_error(_trying(lambda: _prepare(aside)) if world.is_main else None)
    if error is None:
        error = world.first_error(_trying(lambda: _write_rank(aside, state, world)))
    if error is None and world.is_main:
        error = _trying(lambda: _finish(aside, target, step, notes, world))
    error = world.first_error(error)
    if error is not None:
        if world.is_main:
            shutil.rmtree(aside, ignore_errors=True)
        raise NotWritten(error)


def _trying(work: Any) -> str | None:
    try:
        work()
    except (OSError, SafetensorError) as error:
        return str(error)
    return None


def _prepare(aside: Path) -> None:
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)


def _write_rank(aside: Path, state: Iterable[tuple[str, Tensor]], world: World) -> None:
    tensors, rows = {}, {}
    for name, tensor in state:
        local, row, first = local_rows(tensor)
        shared = not isinstance(tensor, DTensor)
        if (world.is_main or not shared) and first and (local.numel() or shared):
            tensors[name], rows[name] = local.cpu().contiguous(), row
    path = aside / f"rank-{world.rank:05d}.safetensors"
    save_file(tensors, path, metadata={"rows": json.dumps(rows)})
    path.chmod(0o644)
    sync(path)


def _finish(aside: Path, target: Path, step: int, notes: Mapping[str, Any], world: World) -> None:
    files = {path.name: path.stat().st_size for path in sorted(aside.glob("rank-*.safetensors"))}
    manifest = {"format": FORMAT, "step": step, "ranks": world.size, "files": files, "notes": dict(notes)}
    write_json(aside / _MANIFEST, manifest)
    sync(aside)
    if target.exists():  # a checkpoint of this very step from before: the run was resumed from an earlier one
        shutil.rmtree(target)
    aside.rename(target)
    sync(target.parent)


def prune(run: Path, keep: int) -> None:
    """Remove all but the last checkpoints, and what interrupted writing left behind."""
    for step in steps_of(run)[:-keep]:
        shutil.rmtree(folder_of(run, step), ignore_errors=True)
    for left in (run / "checkpoints").glob(".step-*.tmp"):
        shutil.rmtree(left, ignore_errors=True)


class Reader:
    """A checkpoint opened for reading, by any number of ranks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifest = read_json(folder / _MANIFEST)
        if manifest.get("format") != FORMAT:
            raise BadInput(f"{folder} has format {manifest.get('format')}; this version reads {FORMAT}")
        self.step: int = manifest["step"]
        self.notes: dict[str, Any] = manifest["notes"]
        self._where: dict[str, list[tuple[Any, int, list[int]]]] = {}
        for name, size in manifest["files"].items():
            self._index(folder / name, size)

    def _index(self, path: Path, size: int) -> None:
        found = path.stat().st_size if path.is_file() else 0
        if found != size:
            raise BadInput(f"{path} has {found} bytes, not the {size} it was saved with")
        try:
            file = safe_open(path, framework="pt")
        except SafetensorError as error:
            raise BadInput(f"{path} is damaged: {error}") from error
        rows = json.loads(file.metadata()["rows"])
        for name in file.keys():  # noqa: SIM118
            shape = list(file.get_slice(name).get_shape())
            self._where.setdefault(name, []).append((file, rows[name], shape))

    def names(self, prefix: str) -> list[str]:
        """Tensors whose names begin so."""
        return sorted(name for name in self._where if name.startswith(prefix))

    def scalar(self, name: str) -> bool:
        """Whether a tensor is a single number."""
        return self._where[name][0][2] == []

    @torch.no_grad()
    def read(self, name: str, into: Tensor) -> None:
        """Fill a tensor, or this rank's share of it, from the runs of rows there are."""
        parts = self._where.get(name)
        if parts is None:
            raise BadInput(f"{self.folder} has no {name}: it is a checkpoint of another model or stage")
        local, low, _ = local_rows(into)
        if parts[0][2] == []:
            local.copy_(parts[0][0].get_tensor(name))
            return
        whole = sum(shape[0] for _, _, shape in parts), *parts[0][2][1:]
        if tuple(into.shape) != whole:
            raise BadInput(f"{name} is {tuple(into.shape)} here and {whole} in {self.folder}")
        for file, row, shape in parts:
            a, b = max(low, row), min(low + len(local), row + shape[0])
            if a < b:
                local[a - low : b - low].copy_(file.get_slice(name)[a - row : b - row])

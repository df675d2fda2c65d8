"""Tensors and a JSON note in a folder that is whole or not there: safetensors of at most 4 GiB, nothing pickled."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hostbot.config import read_json, write_json
from hostbot.types import BadInput

NOTE, FORMAT = "state.json", 1
_SHARD_BYTES = 4 << 30


def save(
    folder: Path, tensors: Iterable[tuple[str, Tensor]], note: Mapping[str, Any], *, writes: bool
) -> None:
    """Write aside, the note last, then move into place; all processes walk the tensors, one of them writes."""
    if not writes:
        for _ in tensors:
            pass
        return
    if folder.exists():
        raise BadInput(f"{folder} exists already; remove it or choose another place")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".saving-", dir=folder.parent))
    try:
        files = _write_shards(aside, tensors)
        write_json(aside / NOTE, {"format": FORMAT, "files": files, **note})
        aside.chmod(0o755)
        sync(aside)
        aside.rename(folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _write_shards(aside: Path, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, int]:
    files: dict[str, int] = {}
    held: dict[str, Tensor] = {}

    def flush() -> None:
        path = aside / f"tensors-{len(files):05d}.safetensors"
        save_file(held, path)
        sync(path)
        files[path.name] = path.stat().st_size
        held.clear()

    for name, tensor in tensors:
        if held and sum(t.nbytes for t in held.values()) + tensor.nbytes > _SHARD_BYTES:
            flush()
        held[name] = tensor.detach().cpu().contiguous()
    flush()
    return files


class Saved:
    """A checkpoint opened for reading; tensors come one at a time, from the map."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.note: dict[str, Any] = read_json(folder / NOTE)
        if self.note.get("format") != FORMAT:
            raise BadInput(
                f"{folder} has format {self.note.get('format')}; this hostbot reads format {FORMAT}"
            )
        self._where: dict[str, Path] = {}
        for name, size in self.note["files"].items():
            path = folder / name
            found = path.stat().st_size if path.is_file() else 0
            if found != size:
                raise BadInput(
                    f"{path} has {found} bytes, not the {size} it was saved with; restore it from a copy"
                )
            with self._opened(path) as file:
                self._where |= dict.fromkeys(file.keys(), path)

    def _opened(self, path: Path) -> Any:
        try:
            return safe_open(path, framework="pt")
        except SafetensorError as error:
            raise BadInput(f"{path} is damaged: {error}; restore it from a copy") from None

    def names(self) -> set[str]:
        """Of all tensors."""
        return set(self._where)

    def tensor(self, name: str) -> Tensor:
        """One of them."""
        if name not in self._where:
            raise BadInput(f"{self.folder} has no {name}; it is another model's checkpoint")
        with self._opened(self._where[name]) as file:
            return file.get_tensor(name)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def step_folders(root: Path) -> list[tuple[int, Path]]:
    """The checkpoints of a run, oldest first; what was being written when a run was killed has another name."""
    found = [(int(p.name.removeprefix("step-")), p) for p in root.glob("step-*") if (p / NOTE).is_file()]
    return sorted(found)

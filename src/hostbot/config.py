"""Configs are frozen dataclasses; this turns them into JSON and back, and records what a run was.

A field of a config is a number, string, bool, None, a tuple or mapping of those, or another config.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import reprlib
import subprocess
import sys
import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO, TypeVar

from hostbot.types import BadInput

T = TypeVar("T")


def to_dict(config: object) -> dict[str, Any]:
    """A config as plain JSON values; tuples become lists."""
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise TypeError(f"{config!r} is no config")
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def from_dict(cls: type[T], values: object, where: str = "config") -> T:
    """A config from JSON values, strictly: unknown, missing and wrongly typed entries are refused."""
    if not isinstance(values, Mapping):
        raise BadInput(
            f"{where} must be an object with the fields of {cls.__name__}, got {reprlib.repr(values)}"
        )
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(fields)):
        raise BadInput(f"{where} has unknown field(s) {', '.join(unknown)}; known are {', '.join(fields)}")
    hints = typing.get_type_hints(cls)
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise BadInput(f"{where} lacks the field {name!r}")
    return cls(**{name: _typed(hints[name], value, f"{where}.{name}") for name, value in values.items()})


def _typed(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _first_fitting(arguments, value, where)
    if origin is typing.Literal:
        return _checked(value in arguments, value, where, " or ".join(map(repr, arguments)))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_dict(hint, value, where)
    if origin is tuple:
        _checked(isinstance(value, (list, tuple)), value, where, "a list")
        inner = [arguments[0]] * len(value) if arguments[1:] == (...,) else list(arguments)
        _checked(len(inner) == len(value), value, where, f"a list of {len(inner)}")
        return tuple(_typed(h, v, f"{where}[{i}]") for i, (h, v) in enumerate(zip(inner, value, strict=True)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _checked(isinstance(value, Mapping), value, where, "an object")
        return {key: _typed(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(_checked(number, value, where, "a number"))
    if hint is Path:
        return Path(_checked(isinstance(value, (str, Path)), value, where, "a path"))
    expected = type(None) if hint is None else hint
    fits = isinstance(value, expected) and (expected is bool or not isinstance(value, bool))
    return _checked(fits, value, where, getattr(expected, "__name__", str(expected)))


def _first_fitting(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    reasons = []
    for hint in hints:
        try:
            return _typed(hint, value, where)
        except BadInput as reason:
            reasons.append(str(reason))
    raise BadInput(reasons[0])


def _checked(fits: bool, value: Any, where: str, expected: str) -> Any:
    if not fits:
        raise BadInput(f"{where} must be {expected}, got {reprlib.repr(value)}")
    return value


def write_json(path: Path, value: object) -> None:
    """Write JSON aside, flush it to the disk and move it into place, so that no reader sees half of it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with aside.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=2, ensure_ascii=False, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def read_json(path: Path, error: type[BadInput] = BadInput) -> Any:
    """JSON from a file, or one sentence that says what is wrong with it."""
    try:
        return json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise error(f"{path} does not exist") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as reason:
        raise error(f"{path} is not valid JSON: {reason}") from None


def record_run(folder: Path, config: object, seeds: Mapping[str, int]) -> None:
    """Write ``run.json``: config, seeds, command, commit and versions behind a folder of results."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "run.json", {"config": to_dict(config), "seeds": dict(seeds), **provenance()})


def provenance() -> dict[str, Any]:
    """Which code, on what machine, by which command, when: what every figure carries."""
    packages: dict[str, str | None] = {}
    for name in ("hostbot", "torch", "numpy", "av", "pyarrow"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = None
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain") or ""),
        "hardware": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "python": platform.python_version(),
        "packages": packages,
    }


def _git(*arguments: str) -> str | None:
    """What git says of the tree this code lies in; None where it is not a git checkout."""
    here = Path(__file__).resolve().parent
    try:
        found = subprocess.run(["git", "-C", here, *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 else None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def append_to(path: Path) -> TextIO:
    """The file, opened to add lines; what an interruption left of its last one is cut off."""
    file = path.open("a+")
    file.seek(0)
    text = file.read()
    if text and not text.endswith("\n"):
        file.truncate(len(text[: text.rfind("\n") + 1].encode()))
    file.seek(0, os.SEEK_END)
    return file

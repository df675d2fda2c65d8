"""What ``meta/info.json`` of a LeRobot dataset says, checked before anything is believed.

The rules that keep a hostile or damaged file harmless live here: numbers are bounded before they size an
array, and the path templates may only name files inside the dataset. A view's short name is its feature key
without ``observation.images.`` or ``observation.``; where two keys would share one, both keep the whole key.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from hostbot.data.files import parse_json
from hostbot.types import DataError

Version = Literal["v3.0", "v2.1", "v2.0"]
VERSIONS: tuple[Version, ...] = ("v3.0", "v2.1", "v2.0")
BOOKKEEPING: Mapping[str, str] = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
NUMERIC = frozenset(
    {"bool", "float16", "float32", "float64"} | {f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)}
)
V3_DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
V3_VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
CHUNKS_SIZE, DATA_FILE_MB, VIDEO_FILE_MB = 1000, 100, 200

MAX_EPISODES, MAX_FRAMES, MAX_EPISODE, MAX_WIDTH, MAX_SIDE = 10**7, 10**10, 10**7, 10**6, 16384
_FIELDS: Mapping[Version, frozenset[str]] = {
    "v3.0": frozenset({"chunk_index", "file_index", "video_key"}),
    "v2.1": frozenset({"episode_chunk", "episode_index", "video_key"}),
    "v2.0": frozenset({"episode_chunk", "episode_index", "video_key"}),
}
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One column or camera of a dataset."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...] | None = None
    codec: str | None = None

    @property
    def is_view(self) -> bool:
        """Whether the feature is a camera."""
        return self.dtype in ("video", "image")

    @property
    def width(self) -> int | None:
        """Numbers a row, for a numeric feature of one dimension; else None."""
        return self.shape[0] if self.dtype in NUMERIC and len(self.shape) == 1 else None

    @property
    def size(self) -> tuple[int, int]:
        """(h, w) of a camera, whether its shape is written (h, w, c) or (c, h, w)."""
        channels_first = (self.names or ("",))[0].startswith("channel") or (
            self.shape[0] in (1, 3, 4) and self.shape[-1] not in (1, 3, 4)
        )
        return (self.shape[1], self.shape[2]) if channels_first else (self.shape[0], self.shape[1])


@dataclass(frozen=True, kw_only=True)
class Schema:
    """``meta/info.json``, checked."""

    version: Version
    robot_type: str | None
    fps: float
    num_episodes: int
    num_frames: int
    num_tasks: int
    chunks_size: int
    data_path: str
    video_path: str | None
    features: Mapping[str, Feature]

    @property
    def views(self) -> dict[str, Feature]:
        """Cameras by short name."""
        cameras = [f for f in self.features.values() if f.is_view]
        short = [short_name(f.name) for f in cameras]
        return {(s if short.count(s) == 1 else f.name): f for s, f in zip(short, cameras, strict=True)}

    @property
    def video_keys(self) -> tuple[str, ...]:
        """Feature keys of the cameras kept in mp4 files."""
        return tuple(f.name for f in self.features.values() if f.dtype == "video")

    @property
    def columns(self) -> dict[str, Feature]:
        """Everything the data parquet must hold."""
        return {name: f for name, f in self.features.items() if f.dtype != "video"}


def short_name(key: str) -> str:
    """``observation.images.left_wrist`` -> ``left_wrist``."""
    for prefix in ("observation.images.", "observation."):
        if key.startswith(prefix) and len(key) > len(prefix):
            return key[len(prefix) :]
    return key


def get(
    record: Mapping[str, Any], key: str, kind: type[T], path: Path, check: Callable[[T], bool] | None = None
) -> T:
    """``record[key]`` of the right type and range, or a sentence naming file, key and value."""
    value = record.get(key)
    right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    if not right or (check is not None and not check(value)):  # type: ignore[arg-type]
        shown = repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "..."
        raise DataError(f"{path} has {key} = {shown}, which is not a usable {kind.__name__}; correct it")
    return value  # type: ignore[return-value]


def parse_schema(raw: bytes, path: Path) -> Schema:
    """``meta/info.json`` of any version we read."""
    info = parse_json(raw, path)
    version = info.get("codebase_version")
    if version not in VERSIONS:
        raise DataError(
            f"{path} says codebase_version {str(version)[:20]!r}; "
            f"hostbot reads {', '.join(VERSIONS)}: convert it"
        )
    features = _features(get(info, "features", dict, path), path)
    if any(f.dtype == "video" for f in features.values()) and info.get("video_path") is None:
        raise DataError(f"{path} lists video features but has no video_path; correct it")
    robot_type = info.get("robot_type")
    return Schema(
        version=version,
        robot_type=robot_type if isinstance(robot_type, str) else None,
        fps=_fps(info.get("fps"), path),
        num_episodes=get(info, "total_episodes", int, path, lambda n: 0 <= n <= MAX_EPISODES),
        num_frames=get(info, "total_frames", int, path, lambda n: 0 <= n <= MAX_FRAMES),
        num_tasks=get(info, "total_tasks", int, path, lambda n: 0 <= n <= MAX_EPISODES),
        chunks_size=get(info, "chunks_size", int, path, lambda n: 0 < n <= MAX_EPISODES),
        data_path=_template(get(info, "data_path", str, path), version, path, frozenset({"video_key"})),
        video_path=None
        if info.get("video_path") is None
        else _template(get(info, "video_path", str, path), version, path),
        features=features,
    )


def _fps(value: object, path: Path) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value <= 10_000
        or not math.isfinite(value)
    ):
        raise DataError(
            f"{path} has fps = {str(value)[:40]}, which must be above 0 and at most 10000; correct it"
        )
    return float(value)


def _template(text: str, version: Version, path: Path, without: frozenset[str] = frozenset()) -> str:
    """A path template that can only ever name a file inside the dataset."""
    allowed = _FIELDS[version] - without
    try:
        parts = [
            (name, spec or "", conversion) for _, name, spec, conversion in string.Formatter().parse(text)
        ]
    except ValueError:
        parts = [("malformed", "", None)]
    fields = {name for name, _, _ in parts if name is not None}
    sane = all(
        name is None
        or (
            name in allowed
            and not conversion
            and re.fullmatch("" if name == "video_key" else r"(0?\d?d)?", spec)
        )
        for name, spec, conversion in parts
    )
    needed = "file_index" if version == "v3.0" else "episode_index"
    if not sane or needed not in fields or not is_inside(text.format(**dict.fromkeys(fields, 0))):
        raise DataError(
            f"{path} has the path template {text[:80]!r}; it must use {needed}, may use {sorted(allowed)} "
            "and must stay inside the dataset: correct it"
        )
    return text


def is_inside(relative: str) -> bool:
    """Whether a relative path stays, by its letters alone, inside the folder it starts from."""
    return ".." not in relative.split("/") and re.search(r"^/|^~|[\\\x00-\x1f:]", relative) is None


def _features(raw: dict[str, Any], path: Path) -> dict[str, Feature]:
    features = {name: _feature(name, value, path) for name, value in raw.items()}
    for name, dtype in BOOKKEEPING.items():
        if name not in features or features[name].shape not in ((1,), ()):
            raise DataError(
                f"{path} must list the feature {name!r} with dtype {dtype} and shape [1]; correct it"
            )
    return features


def _feature(name: str, raw: object, path: Path) -> Feature:
    if not isinstance(raw, dict) or not isinstance(raw.get("dtype"), str):
        raise DataError(f"{path} describes the feature {name[:60]!r} without a dtype; correct it")
    if not name or len(name) > 200 or "/" in name or not is_inside(name):
        raise DataError(
            f"{path} has the feature name {name[:60]!r}, which cannot be part of a file name; rename it"
        )
    shape = raw.get("shape") or [1]
    sane = isinstance(shape, list) and len(shape) <= 8 and all(type(n) is int and n > 0 for n in shape)
    limit = MAX_SIDE * MAX_SIDE * 4 if raw["dtype"] in ("video", "image") else MAX_WIDTH
    if not sane or math.prod(shape) > limit:
        raise DataError(
            f"{path} gives {name!r} the shape {str(shape)[:60]}, which is no usable list of sizes; correct it"
        )
    if raw["dtype"] in ("video", "image") and (len(shape) != 3 or max(shape) > MAX_SIDE):
        raise DataError(
            f"{path} gives the camera {name!r} the shape {shape}; it must be [height, width, channels]"
        )
    return Feature(
        name=name, dtype=raw["dtype"], shape=tuple(shape), names=_names(raw.get("names")), codec=_codec(raw)
    )


def _names(raw: object) -> tuple[str, ...] | None:
    """Axis names where they are a plain list, or a dict holding one; anything else is no names."""
    if isinstance(raw, dict) and len(raw) == 1:
        raw = next(iter(raw.values()))
    return tuple(raw) if isinstance(raw, list) and all(isinstance(n, str) for n in raw) and raw else None


def _codec(raw: Mapping[str, Any]) -> str | None:
    for key in ("info", "video_info"):
        if isinstance(raw.get(key), dict) and isinstance(raw[key].get("video.codec"), str):
            return str(raw[key]["video.codec"])
    return None

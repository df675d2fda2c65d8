"""One episode on its way into a dataset: rows held, frames encoded as they come, statistics gathered."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import av
import numpy as np
import pyarrow as pa

from hostbot.data.feature_stats import ImageSampler, Stats, numeric_stats
from hostbot.data.features import FeatureSpec, data_schema
from hostbot.data.schema import BOOKKEEPING, NUMERIC, short_name
from hostbot.types import BadInput, Event, Image
from hostbot.video import VideoCodec, VideoWriter

Targets = Callable[[str], Path]


class EpisodeBuffer:
    """An episode being recorded: ``add`` a frame at a time, ``event`` where something happened."""

    def __init__(
        self, specs: Mapping[str, FeatureSpec], fps: int, encoder: Mapping[str, Any], targets: Targets
    ) -> None:
        self._specs = specs
        self._own = [n for n, s in specs.items() if s.dtype != "video" and n not in BOOKKEEPING]
        self._cameras = {n: short_name(n) for n, s in specs.items() if s.dtype == "video"}
        self._fps, self._encoder, self._targets = fps, encoder, targets
        self._videos: dict[str, VideoWriter] = {}
        self._samplers = {key: ImageSampler() for key in self._cameras}
        self._columns: dict[str, list[Any]] = {name: [] for name in self._own}
        self.tasks: list[str] = []
        self.events: list[Event] = []

    def __len__(self) -> int:
        return len(self.tasks)

    def add(self, row: Mapping[str, Any], views: Mapping[str, Image], task: str) -> None:
        """One frame: every feature, every camera, and the task it belongs to."""
        images = {key: views.get(key, views.get(short)) for key, short in self._cameras.items()}
        known = self._cameras.keys() | self._cameras.values()
        wrong = sorted(
            (set(self._own) ^ set(row)) | (set(views) - known) | {k for k in images if images[k] is None}
        )
        if wrong:
            raise BadInput(f"a frame needs exactly {self._own} and the views {list(known)}; look at {wrong}")
        if not task or not isinstance(task, str):
            raise BadInput("every frame needs a task, a sentence that says what is being done")
        checked = {name: self._checked(name, row[name]) for name in self._own}
        pictures = {key: self._picture(key, image) for key, image in images.items()}
        for key, picture in pictures.items():
            self._video(key).write(picture, keyframe=not self.tasks)
            self._samplers[key].add(picture)
        for name, value in checked.items():
            self._columns[name].append(value)
        self.tasks.append(task)

    def event(self, name: str, frame: int | None = None) -> None:
        """Something happened at a frame, by default the last one added."""
        self.events.append(Event(name=name, frame=len(self) - 1 if frame is None else frame))

    def close(self) -> None:
        """Finish the mp4 files."""
        if not self.tasks:
            raise BadInput("an episode needs at least one frame")
        outside = [e for e in self.events if not 0 <= e.frame < len(self)]
        if outside:
            raise BadInput(
                f"event {outside[0].name!r} is at frame {outside[0].frame} of an episode of {len(self)}"
            )
        for key, video in self._videos.items():
            if video.num_frames != len(self):
                raise BadInput(f"{key!r} has {video.num_frames} frames and the rows {len(self)}; record anew")
            video.close()

    def abort(self) -> None:
        """Forget the episode."""
        for video in self._videos.values():
            video.abort()

    def column(self, name: str) -> np.ndarray | list[str]:
        """A feature over the episode."""
        values = self._columns[name]
        return values if self._specs[name].dtype == "string" else np.stack(values)

    def described(self, key: str) -> FeatureSpec:
        """A camera with what its mp4 turned out to be, as LeRobot's ``info`` says it."""
        spec = self._specs[key]
        if spec.info:
            return spec
        with av.open(str(self._videos[key].path)) as container:
            stream = container.streams.video[0]
            info = {
                "video.height": spec.shape[0],
                "video.width": spec.shape[1],
                "video.codec": stream.codec_context.codec.canonical_name,
                "video.pix_fmt": stream.codec_context.pix_fmt,
                "video.is_depth_map": False,
                "video.fps": round(float(stream.average_rate or 0)),
                "video.channels": 3,
                "has_audio": False,
            }
        return spec.with_info(info)

    def stats(self, table: pa.Table) -> dict[str, Stats]:
        """LeRobot's statistics of the episode."""
        found: dict[str, Stats] = {}
        for name, spec in self._specs.items():
            if spec.dtype == "video":
                found[name] = self._samplers[name].stats()
            elif spec.dtype in NUMERIC:
                values = self.column(name) if name in self._columns else table[name].to_numpy()
                found[name] = numeric_stats(np.asarray(values).reshape(len(self), *spec.shape))
        return found

    def _video(self, key: str) -> VideoWriter:
        if key not in self._videos:
            height, width = self._specs[key].shape[:2]
            codec = cast(VideoCodec, self._encoder["codec"])
            target, gop = self._targets(key), int(self._encoder["gop"])
            self._videos[key] = VideoWriter(target, (height, width), self._fps, codec=codec, gop=gop)
        return self._videos[key]

    def _picture(self, key: str, image: Image | None) -> Image:
        picture = np.asarray(image)
        if picture.dtype != np.uint8 or picture.shape != self._specs[key].shape:
            shape = self._specs[key].shape
            raise BadInput(f"{key!r} takes uint8 of {shape}, got {picture.dtype} of {picture.shape}")
        return picture

    def _checked(self, name: str, value: Any) -> Any:
        spec = self._specs[name]
        if spec.dtype == "string":
            if not isinstance(value, str):
                raise BadInput(f"{name!r} at frame {len(self)} is not a string")
            return value
        array = np.asarray(value)
        if array.shape != spec.shape and not (spec.shape == (1,) and array.shape == ()):
            raise BadInput(f"{name!r} at frame {len(self)} has shape {array.shape}, not {spec.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            kept = array.reshape(spec.shape).astype(spec.dtype)
        if not np.isfinite(array.astype(np.float64)).all() or not np.isfinite(kept.astype(np.float64)).all():
            raise BadInput(f"{name!r} at frame {len(self)} is not finite; nothing may write NaN or infinity")
        if spec.dtype[0] in "iub" and not (kept.astype(np.float64) == array.astype(np.float64)).all():
            raise BadInput(f"{name!r} at frame {len(self)} does not fit {spec.dtype}")
        return kept


def data_table(
    specs: Mapping[str, FeatureSpec],
    buffer: EpisodeBuffer,
    number: int,
    first: int,
    task_index: Sequence[int],
    fps: int,
) -> pa.Table:
    """The rows of an episode, LeRobot's own five columns included."""
    frame = np.arange(len(buffer))
    own: dict[str, np.ndarray] = {
        "timestamp": (frame / fps).astype(np.float32),
        "frame_index": frame,
        "episode_index": np.full(len(buffer), number),
        "index": first + frame,
        "task_index": np.asarray(task_index),
    }
    schema = data_schema(specs)
    columns = [
        pa.array(own[f.name], f.type)
        if f.name in own
        else _column(buffer.column(f.name), specs[f.name], f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _column(values: np.ndarray | list[str], spec: FeatureSpec, kind: pa.DataType) -> pa.Array:
    if isinstance(values, list):
        return pa.array(values, kind)
    if len(spec.shape) == 1 and spec.shape[0] == 1:
        return pa.array(values[:, 0], kind)
    if len(spec.shape) > 1:
        return pa.array(values.tolist(), kind)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(values.reshape(-1), kind.value_type), math.prod(spec.shape)
    )

"""Small datasets whose every frame says which it is: the frame's number is drawn as black and white bars."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hostbot.data.features import FeatureSpec
from hostbot.data.store import Dataset
from hostbot.data.write import DatasetWriter
from hostbot.types import Event, bimanual
from hostbot.video import VideoReader, VideoWriter

SIZE = (32, 96)
VIEWS = ("left_wrist", "right_wrist", "third_person")
TASKS = ("fold the towel", "open the drawer", "stack two cups", "wipe the table", "pour, då!")
FEATURES: dict[str, int | FeatureSpec] = {
    "observation.state": 20,
    "action": 20,
    "gripper.closed": FeatureSpec(dtype="bool", shape=(1,)),
}
BITS = 16


def bars(number: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """A picture of a 16-bit number; the rows fade so that the picture is not flat."""
    width = size[1] // BITS
    image = np.zeros((*size, 3), np.uint8)
    for bit in range(BITS):
        image[:, bit * width : (bit + 1) * width] = 255 if number >> bit & 1 else 0
    fade = np.linspace(0, 40, size[0]).astype(np.uint8)[:, None, None]
    return np.where(image > 0, image - fade, image + fade)


def read_bars(image: np.ndarray) -> int:
    width = image.shape[1] // BITS
    means = image.reshape(image.shape[0], BITS, width, 3)[:, :, 1:-1].mean(axis=(0, 2, 3))
    return sum(1 << bit for bit in range(BITS) if means[bit] > 127)


@dataclass(frozen=True, kw_only=True)
class Episode:
    number: int
    rows: dict[str, np.ndarray]
    tasks: list[str]
    events: tuple[Event, ...]

    def __len__(self) -> int:
        return len(self.tasks)

    def codes(self, view: str) -> list[int]:
        return [(self.number * 64 + n) * 4 + VIEWS.index(view) for n in range(len(self))]

    def frames(self, view: str, size: tuple[int, int] = SIZE) -> Iterator[np.ndarray]:
        return (bars(code, size) for code in self.codes(view))


def make_episodes(seed: int, lengths: Sequence[int]) -> list[Episode]:
    """Random rows; every third episode changes its task half-way."""
    rng = np.random.default_rng(seed)
    episodes = []
    for number, length in enumerate(lengths):
        tasks = [TASKS[number % len(TASKS)]] * length
        if number % 3 == 2 and length > 1:
            tasks[length // 2 :] = [TASKS[(number + 1) % len(TASKS)]] * (length - length // 2)
        rows = {
            "observation.state": rng.normal(size=(length, 20)).astype(np.float32),
            "action": rng.normal(size=(length, 20)).astype(np.float32),
            "gripper.closed": rng.integers(0, 2, (length, 1)).astype(bool),
        }
        events = (
            (Event(name="contact", frame=0), Event(name="grasp", frame=length // 2))
            if number % 2 == 0
            else ()
        )
        episodes.append(Episode(number=number, rows=rows, tasks=tasks, events=events))
    return episodes


def open_writer(root: Path, cameras: Sequence[str] = VIEWS, **options: object) -> DatasetWriter:
    given: dict[str, object] = {
        "fps": 30,
        "features": FEATURES,
        "views": dict.fromkeys(cameras, SIZE),
        "embodiment": bimanual(30, VIEWS),
        "robot_type": "test_arms",
    }
    return DatasetWriter(root, **(given | options))  # type: ignore[arg-type]


def add(writer: DatasetWriter, episode: Episode, views: Sequence[str] = VIEWS) -> int:
    streams = {view: episode.frames(view) for view in views}
    return writer.add_episode(episode.rows, streams, episode.tasks, episode.events)


def write_v3(
    root: Path, episodes: Sequence[Episode], views: Sequence[str] = VIEWS, **options: object
) -> None:
    with open_writer(root, views, **options) as writer:
        for episode in episodes:
            add(writer, episode, views)


def write_v2(
    root: Path, episodes: Sequence[Episode], views: Sequence[str] = VIEWS, version: str = "v2.1"
) -> None:
    """A v2.1 or v2.0 folder, as other tools leave them: one parquet an episode, no checksums."""
    keys = {view: f"observation.images.{view}" for view in views}
    tasks: dict[str, int] = {}
    first, lines = 0, []
    for e in episodes:
        numbers = [tasks.setdefault(task, len(tasks)) for task in e.tasks]
        frame = np.arange(len(e))
        table = {
            n: pa.array(e.rows[n].tolist(), pa.list_(pa.float32(), 20))
            for n in ("observation.state", "action")
        }
        table |= {
            "gripper.closed": pa.array(e.rows["gripper.closed"][:, 0]),
            "timestamp": pa.array((frame / 30).astype(np.float32)),
            "frame_index": pa.array(frame),
            "episode_index": pa.array(np.full(len(e), e.number)),
            "index": pa.array(first + frame),
            "task_index": pa.array(numbers),
        }
        path = root / f"data/chunk-000/episode_{e.number:06d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(table), path)
        for view, key in keys.items():
            path = root / f"videos/chunk-000/{key}/episode_{e.number:06d}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            with VideoWriter(path, SIZE, 30) as video:
                for image in e.frames(view):
                    video.write(image)
        lines.append({"episode_index": e.number, "tasks": list(dict.fromkeys(e.tasks)), "length": len(e)})
        first += len(e)
    vector = {"dtype": "float32", "shape": [20], "names": {"motors": [f"m{i}" for i in range(20)]}}
    features = {"observation.state": vector, "action": vector | {"names": None}}
    features["gripper.closed"] = {"dtype": "bool", "shape": [1], "names": None}
    for key in keys.values():
        legacy = {"video_info": {"video.fps": 30.0, "video.codec": "h264", "has_audio": False}}
        features[key] = {
            "dtype": "video",
            "shape": [*SIZE, 3],
            "names": ["height", "width", "channel"],
        } | legacy
    features["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
    for name in ("frame_index", "episode_index", "index", "task_index"):
        features[name] = {"dtype": "int64", "shape": [1], "names": None}
    info = {
        "codebase_version": version,
        "robot_type": "test_arms",
        "total_episodes": len(episodes),
        "total_frames": first,
        "total_tasks": len(tasks),
        "total_videos": len(episodes) * len(views),
        "total_chunks": 1,
        "chunks_size": 1000,
        "fps": 30,
        "splits": {"train": f"0:{len(episodes)}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": features,
    }
    (root / "meta").mkdir(parents=True, exist_ok=True)
    (root / "meta/info.json").write_text(json.dumps(info, indent=4))
    json_lines(root / "meta/tasks.jsonl", [{"task_index": i, "task": t} for t, i in tasks.items()])
    json_lines(root / "meta/episodes.jsonl", lines)
    (root / "meta/stats.json").write_text("{}") if version == "v2.0" else json_lines(
        root / "meta/episodes_stats.jsonl", [{"episode_index": e.number, "stats": {}} for e in episodes]
    )


def json_lines(path: Path, records: Sequence[object]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def decoded(path: Path) -> np.ndarray:
    """A video from end to end, by nothing but the decoder: no index, no seeking, no dataset."""
    with VideoReader(path) as reader:
        return np.stack(list(reader.stream()))


def everything(dataset: Dataset) -> list[dict[str, object]]:
    """All a dataset serves, an entry an episode."""
    content = []
    for index in range(len(dataset)):
        info = dataset.episode(index)
        entry: dict[str, object] = dict(dataset.rows(index, list(dataset.widths)))
        entry |= {view: dataset.frames(index, view, range(info.length)) for view in dataset.views}
        entry |= {"tasks": [dataset.tasks[i] for i in dataset.frame_tasks(index)], "info": info}
        entry |= {"events": dataset.events(index), "fps": dataset.fps, "embodiment": dataset.embodiment}
        entry |= {"features": {n: (f.dtype, f.shape, f.names) for n, f in dataset.schema.features.items()}}
        content.append(entry)
    return content


def same(a: Sequence[dict[str, object]], b: Sequence[dict[str, object]], levels: int = 0) -> bool:
    """Whether two datasets serve the same in every element.

    Pictures may differ by ``levels`` where they were encoded twice: an encoder need not repeat itself.
    """
    if len(a) != len(b):
        return False
    return all(
        one.keys() == other.keys() and all(_alike(one[key], other[key], levels) for key in one)
        for one, other in zip(a, b, strict=True)
    )


def _alike(a: object, b: object, levels: int) -> bool:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return a == b
    if levels and a.dtype == b.dtype == np.uint8 and a.shape == b.shape:
        return int(np.abs(a.astype(int) - b).max(initial=0)) <= levels
    return np.array_equal(a, b)

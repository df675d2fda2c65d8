"""Three hundred damaged datasets, made from a seed: each must be answered by one sentence or be harmless.

Two sound datasets are damaged: one written by hostbot (v3.0, checksums recorded) and one as other tools
leave them (v2.1, no checksums). ``Damage.judged`` says whether a difference in what is read counts as wrong
data. It does for everything except bits flipped inside a v2.1 file: a flipped mantissa there is a
different, valid number, and no reader on earth can tell. Every file of a v3.0 dataset of ours is judged.

Damage to meaning (lengths, gaps, NaN ...) would be caught by the checksums before it is ever looked at, so
on v3.0 it comes ``resealed``: the manifest is made anew, and the reader has to find the contradiction
itself.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hostbot.data.files import MANIFEST, manifest_bytes, read_manifest
from hostbot.video import VideoWriter, crc32
from tests.data.build import SIZE, VIEWS, make_episodes, write_v2, write_v3

COUNT = 300
LENGTHS = (5, 9, 3, 7)
KEYS = tuple(f"observation.images.{view}" for view in VIEWS[:2])
Apply = Callable[[Path, np.random.Generator], None]


@dataclass(frozen=True)
class Damage:
    name: str
    version: str
    apply: Apply
    seed: int
    judged: bool = True

    def __call__(self, root: Path) -> None:
        self.apply(root, np.random.default_rng(self.seed))


def make_sound(root: Path) -> None:
    """The two datasets that are damaged; v3.0 keeps its last episode in files of its own."""
    episodes = make_episodes(21, LENGTHS)
    write_v2(root / "v2.1", episodes, VIEWS[:2])
    write_v3(root / "v3.0", episodes[:3], VIEWS[:2])
    write_v3(root / "v3.0", episodes[3:], VIEWS[:2], resume=True, batch=10**6, video_file_mb=1e-3)


def damages(count: int = COUNT, seed: int = 7) -> list[Damage]:
    """All the damage, the same for the same seed: every deliberate one, then random ones up to ``count``."""
    deliberate = [Damage(n, v, a, seed + i) for i, (n, v, a) in enumerate(_deliberate())]
    rng = np.random.default_rng(seed)
    kinds = list(RANDOM)
    while len(deliberate) < count:
        kind, version = (
            kinds[len(deliberate) % len(kinds)],
            ("v3.0", "v2.1")[len(deliberate) // len(kinds) % 2],
        )
        judged = version == "v3.0" or kind not in IN_VALUES
        deliberate.append(Damage(kind, version, RANDOM[kind], int(rng.integers(1 << 31)), judged))
    return deliberate[:count]


def _files(root: Path, suffixes: Sequence[str] = (".parquet", ".mp4", ".json", ".jsonl")) -> list[Path]:
    found = (p for p in root.rglob("*") if p.suffix in suffixes)
    return sorted(p for p in found if p.stat().st_size)


def _pick(root: Path, rng: np.random.Generator, *suffixes: str) -> Path:
    """A file at random; each kind of file is as likely as the others, however many there are of it."""
    kinds = suffixes or (".parquet", ".mp4", ".json", ".jsonl")
    present = [files for kind in kinds if (files := _files(root, (kind,)))]
    files = present[rng.integers(len(present))]
    return files[rng.integers(len(files))]


def _truncate(root: Path, rng: np.random.Generator) -> None:
    path = _pick(root, rng)
    os.truncate(path, int(rng.integers(path.stat().st_size)))


def _empty(root: Path, rng: np.random.Generator) -> None:
    os.truncate(_pick(root, rng), 0)


def _flip(root: Path, rng: np.random.Generator, *suffixes: str) -> None:
    path = _pick(root, rng, *suffixes)
    raw = bytearray(path.read_bytes())
    for _ in range(rng.integers(1, 9)):
        raw[rng.integers(len(raw))] ^= 1 << int(rng.integers(8))
    path.write_bytes(raw)


def _flip_end(root: Path, rng: np.random.Generator) -> None:
    """Bits near the end of a parquet file, where its footer is."""
    path = _pick(root, rng, ".parquet")
    raw = bytearray(path.read_bytes())
    raw[len(raw) - 1 - int(rng.integers(min(len(raw), 1200)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(raw)


def _zero(root: Path, rng: np.random.Generator) -> None:
    path = _pick(root, rng, ".parquet", ".mp4")
    raw = bytearray(path.read_bytes())
    start = int(rng.integers(len(raw)))
    block = raw[start : start + 512]
    raw[start : start + 512] = bytes(b ^ 0x55 for b in block)
    path.write_bytes(raw)


def _noise(root: Path, rng: np.random.Generator) -> None:
    path = _pick(root, rng)
    path.write_bytes(rng.bytes(path.stat().st_size))


def _missing(root: Path, rng: np.random.Generator) -> None:
    _pick(root, rng).unlink()


def _append(root: Path, rng: np.random.Generator) -> None:
    path = _pick(root, rng, ".parquet", ".json", ".jsonl")
    path.write_bytes(path.read_bytes() + rng.bytes(int(rng.integers(1, 300))))


def _swap(root: Path, rng: np.random.Generator) -> None:
    """Two files of one kind change places, of two episodes where there are no checksums."""
    suffix = (".parquet", ".mp4")[rng.integers(2)]
    files = _files(root, (suffix,))
    if not (root / MANIFEST).exists():
        files = [f for f in files if KEYS[1] not in f.parts]
    a, b = (files[i] for i in rng.choice(len(files), 2, replace=False))
    spare = root / "spare"
    a.rename(spare), b.rename(a), spare.rename(b)


def _folder(root: Path, rng: np.random.Generator) -> None:
    path = _pick(root, rng)
    path.unlink()
    path.mkdir()


def _unreadable_link(root: Path, rng: np.random.Generator) -> None:
    path = _pick(root, rng)
    path.unlink()
    path.symlink_to(path.name)


RANDOM: dict[str, Apply] = {
    "truncated": _truncate,
    "emptied": _empty,
    "flipped": _flip,
    "flipped parquet": lambda root, rng: _flip(root, rng, ".parquet"),
    "flipped mp4": lambda root, rng: _flip(root, rng, ".mp4"),
    "flipped json": lambda root, rng: _flip(root, rng, ".json", ".jsonl"),
    "flipped footer": _flip_end,
    "overwritten block": _zero,
    "noise": _noise,
    "missing": _missing,
    "appended": _append,
    "swapped": _swap,
    "folder in its place": _folder,
    "link to itself": _unreadable_link,
}
IN_VALUES = {
    "flipped",
    "flipped parquet",
    "flipped mp4",
    "flipped json",
    "flipped footer",
    "overwritten block",
}


def reseal(root: Path) -> None:
    """Make the manifest anew, as if the damage had been written on purpose."""
    path = root / MANIFEST
    if path.exists():
        files = [f for f in read_manifest(path.read_bytes(), path) if (root / f).exists()]
        path.write_bytes(manifest_bytes({f: ((root / f).stat().st_size, crc32(root / f)) for f in files}))


def _deliberate() -> list[tuple[str, str, Apply]]:
    cases: list[tuple[str, str, Apply]] = []
    for version in ("v3.0", "v2.1"):
        for name, change in INFO.items():
            cases.append((f"info: {name}", version, _info(change)))
        for name, edit in DATA.items():
            cases.append((f"data: {name}", version, _data(edit)))
        for name, make in VIDEO.items():
            cases.append((f"video: {name}", version, _video(make)))
    cases += [(f"episodes: {name}", "v3.0", _episodes(edit)) for name, edit in EPISODES.items()]
    cases += [(f"lines: {name}", "v2.1", _lines(edit)) for name, edit in LINES.items()]
    cases += [(f"tasks: {name}", "v3.0", _tasks(edit)) for name, edit in TASKS.items()]
    cases += [("no sidecar", "v3.0", lambda root, rng: shutil.rmtree(root / "meta/hostbot"))]
    cases += [("no manifest", "v3.0", lambda root, rng: (root / MANIFEST).unlink())]
    for version in ("v3.0", "v2.1"):
        for folder in ("meta", "data", "videos"):
            cases.append((f"no {folder}", version, lambda root, rng, f=folder: shutil.rmtree(root / f)))
    cases += [("no statistics", "v3.0", lambda root, rng: (root / "meta/stats.json").unlink())]
    return cases


Change = Callable[[dict[str, object]], object]


def _feature(name: str, **changes: object) -> Change:
    def change(info: dict[str, object]) -> None:
        features = info["features"]
        assert isinstance(features, dict)
        features[name] = features[name] | changes

    return change


INFO: dict[str, Change] = {
    "data outside": lambda i: i.update(data_path="../other/{file_index}{episode_index}"),
    "data absolute": lambda i: i.update(data_path="/tmp/{file_index}"),
    "video outside": lambda i: i.update(video_path="{video_key}/../../{file_index}"),
    "template attribute": lambda i: i.update(data_path="{file_index.__class__.__mro__}"),
    "fps doubled": lambda i: i.update(fps=60),
    "fps one more": lambda i: i.update(fps=31),
    "fps zero": lambda i: i.update(fps=0),
    "fps NaN": lambda i: i.update(fps=float("nan")),
    "frames 1e12": lambda i: i.update(total_frames=10**12),
    "one episode fewer": lambda i: i.update(total_episodes=len(LENGTHS) - 1),
    "one episode more": lambda i: i.update(total_episodes=len(LENGTHS) + 1),
    "one frame more": lambda i: i.update(total_frames=sum(LENGTHS) + 1),
    "tasks negative": lambda i: i.update(total_tasks=-1),
    "other version": lambda i: i.update(codebase_version="v9.0"),
    "no features": lambda i: i.pop("features"),
    "features a list": lambda i: i.update(features=[1, 2]),
    "action narrower": _feature("action", shape=[19]),
    "action wider": _feature("action", shape=[21]),
    "action a billion wide": _feature("action", shape=[10**9]),
    "action a string": _feature("action", dtype="string", shape=[1]),
    "camera of another size": _feature(KEYS[0], shape=[64, 96, 3]),
    "camera turned": _feature(KEYS[0], shape=[96, 32, 3]),
    "a feature too many": lambda i: i["features"].update(torque={"dtype": "float32", "shape": [3]}),  # type: ignore[attr-defined]
    "a camera too many": lambda i: i["features"].update(nose={"dtype": "video", "shape": [*SIZE, 3]}),  # type: ignore[attr-defined]
}


def _info(change: Change) -> Apply:
    def apply(root: Path, rng: np.random.Generator) -> None:
        path = root / "meta/info.json"
        info = json.loads(path.read_text())
        change(info)
        path.write_text(json.dumps(info))
        reseal(root)

    return apply


def _cell(name: str, row: int, value: float) -> Callable[[pa.Table], pa.Table]:
    """One number of one row changed."""

    def edit(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        rows = table[name].to_pylist()
        if isinstance(rows[row], list):
            rows[row][3] = value
        else:
            rows[row] = value
        return table.set_column(place, name, pa.array(rows, table.schema.field(name).type))

    return edit


def _retype(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    return lambda t: t.set_column(t.schema.get_field_index(name), name, pa.array([None] * len(t), kind))


DATA: dict[str, Callable[[pa.Table], pa.Table]] = {
    "NaN in action": _cell("action", 2, float("nan")),
    "infinity in state": _cell("observation.state", 1, float("inf")),
    "frame_index jumps": _cell("frame_index", 2, 7),
    "index jumps": _cell("index", 1, 10**9),
    "index negative": _cell("index", 0, -1),
    "episode_index of another": _cell("episode_index", 2, 3),
    "timestamp stands still": _cell("timestamp", 2, 0.0),
    "timestamp NaN": _cell("timestamp", 1, float("nan")),
    "task out of range": _cell("task_index", 1, 99),
    "task negative": _cell("task_index", 1, -1),
    "one row fewer": lambda t: t.slice(1),
    "one row more": lambda t: pa.concat_tables([t, t.slice(0, 1)]),
    "rows reversed": lambda t: t.take(list(reversed(range(len(t))))),
    "two rows swapped": lambda t: t.take([1, 0, *range(2, len(t))]),
    "no rows": lambda t: t.slice(0, 0),
    "no action": lambda t: t.drop_columns(["action"]),
    "no index": lambda t: t.drop_columns(["index"]),
    "action all null": _retype("action", pa.list_(pa.float32(), 20)),
    "action strings": _retype("action", pa.string()),
    "action ragged": lambda t: t.set_column(
        t.schema.get_field_index("action"), "action", pa.array([[0.0] * (19 + n % 2) for n in range(len(t))])
    ),
    "state of another width": lambda t: t.set_column(
        t.schema.get_field_index("observation.state"),
        "observation.state",
        pa.array([[0.0] * 7] * len(t), pa.list_(pa.float32(), 7)),
    ),
}


def _data(edit: Callable[[pa.Table], pa.Table]) -> Apply:
    def apply(root: Path, rng: np.random.Generator) -> None:
        path = sorted((root / "data").glob("*/*.parquet"))[0]
        pq.write_table(edit(pq.read_table(path, partitioning=None)), path)
        reseal(root)

    return apply


def _encode(path: Path, count: int, size: tuple[int, int] = SIZE, fps: int = 30) -> None:
    with VideoWriter(path, size, fps) as video:
        for n in range(count):
            video.write(np.full((*size, 3), 9 * n % 256, np.uint8))


def _sound_only(path: Path, count: int) -> None:
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16000
        container.mux([*stream.encode(frame), *stream.encode(None)])


VIDEO: dict[str, Callable[[Path, int], None]] = {
    "one frame fewer": lambda p, n: _encode(p, n - 1),
    "one frame more": lambda p, n: _encode(p, n + 1),
    "another size": lambda p, n: _encode(p, n, (64, 64)),
    "another rate": lambda p, n: _encode(p, n, fps=25),
    "only sound": _sound_only,
    "a text": lambda p, n: p.write_text("not a video\n" * 99) and None,
    "a parquet": lambda p, n: pq.write_table(pa.table({"a": [1]}), p),
    "a script": lambda p, n: p.write_text("#!/bin/sh\nexit 1\n") and None,
    "a playlist": lambda p, n: p.write_text("#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n") and None,
}


def _video(make: Callable[[Path, int], None]) -> Apply:
    def apply(root: Path, rng: np.random.Generator) -> None:
        path = sorted((root / "videos").rglob("*.mp4"))[0]
        with av.open(str(path)) as container:
            count = container.streams.video[0].frames
        path.unlink()
        make(path, count)
        reseal(root)

    return apply


def _column(name: str, change: Callable[[list[object]], list[object]]) -> Callable[[pa.Table], pa.Table]:
    def edit(table: pa.Table) -> pa.Table:
        values = pa.array(change(table[name].to_pylist()), table.schema.field(name).type)
        return table.set_column(table.schema.get_field_index(name), name, values)

    return edit


def _bump(name: str, by: float, row: int = 1) -> Callable[[pa.Table], pa.Table]:
    return _column(name, lambda v: [x + by if i == row else x for i, x in enumerate(v)])  # type: ignore[operator]


EPISODES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "gap": lambda t: t.take([0, 2]),
    "reversed": lambda t: t.take([2, 1, 0]),
    "repeated": lambda t: pa.concat_tables([t, t.slice(0, 1)]),
    "none": lambda t: t.slice(0, 0),
    "longer": _bump("length", 1),
    "negative length": _column("length", lambda v: [-5, *v[1:]]),
    "zero length": _column("length", lambda v: [0, *v[1:]]),
    "huge length": _column("length", lambda v: [1 << 60, *v[1:]]),
    "null length": _column("length", lambda v: [None, *v[1:]]),
    "from moved": _bump("dataset_from_index", 1),
    "to moved": _bump("dataset_to_index", -1),
    "another data file": _bump("data/file_index", 40),
    "data file negative": _bump("data/file_index", -40),
    "data file huge": _bump("data/file_index", 1 << 40),
    "data chunk elsewhere": _bump("data/chunk_index", 3),
    "video file elsewhere": _bump(f"videos/{KEYS[0]}/file_index", 9),
    "video later by a frame": _bump(f"videos/{KEYS[0]}/from_timestamp", 1 / 30),
    "video both later by a frame": lambda t: _bump(f"videos/{KEYS[0]}/to_timestamp", 1 / 30)(
        _bump(f"videos/{KEYS[0]}/from_timestamp", 1 / 30)(t)
    ),
    "video before the start": _bump(f"videos/{KEYS[0]}/from_timestamp", -1.0),
    "video past the end": _bump(f"videos/{KEYS[0]}/to_timestamp", 99.0),
    "video between frames": _bump(f"videos/{KEYS[0]}/from_timestamp", 0.4 / 30),
    "video NaN": _bump(f"videos/{KEYS[0]}/from_timestamp", float("nan")),
    "video infinite": _bump(f"videos/{KEYS[0]}/to_timestamp", float("inf")),
    "unknown task": _column("tasks", lambda v: [["juggle"], *v[1:]]),
    "task of another": _column("tasks", lambda v: [v[1], *v[1:]]),
    "no task": _column("tasks", lambda v: [[], *v[1:]]),
    "no length column": lambda t: t.drop_columns(["length"]),
    "no video column": lambda t: t.drop_columns([f"videos/{KEYS[1]}/file_index"]),
    "lengths as text": lambda t: t.set_column(
        2, "length", pa.array([str(n) for n in t["length"].to_pylist()])
    ),
}


def _episodes(edit: Callable[[pa.Table], pa.Table]) -> Apply:
    def apply(root: Path, rng: np.random.Generator) -> None:
        path = root / "meta/episodes/chunk-000/file-000.parquet"
        pq.write_table(edit(pq.read_table(path, partitioning=None)), path)
        reseal(root)

    return apply


TASKS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "one fewer": lambda t: t.slice(1),
    "numbered twice": _column("task_index", lambda v: [0] * len(v)),
    "numbered from one": _column("task_index", lambda v: [i + 1 for i in v]),  # type: ignore[operator]
    "no names": lambda t: t.drop_columns(["task"]),
    "null name": _column("task", lambda v: [None, *v[1:]]),
    "null number": _column("task_index", lambda v: [None, *v[1:]]),
}


def _tasks(edit: Callable[[pa.Table], pa.Table]) -> Apply:
    def apply(root: Path, rng: np.random.Generator) -> None:
        path = root / "meta/tasks.parquet"
        pq.write_table(edit(pq.read_table(path, partitioning=None)), path)
        reseal(root)

    return apply


LINES: dict[str, Callable[[list[dict[str, object]]], object]] = {
    "gap": lambda r: r.pop(1),
    "reversed": lambda r: r.reverse(),
    "repeated": lambda r: r.append(r[0]),
    "none": lambda r: r.clear(),
    "longer": lambda r: r[1].update(length=LENGTHS[1] + 1),
    "shifted by one": lambda r: (r[0].update(length=LENGTHS[0] + 1), r[1].update(length=LENGTHS[1] - 1)),
    "negative length": lambda r: r[0].update(length=-1),
    "huge length": lambda r: r[0].update(length=10**12),
    "length as text": lambda r: r[0].update(length="5"),
    "length true": lambda r: r[0].update(length=True),
    "unknown task": lambda r: r[0].update(tasks=["juggle"]),
    "tasks null": lambda r: r[0].update(tasks=None),
    "no tasks": lambda r: r[0].pop("tasks"),
}


def _lines(edit: Callable[[list[dict[str, object]]], object]) -> Apply:
    def apply(root: Path, rng: np.random.Generator) -> None:
        path = root / "meta/episodes.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        edit(records)
        path.write_text("".join(json.dumps(r) + "\n" for r in records))

    return apply

"""Reading: every number, every frame, of every version, from files cut in every way."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hostbot.data.schema import parse_schema
from hostbot.data.store import Dataset, open_dataset
from hostbot.data.tasks import read_tasks
from hostbot.types import BadInput, DataError
from tests.data.build import (
    SIZE,
    VIEWS,
    Episode,
    everything,
    make_episodes,
    read_bars,
    same,
    write_v2,
    write_v3,
)

LENGTHS = (7, 31, 12, 1, 40, 18)


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    return make_episodes(3, LENGTHS)


@pytest.fixture(scope="module")
def v3(tmp_path_factory: pytest.TempPathFactory, episodes: list[Episode]) -> Path:
    root = tmp_path_factory.mktemp("v3") / "set"
    write_v3(root, episodes, batch=4)
    return root


@pytest.fixture(scope="module")
def v21(tmp_path_factory: pytest.TempPathFactory, episodes: list[Episode]) -> Path:
    root = tmp_path_factory.mktemp("v21") / "set"
    write_v2(root, episodes)
    return root


def check(dataset: Dataset, episodes: list[Episode]) -> None:
    assert len(dataset) == len(episodes)
    assert dataset.views == VIEWS
    for e in episodes:
        assert dataset.episode(e.number).length == len(e)
        assert dataset.episode(e.number).tasks == tuple(dict.fromkeys(e.tasks))
        assert [dataset.tasks[i] for i in dataset.frame_tasks(e.number)] == e.tasks
        rows = dataset.rows(e.number, list(e.rows))
        for name, expected in e.rows.items():
            assert rows[name].dtype == expected.dtype
            np.testing.assert_array_equal(rows[name], expected)
        for view in VIEWS:
            frames = dataset.frames(e.number, view, range(len(e)))
            assert [read_bars(f) for f in frames] == e.codes(view)


@pytest.mark.parametrize("version", ["v2.1", "v2.0"])
def test_v2_folders_read_the_same(tmp_path: Path, version: str) -> None:
    episodes = make_episodes(4, (9, 22, 5))
    write_v2(tmp_path / "set", episodes, version=version)
    dataset = open_dataset(tmp_path / "set")
    assert dataset.schema.version == version
    check(dataset, episodes)


def test_v3_reads_every_number_and_frame(v3: Path, episodes: list[Episode]) -> None:
    check(open_dataset(v3), episodes)


def test_v3_and_v21_agree(v3: Path, v21: Path) -> None:
    for ours, theirs in zip(everything(open_dataset(v3)), everything(open_dataset(v21)), strict=True):
        for name in ("action", "observation.state", "gripper.closed"):
            np.testing.assert_array_equal(ours[name], theirs[name])  # type: ignore[arg-type]
        assert ours["tasks"] == theirs["tasks"]


def test_frames_come_in_the_order_asked(v3: Path, episodes: list[Episode]) -> None:
    dataset, rng = open_dataset(v3, max_open_videos=1), np.random.default_rng(0)
    for _ in range(40):
        e = episodes[rng.integers(len(episodes))]
        view = VIEWS[rng.integers(3)]
        wanted = rng.integers(0, len(e), rng.integers(1, 6))
        codes = [e.codes(view)[i] for i in wanted]
        assert [read_bars(f) for f in dataset.frames(e.number, view, wanted)] == codes
        assert [
            read_bars(f) for f in dataset.frames(e.number, f"observation.images.{view}", list(wanted))
        ] == codes


def test_frames_can_be_resized_and_none_asked(v3: Path) -> None:
    dataset = open_dataset(v3)
    assert dataset.frames(0, VIEWS[0], [1, 0], (16, 48)).shape == (2, 16, 48, 3)
    assert dataset.frames(0, VIEWS[0], []).shape == (0, *SIZE, 3)


@pytest.mark.parametrize("group", [1, 5, 64, 10_000])
def test_row_groups_need_not_match_episodes(tmp_path: Path, episodes: list[Episode], group: int) -> None:
    write_v3(tmp_path / "set", episodes)
    path = tmp_path / "set/data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(path), path, row_group_size=group)
    check(open_dataset(tmp_path / "set", verify=False), episodes)


def test_what_the_dataset_lacks_is_said(v3: Path) -> None:
    dataset = open_dataset(v3)
    for ask in (
        lambda: dataset.rows(0, ["torque"]),
        lambda: dataset.frames(0, "nose", [0]),
        lambda: dataset.frames(0, VIEWS[0], [LENGTHS[0]]),
        lambda: dataset.frames(0, VIEWS[0], [-1]),
        lambda: dataset.episode(99),
        lambda: dataset.rows(-1, ["action"]),
    ):
        with pytest.raises(BadInput) as told:
            ask()
        assert "\n" not in str(told.value)


def test_a_forked_and_a_pickled_dataset_read_alike(v3: Path, episodes: list[Episode]) -> None:
    dataset = open_dataset(v3)
    dataset.frames(1, VIEWS[0], [3])
    check(pickle.loads(pickle.dumps(dataset)), episodes)
    child = os.fork()
    if child == 0:
        right = [read_bars(f) for f in dataset.frames(1, VIEWS[0], range(31))] == episodes[1].codes(VIEWS[0])
        os._exit(0 if right else 1)
    assert [read_bars(f) for f in dataset.frames(1, VIEWS[0], range(31))] == episodes[1].codes(VIEWS[0])
    assert os.waitpid(child, 0)[1] == 0


def edit_info(root: Path, **changes: object) -> None:
    path = root / "meta/info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_feature(root: Path, name: str, value: dict[str, object] | None) -> None:
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    info["features"].pop(name, None)
    info["features"] |= {name: value} if value is not None else {}
    path.write_text(json.dumps(info))


def test_other_kinds_of_features_are_tolerated_and_listed(tmp_path: Path) -> None:
    episodes = make_episodes(5, (6, 4))
    write_v2(tmp_path / "set", episodes, views=VIEWS[:1])
    said = pa.struct([("role", pa.string()), ("content", pa.string())])
    for e in episodes:
        path = tmp_path / f"set/data/chunk-000/episode_{e.number:06d}.parquet"
        table = pq.read_table(path)
        n = len(table)
        table = table.append_column(
            "touch", pa.array([[[0.5, 1.0]] * 3] * n, pa.list_(pa.list_(pa.float32())))
        )
        table = table.append_column("note", pa.array(["x"] * n))
        table = table.append_column("count", pa.array(range(n), pa.int32()))
        table = table.append_column(
            "language_events", pa.array([[{"role": "u", "content": "c"}]] * n, pa.list_(said))
        )
        pq.write_table(table, path)
    root = tmp_path / "set"
    edit_feature(root, "touch", {"dtype": "float32", "shape": [3, 2], "names": None})
    edit_feature(root, "note", {"dtype": "string", "shape": [1], "names": None})
    edit_feature(root, "count", {"dtype": "int32", "shape": [1]})
    edit_feature(root, "language_events", {"dtype": "language", "shape": [1], "names": None})
    dataset = open_dataset(root)
    assert set(dataset.unread) == {"touch", "note", "language_events"}
    np.testing.assert_array_equal(dataset.rows(0, ["count"])["count"], np.arange(6)[:, None])
    with pytest.raises(BadInput, match="2 dimensions"):
        dataset.rows(0, ["touch"])


def test_pictures_in_the_parquet_are_a_view(tmp_path: Path) -> None:
    episodes = make_episodes(6, (6, 40))
    root = tmp_path / "set"
    write_v2(root, episodes, views=())
    for e in episodes:
        path = root / f"data/chunk-000/episode_{e.number:06d}.parquet"
        cells = [{"bytes": png(image), "path": f"{n}.png"} for n, image in enumerate(e.frames(VIEWS[0]))]
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        pq.write_table(pq.read_table(path).append_column("observation.image", pa.array(cells, kind)), path)
    edit_feature(
        root, "observation.image", {"dtype": "image", "shape": [3, *SIZE], "names": ["channels", "h", "w"]}
    )
    dataset = open_dataset(root)
    assert dataset.views == ("image",)
    for e in episodes:
        expected = np.stack(list(e.frames(VIEWS[0])))
        np.testing.assert_array_equal(dataset.frames(e.number, "image", range(len(e))), expected)
        np.testing.assert_array_equal(dataset.frames(e.number, "image", [4, 1, 4]), expected[[4, 1, 4]])
    assert dataset.frames(0, "image", [0], (16, 48)).shape == (1, 16, 48, 3)


def png(image: np.ndarray) -> bytes:
    context = av.CodecContext.create("png", "w")
    context.height, context.width, context.pix_fmt = *image.shape[:2], "rgb24"  # type: ignore[attr-defined]
    packets = [*context.encode(av.VideoFrame.from_ndarray(image, format="rgb24")), *context.encode(None)]  # type: ignore[attr-defined]
    return b"".join(bytes(p) for p in packets)


@pytest.mark.parametrize("column", ["__index_level_0__", "task"])
def test_both_spellings_of_the_tasks_table(tmp_path: Path, column: str) -> None:
    write_v3(tmp_path / "set", make_episodes(7, (3, 4)), views=())
    path = tmp_path / "set/meta/tasks.parquet"
    table = pq.read_table(path).rename_columns({"task": column}).replace_schema_metadata(None)
    pq.write_table(table.take([1, 0]), path)
    dataset = open_dataset(tmp_path / "set", verify=False)
    assert read_tasks(dataset.files, dataset.schema) == dataset.tasks == ("fold the towel", "open the drawer")


SANE = {"dtype": "float32", "shape": [20], "names": None}


@pytest.mark.parametrize(
    "change",
    [
        {"data_path": "/etc/passwd{episode_index}"},
        {"data_path": "../../{episode_index}.parquet"},
        {"data_path": "data/{episode_index.__class__}.parquet"},
        {"data_path": "data/{0.__class__}/{episode_index}.parquet"},
        {"data_path": "data/{episode_index!r}.parquet"},
        {"data_path": "data/{episode_index:999999999d}.parquet"},
        {"data_path": "data/{episode_index"},
        {"data_path": "data/one.parquet"},
        {"data_path": "~/{episode_index}.parquet"},
        {"video_path": "videos/{video_key}/../../../{episode_index}.mp4"},
        {"video_path": None},
        {"video_path": 3},
        {"fps": 0},
        {"fps": -30},
        {"fps": "30"},
        {"fps": True},
        {"fps": 1e300},
        {"total_frames": 10**12},
        {"total_episodes": -1},
        {"total_episodes": 1.5},
        {"chunks_size": 0},
        {"total_tasks": 10**9},
        {"codebase_version": "v1.6"},
        {"codebase_version": "v4.0"},
        {"codebase_version": ["v2.1"]},
        {"features": []},
        {"features": {}},
    ],
)
def test_nonsense_in_info_is_told(v21: Path, tmp_path: Path, change: dict[str, object]) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text((v21 / "meta/info.json").read_text())
    edit_info(tmp_path, **change)
    with pytest.raises(DataError, match=r"meta/info\.json") as told:
        open_dataset(tmp_path)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("action", SANE | {"shape": [10**12]}),
        ("action", SANE | {"shape": [-20]}),
        ("action", SANE | {"shape": "20"}),
        ("action", SANE | {"shape": [True]}),
        ("action", {"shape": [20]}),
        ("../up", SANE),
        ("a/b", SANE),
        ("observation.images.left_wrist", {"dtype": "video", "shape": [32, 10**6, 3], "names": None}),
        ("observation.images.left_wrist", {"dtype": "video", "shape": [32], "names": None}),
        ("timestamp", None),
        ("index", SANE),
    ],
)
def test_nonsense_features_are_told(
    v21: Path, tmp_path: Path, name: str, value: dict[str, object] | None
) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text((v21 / "meta/info.json").read_text())
    edit_feature(tmp_path, name, value)
    with pytest.raises(DataError, match=r"meta/info\.json"):
        open_dataset(tmp_path)


@pytest.mark.parametrize(
    "raw", [b"", b"\xff\xfe{", b"[1]", b"{", b"[" * 100_000, b"nul", b'{"fps": ' + b"9" * 5000 + b"}"]
)
def test_json_that_is_none_is_told(raw: bytes) -> None:
    with pytest.raises(DataError):
        parse_schema(raw, Path("meta/info.json"))


def test_short_names_never_collide(tmp_path: Path, v21: Path) -> None:
    info = json.loads((v21 / "meta/info.json").read_text())
    info["features"]["observation.left_wrist"] = info["features"]["observation.images.left_wrist"]
    schema = parse_schema(json.dumps(info).encode(), tmp_path)
    assert len(schema.views) == 4
    assert "observation.left_wrist" in schema.views
    assert "observation.images.left_wrist" in schema.views
    assert "right_wrist" in schema.views


def test_equal_content_is_equal_and_other_is_not(v3: Path, v21: Path) -> None:
    ours = everything(open_dataset(v3))
    assert same(ours, everything(open_dataset(v3)))
    assert not same(ours, everything(open_dataset(v21)))

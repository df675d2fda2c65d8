"""Describing a dataset: right for every version, quick and flat in memory for thousands of episodes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hostbot.data.info import DatasetInfo, describe
from hostbot.data.stats import StatsConfig, compute_statistics, save_statistics, statistics_path
from hostbot.data.store import open_dataset
from tests.damage.datasets import reseal
from tests.data.build import VIEWS, make_episodes, write_v2, write_v3

LENGTHS = (5, 9, 3, 7)


def dataset_info(path: Path) -> DatasetInfo:
    return describe(open_dataset(path), path)


def test_info_of_our_own(tmp_path: Path) -> None:
    write_v3(tmp_path / "set", make_episodes(1, LENGTHS), VIEWS)
    info = dataset_info(tmp_path / "set")
    assert (info.layout, info.num_episodes, info.num_frames, info.fps) == ("LeRobot v3.0", 4, 24, 30)
    assert info.hours == 24 / 30 / 3600
    assert info.tasks == {"fold the towel": 1, "open the drawer": 1, "stack two cups": 1, "wipe the table": 2}
    assert list(info.views) == list(VIEWS)
    assert asdict(info.views[VIEWS[0]]) == {
        "key": f"observation.images.{VIEWS[0]}",
        "height": 32,
        "width": 96,
        "codec": "h264",
    }
    assert set(info.features) == {"observation.state", "action", "gripper.closed"}
    assert info.features["action"].names is not None
    assert (info.robot_type, info.embodiment, info.num_events) == ("test_arms", "bimanual", 4)
    assert not info.has_statistics
    assert info.has_checksums
    assert info.length_quantiles == {"0%": 3, "25%": 4.5, "50%": 6, "75%": 7.5, "100%": 9}
    assert info.num_bytes == sum(f.stat().st_size for f in (tmp_path / "set").rglob("*") if f.is_file())
    json.dumps(asdict(info))
    save_statistics(
        compute_statistics(open_dataset(tmp_path / "set"), StatsConfig()), statistics_path(tmp_path / "set")
    )
    assert dataset_info(tmp_path / "set").has_statistics


def test_info_of_a_v21_folder(tmp_path: Path) -> None:
    write_v2(tmp_path / "set", make_episodes(1, LENGTHS), VIEWS[:1])
    info = dataset_info(tmp_path / "set")
    assert (info.layout, info.num_episodes, info.num_events, info.embodiment) == ("LeRobot v2.1", 4, 0, None)
    assert not info.has_checksums
    assert info.views[VIEWS[0]].codec == "h264"


def grow(root: Path, count: int) -> None:
    """Repeat the one episode of a dataset ``count`` times, in its metadata and its rows."""
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    row = pq.read_table(path)
    table = row.take(pa.array(np.zeros(count, np.int64)))
    length = row["length"][0].as_py()
    start = np.arange(count) * length
    changes = {
        "episode_index": np.arange(count),
        "dataset_from_index": start,
        "dataset_to_index": start + length,
    }
    for name in row.column_names:
        if name.endswith("/from_timestamp"):
            changes |= {name: start / 30, name.replace("/from_", "/to_"): (start + length) / 30}
    for name, values in changes.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    pq.write_table(table, path)
    data = root / "data/chunk-000/file-000.parquet"
    rows = pq.read_table(data).take(pa.array(np.tile(np.arange(length), count)))
    for name, values in (
        ("index", np.arange(count * length)),
        ("episode_index", np.repeat(np.arange(count), length)),
    ):
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    pq.write_table(rows, data, row_group_size=1000 * length)
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(
        json.dumps(info | {"total_episodes": count, "total_frames": count * length})
    )
    reseal(root)


MEASURE = """
import sys
from hostbot.cli import main
assert main(["data", "info", sys.argv[1], "--json"]) == 0
assert "torch" not in sys.modules
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak, file=sys.stderr)
"""


def test_memory_stays_flat_however_many_episodes_there_are(tmp_path: Path) -> None:
    kilobytes = {}
    for count in (20, 2000, 20_000):
        root = tmp_path / str(count)
        write_v3(root, make_episodes(2, (8,)), VIEWS)
        grow(root, count)
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(root)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["num_episodes"] == count
        kilobytes[count] = int(done.stderr.split()[-1])
    assert kilobytes[2000] - kilobytes[20] < 20_000
    assert kilobytes[20_000] - kilobytes[20] < 60_000

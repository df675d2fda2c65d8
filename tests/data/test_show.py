"""Contact sheets and recordings show the frames, times and numbers they claim to."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from hostbot.data.recording import write_recording
from hostbot.data.sheet import contact_sheet
from hostbot.types import EpisodeInfo, Event, bimanual


class Levels:
    """Two episodes in which every frame's brightness is its number."""

    name, fps, views, embodiment = "levels", 10.0, ("left_wrist", "third_person"), bimanual()
    widths = MappingProxyType({"action": 20})

    def __len__(self):
        return 2

    def episode(self, index):
        return EpisodeInfo(index=index, length=50, instruction=f"task {index}", tasks=(f"task {index}",))

    def rows(self, index, names):
        return {name: np.zeros((50, 20), np.float32) for name in names}

    def frames(self, index, view, frame_indices, size=None):
        height, width = size or (40, 80)
        return np.stack([np.full((height, width, 3), 5 * n, np.uint8) for n in frame_indices])

    def events(self, index):
        return (Event(name="grasp", frame=20),)


def test_the_sheet_shows_first_to_last_frame_in_order():
    sheet = np.asarray(contact_sheet(Levels(), [0, 1], columns=6, tile=60)).astype(int)
    # The middle of every tile: 84 pixels of label, then tiles of 60 with gaps of 3.
    columns = [12 + 84 + 63 * c + 30 for c in range(6)]
    expected = [5 * round(x) for x in np.linspace(0, 49, 6)]
    rows_shown = 0
    for row in range(sheet.shape[0]):
        levels = [sheet[row, column].tolist() for column in columns]
        if levels == [[level] * 3 for level in expected]:
            rows_shown += 1
    # Two episodes, two views each, pictures half as high as the tile.
    assert rows_shown == 2 * 2 * 30


@pytest.mark.skipif(
    not shutil.which("rerun", path=str(Path(sys.executable).parent)), reason="needs hostbot[rerun]"
)
def test_the_recording_holds_every_stream(tmp_path):
    write_recording(Levels(), [0, 1], tmp_path / "r.rrd")
    rerun = Path(sys.executable).parent / "rerun"
    environment = {**os.environ, "HOME": str(tmp_path), "RERUN_ANALYTICS": "0"}
    done = subprocess.run(
        [rerun, "rrd", "print", "-v", tmp_path / "r.rrd"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    for episode in (0, 1):
        for entity in ("action", "events", "instruction", "views/left_wrist", "views/third_person"):
            assert f"/episode_{episode}/{entity}" in done.stdout
    assert (
        subprocess.run([rerun, "rrd", "verify", tmp_path / "r.rrd"], env=environment, timeout=60).returncode
        == 0
    )

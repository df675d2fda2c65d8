"""Every example runs as its first lines say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostbot.serve.rehearsal import Rehearsal
from hostbot.types import bimanual
from tests.serve.running import running

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_mock_robot_stands_still_against_a_rehearsal(tmp_path):
    with running(Rehearsal(bimanual(16.0), 16)) as server:
        done = subprocess.run(
            [sys.executable, EXAMPLES / "mock_robot.py", "--url", server.url, "--seconds", "2"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60,
            env={k: v for k, v in os.environ.items() if k != "HOSTBOT_TOKEN"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "running after" in done.stdout
    assert "0 chunks were refused" in done.stdout
    assert not (tmp_path / "refused.jsonl").exists()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_no_example_is_left_out(path):
    assert path.name in Path(__file__).read_text()

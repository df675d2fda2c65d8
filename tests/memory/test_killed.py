"""Killed at random moments: what was acknowledged is there, and nothing is half there."""

import random
import subprocess
import sys
import time

import pytest

from hostbot.memory import open_memory
from hostbot.memory.files import sha256_of
from tests.memory.fakes import FakeEmbedder


def kill_while_adding(folder, seed, writers=2):
    """What two writers said before both were killed in the middle of it."""
    command = [sys.executable, "-m", "tests.memory.adder", str(folder)]
    started = [subprocess.Popen([*command, f"w{n}-{seed}"], stdout=subprocess.PIPE) for n in range(writers)]
    assert [process.stdout.readline() for process in started] == [b"ready\n"] * writers
    time.sleep(random.Random(seed).uniform(0, 0.4))
    for process in started:
        process.kill()
    said = [process.communicate()[0].decode() for process in started]
    return [line.split() for output in said for line in output.splitlines(keepends=True) if line[-1] == "\n"]


def told(lines, word):
    return {one for line in lines if line[0] == word for one in line[1:]}


@pytest.mark.parametrize(
    "num_kills", [5, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_killed_at_random_moments(tmp_path, num_kills):
    lines = []
    for seed in range(num_kills):
        lines += kill_while_adding(tmp_path / "m", seed)
        with open_memory(tmp_path / "m", FakeEmbedder()) as memory:
            entries = {e.id: e for e in memory.entries(all_versions=True)}
            # A removal that was under way may have been done or not; all else is certain.
            assert told(lines, "added") - told(lines, "removing") <= entries.keys()
            assert not told(lines, "removed") & entries.keys()
            assert all(sha256_of(memory.video(e)) == e.sha256 for e in entries.values())
            assert [w for w in memory.store.check() if not w.startswith("no entry names")] == []
            memory.query("task 1")
    assert len(told(lines, "added")) > num_kills
    with open_memory(tmp_path / "m", FakeEmbedder()) as memory:
        memory.store.sweep()
        assert memory.store.check() == []

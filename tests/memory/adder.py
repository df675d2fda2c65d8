"""Adds to a memory, and now and then removes, until it is killed; prints what it has been told is done."""

import sys
from pathlib import Path

from hostbot.memory import open_memory
from tests.memory.fakes import FakeEmbedder, clip

folder, writer = Path(sys.argv[1]), sys.argv[2]
video = folder.with_suffix(f".{writer}.mp4")
with open_memory(folder, FakeEmbedder()) as memory:
    clip(video)
    print("ready", flush=True)
    for number in range(10**9):
        clip(video)
        added = memory.add(video, f"task {number % 7} of {writer}").entry
        print("added", added.id, flush=True)
        if number % 5 == 4:
            ids = [e.id for e in memory.entries(all_versions=True) if e.name == added.name]
            print("removing", *ids, flush=True)
            memory.remove(added.name)
            print("removed", *ids, flush=True)

"""How long a query takes as a memory grows, and what adding costs: SQLite and one matrix product.

Vectors are random: speed does not depend on their values, and no index is there whose recall could.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from measure import commit, hardware, percentiles, save

from hostbot.memory import DemonstrationMemory, Retrieval
from hostbot.memory.entry import Embedded, Entry
from hostbot.memory.sqlite import SqliteStore


class Drawn:
    """Unit vectors drawn in turn."""

    identity = "drawn"

    def __init__(self, text: int, scene: int) -> None:
        self.rng, self.text, self.scene = np.random.default_rng(0), text, scene

    def embed_text(self, texts):
        return self.rng.normal(size=(len(texts), self.text))

    def embed_scene(self, images):
        return self.rng.normal(size=(len(images), self.scene))


def unit(rng: np.random.Generator, width: int) -> np.ndarray:
    vector = rng.normal(size=width).astype(np.float32)
    return vector / np.linalg.norm(vector)


def fill(store: SqliteStore, count: int, text: int, scene: int) -> float:
    """Rows as ``add`` writes them, in one transaction (a hundred thousand flushes would take an hour); seconds."""
    rng, begin = np.random.default_rng(1), time.perf_counter()
    blank = Entry(
        id="", name="", version=1, instruction="stack the bowls", sha256="0" * 64, suffix=".mp4", num_bytes=0,
        num_frames=100, duration_s=5.0, created="2026-01-01T00:00:00",
    )  # fmt: skip
    with store._writing():
        for i in range(count):
            entry = replace(blank, id=f"{i:032x}", name=f"skill-{i}")
            store._insert(entry, Embedded(entry=entry, text=unit(rng, text), scene=unit(rng, scene)))
    return time.perf_counter() - begin


def measure(folder: Path, count: int, text: int, scene: int, queries: int) -> dict[str, object]:
    video = folder / "v.mp4"
    write_clip(video)
    memory = DemonstrationMemory(
        SqliteStore(folder / f"{count}-{text}"), Drawn(text, scene), Retrieval(delta=-1)
    )
    view = np.zeros((64, 64, 3), np.uint8)
    adds = [timed(lambda i=i: memory.add(video, f"task {i}")) for i in range(10)]
    filled = fill(memory.store, count - 10, text, scene)
    first = timed(lambda: memory.query("warm", view))
    asked = [timed(lambda: memory.query("stack the bowls", view)) for _ in range(queries)]
    memory.store.close()
    return {
        "entries": count, "text_width": text, "scene_width": scene, "query_ms": percentiles(asked),
        "first_query_s": round(first / 1e3, 2), "add_ms": percentiles(adds), "bulk_insert_s": round(filled, 1),
        "max_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }  # fmt: skip


def timed(work) -> float:
    begin = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - begin)


def write_clip(path: Path) -> None:
    from hostbot.video import VideoWriter

    with VideoWriter(path, (64, 64), 16) as writer:
        for i in range(32):
            writer.write(np.full((64, 64, 3), 4 * i, np.uint8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--largest", type=int, default=100_000)
    arguments = parser.parse_args()
    cases = [(c, 256, 128) for c in (1_000, 10_000, arguments.largest)] + [(10_000, 4096, 4096)]
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(Path(folder), *case, arguments.queries) for case in cases]
    found = {"hardware": hardware(torch.device("cpu")), "commit": commit(), "rows": rows}
    save(arguments.out, "memory", found)


if __name__ == "__main__":
    main()

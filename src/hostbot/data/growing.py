"""A mixture of samples that grows while a run learns from it: neither recording nor learning waits for the other.

A store is looked for below a folder, joins once it is whole, and is drawn from as often as it has samples. From which
step on is noted beside the run before it counts, so that what is drawn at a step stays a function of the step: a run
that goes on draws what the interrupted one would have.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from hostbot.data.batches import Batch, DrawConfig, Mixture, Pool
from hostbot.data.samples import MANIFEST, is_whole
from hostbot.types import BadInput, DataError

_LEAD = 4
"""Steps between the note of a store and the first that may draw from it: batches are drawn ahead."""
_SECONDS = 2.0
"""Between two looks at the folder."""


def whole_stores(folder: Path) -> Iterator[Path]:
    """Stores below a folder of which nothing is missing any more, by name."""
    for path in sorted(folder.rglob(MANIFEST)):
        if not path.parent.name.startswith(".") and is_whole(path.parent):
            yield path.parent


class Growing:
    """What ``Mixture`` is to a stage, with more to come."""

    def __init__(
        self, pools: Sequence[Pool], folder: Path, note: Path, opened: Callable[[Path], Pool]
    ) -> None:
        self._folder, self._note, self._open = folder, note, opened
        self._pools = list(pools)
        self._known = {pool.store.folder.resolve() for pool in pools}
        self._since = [(0, self._mixed())]
        self._thread = ThreadPoolExecutor(1, "stores")
        self._coming: Future[Pool | None] | None = None
        self._looked = 0.0
        for line in note.read_text().splitlines() if note.exists() else ():
            joined = json.loads(line)
            self._join(self._open(Path(joined["samples"])), joined["step"])

    @property
    def pools(self) -> Sequence[Pool]:
        """All that are drawn from by now."""
        return self._pools

    def draw(self, config: DrawConfig, seed: int, step: int, micro: int) -> Batch:
        """The micro-batch of this number, of what had joined by then."""
        mixture = next(mixed for since, mixed in reversed(self._since) if since <= step)
        return mixture.draw(config, seed, step, micro)

    def look(self, step: int) -> str | None:
        """Between steps: take in what is ready, go and get what is new; what joined, in words."""
        if self._coming is None:
            if time.monotonic() - self._looked > _SECONDS:
                self._looked = time.monotonic()
                self._coming = self._thread.submit(self._fetch)
            return None
        if not self._coming.done():
            return None
        coming, self._coming = self._coming, None
        try:
            pool = coming.result()
        except (BadInput, DataError) as reason:  # a run is not to end for what it need not have
            return f"samples are left out: {reason}"
        return None if pool is None else self._take_in(pool, step + _LEAD)

    def wait_for(self, samples: int, step: int, until: float, tell: Callable[[str], None]) -> None:
        """Before a step: until there are so many samples, or the clock says that there is no more time."""
        if self._count() < samples:
            tell(f"{self._count():,} samples are here; {samples:,} are waited for, below {self._folder}")
        while self._count() < samples and time.monotonic() < until:
            if said := self.look(step):
                tell(said)
            time.sleep(0.05)

    def _fetch(self) -> Pool | None:
        """One store that is new, made ready to be drawn from."""
        for path in whole_stores(self._folder):
            if path.resolve() not in self._known:
                self._known.add(path.resolve())
                return self._open(path)
        return None

    def _take_in(self, pool: Pool, since: int) -> str:
        self._write({"step": since, "samples": str(pool.store.folder.resolve())})
        self._join(pool, since)
        return f"from step {since} on also {pool.store.folder}, {len(pool):,} of {self._count():,} samples"

    def _count(self) -> int:
        return sum(len(pool) for pool in self._pools)

    def close(self) -> None:
        """Wait for nothing more."""
        self._thread.shutdown(cancel_futures=True)

    def _join(self, pool: Pool, since: int) -> None:
        self._known.add(pool.store.folder.resolve())
        self._pools.append(pool)
        self._since.append((since, self._mixed()))

    def _mixed(self) -> Mixture:
        pools = list(self._pools)
        return Mixture(pools=pools, weights=[float(len(pool)) for pool in pools])

    def _write(self, line: dict[str, object]) -> None:
        with self._note.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

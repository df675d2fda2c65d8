"""All vectors of a memory in one matrix: every score of a query is one matrix product, and exact.

Legend: N entries, d = text width + scene width, k candidates.
eq:retrieval_score is a dot product: s_i = [e^text_i ; e^img_i] · [ω e^text_q ; (1 − ω) e^img_q] for unit vectors.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float32

from hostbot.memory.entry import Candidate, Embedded, Entry


class Index:
    """Rows are appended as they come; older versions stay in the matrix and are not answered with."""

    def __init__(self, text_width: int, scene_width: int) -> None:
        self.text_width, self.scene_width = text_width, scene_width
        self._matrix = np.empty((64, text_width + scene_width), np.float32)
        self._in_force = np.zeros(64, bool)
        self._entries: list[Entry] = []
        self._latest: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._latest)

    def append(self, rows: Iterable[Embedded]) -> None:
        """Take entries over; a higher version of a name supersedes a lower one, in whatever order they come."""
        for row in rows:
            place = len(self._entries)
            if place == len(self._matrix):
                self._grow()
            self._matrix[place, : self.text_width] = row.text
            self._matrix[place, self.text_width :] = row.scene
            self._entries.append(row.entry)
            self._supersede(row.entry, place)

    def _supersede(self, entry: Entry, place: int) -> None:
        before = self._latest.get(entry.name)
        if before is not None and self._entries[before].age > entry.age:
            return
        if before is not None:
            self._in_force[before] = False
        self._in_force[place] = True
        self._latest[entry.name] = place

    def _grow(self) -> None:
        size = 2 * len(self._matrix)
        matrix, in_force = np.empty((size, self._matrix.shape[1]), np.float32), np.zeros(size, bool)
        matrix[: len(self._matrix)], in_force[: len(self._in_force)] = self._matrix, self._in_force
        self._matrix, self._in_force = matrix, in_force

    def best(
        self,
        text: Float32[np.ndarray, " t"] | None,
        scene: Float32[np.ndarray, " i"] | None,
        omega: float,
        k: int,
    ) -> list[Candidate]:
        """The k highest scores in descending order; what the query lacks has no weight."""
        count = len(self._entries)
        zero_text, zero_scene = np.zeros(self.text_width), np.zeros(self.scene_width)
        query = np.concatenate(
            [
                zero_text if text is None else omega * text,
                zero_scene if scene is None else (1 - omega) * scene,
            ]
        )
        scores = self._matrix[:count] @ query.astype(np.float32)
        scores[~self._in_force[:count]] = -np.inf
        k = min(k, len(self))
        if k == 0:
            return []
        places = np.argpartition(scores, count - k)[count - k :]
        found = [self._explained(int(place), text, scene, omega) for place in places]
        return sorted(found, key=lambda c: (-c.score, c.entry.name))

    def _explained(
        self,
        place: int,
        text: Float32[np.ndarray, " t"] | None,
        scene: Float32[np.ndarray, " i"] | None,
        omega: float,
    ) -> Candidate:
        """Both cosines again in double precision: a threshold is compared with these."""
        row = self._matrix[place].astype(np.float64)
        by_text = None if text is None else float(row[: self.text_width] @ text)
        by_scene = None if scene is None else float(row[self.text_width :] @ scene)
        score = omega * (by_text or 0.0) + (1 - omega) * (by_scene or 0.0)
        return Candidate(entry=self._entries[place], score=score, text=by_text, scene=by_scene)

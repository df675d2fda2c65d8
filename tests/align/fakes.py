"""Videos of a blob that crosses a coloured scene at an uneven pace: content that tells progress and task."""

import numpy as np

from hostbot.types import EpisodeInfo, Event

COLOURS = np.array([[220, 60, 60], [60, 200, 80], [70, 90, 230], [220, 200, 60]], np.uint8)


def film(task, path, size, view, seed=0):
    """Frames of the blob at ``path`` (progress in [0, 1], one a frame); each view looks from elsewhere."""
    rng = np.random.default_rng([seed, view])
    base = rng.integers(20, 60, 3).astype(np.uint8)
    frames = np.empty((len(path), size, size, 3), np.uint8)
    frames[:] = base
    radius = max(2, size // 6)
    for frame, share in zip(frames, path, strict=True):
        x = radius + int(share * (size - 2 * radius - 1))
        y = radius + int((0.5 + 0.4 * np.sin(3 * share + task + view)) * (size - 2 * radius - 1))
        frame[y - radius : y + radius, x - radius : x + radius] = COLOURS[task % len(COLOURS)]
    return frames


class FilmSource:
    """An episode source of such films; progress runs unevenly, so that the clock is wrong."""

    def __init__(
        self, name, num_tasks=3, per_task=4, views=("third_person",), fps=16.0, seed=0, lengths=(12, 20)
    ):
        rng = np.random.default_rng(seed)
        self.name, self.views, self.fps, self.seed = name, views, fps, seed
        self.widths, self.embodiment = {}, None
        self.data = []
        for task in range(num_tasks):
            for _ in range(per_task):
                length = int(rng.integers(*lengths))
                bend = rng.uniform(0.4, 2.5)
                self.data.append((task, np.linspace(0, 1, length) ** bend))
        self.reads = 0

    def __len__(self):
        return len(self.data)

    def episode(self, index):
        task, path = self.data[index]
        text = f"Move the blob {task}."
        return EpisodeInfo(index=index, length=len(path), instruction=text, tasks=(text,))

    def rows(self, index, names):
        return {}

    def frames(self, index, view, frame_indices, size=None):
        self.reads += 1
        task, path = self.data[index]
        side = (size or (32, 32))[0]
        return film(task, path[list(frame_indices)], side, self.views.index(view), self.seed + index)

    def events(self, index):
        path = self.data[index][1]
        return tuple(
            Event(name=f"at {share:.2f}", frame=int(np.argmin(np.abs(path - share))))
            for share in (0.25, 0.5, 0.75)
        )


def groups(**sources):
    """Task -> body -> episodes."""
    tasks = {}
    for body, source in sources.items():
        for index in range(len(source)):
            tasks.setdefault(source.episode(index).instruction, {}).setdefault(body, []).append(index)
    return tasks

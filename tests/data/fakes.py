"""An episode source held in memory, for tests that need no files."""

import numpy as np

from hostbot.types import EpisodeInfo, bimanual


class MemorySource:
    def __init__(self, episodes, *, name="memory", embodiment=None, fps=16.0, views=()):
        """``episodes`` are (instruction, {feature: array}) pairs."""
        self.data, self.name, self.embodiment, self.fps, self.views = episodes, name, embodiment, fps, views

    @property
    def widths(self):
        return {name: values.shape[1] for name, values in self.data[0][1].items()}

    def __len__(self):
        return len(self.data)

    def episode(self, index):
        instruction, rows = self.data[index]
        length = len(next(iter(rows.values())))
        return EpisodeInfo(index=index, length=length, instruction=instruction, tasks=(instruction,))

    def rows(self, index, names):
        return {name: self.data[index][1][name] for name in names}

    def frames(self, index, view, frame_indices, size=None):
        height, width = size or (8, 8)
        return np.zeros((len(frame_indices), height, width, 3), np.uint8)

    def events(self, index):
        return ()


def robot_episode(rng, length, embodiment=None):
    """State and action of a slow random walk, valid rotations included."""
    from scipy.spatial.transform import Rotation

    from hostbot.geometry import matrix_to_rot6d

    embodiment = embodiment or bimanual()
    streams = []
    for _ in range(2):
        values = np.cumsum(rng.normal(0, 0.01, (length, embodiment.dim)), 0)
        for part, place in embodiment.slices():
            if part.kind == "rot6d":
                turns = Rotation.from_rotvec(np.cumsum(rng.normal(0, 0.02, (length, 3)), 0))
                values[:, place] = matrix_to_rot6d(turns.as_matrix())
        streams.append(values.astype(np.float32))
    return {"observation.state": streams[0], "action": streams[1]}

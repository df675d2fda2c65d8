"""The weights that lie in the repository: whole, and of a size that can be shipped."""

from pathlib import Path

import numpy as np

from hostbot.policy.policy import Policy
from hostbot.types import Demonstration, Observation

FOLDER = Path(__file__).parents[1] / "weights/preview"


def test_the_preview_watches_a_video_and_acts():
    policy = Policy.load(FOLDER)
    rng = np.random.default_rng(0)
    before = policy.fingerprint()
    video = rng.integers(0, 256, (60, 96, 96, 3), dtype=np.uint8)
    skill = policy.acquire(Demonstration(views={"third_person": video}, fps=16.0), "Press the red button.")
    views = {view: rng.integers(0, 256, (64, 64, 3), dtype=np.uint8) for view in policy.embodiment.views}
    home = np.array([0.2, 0.22, 0.24, 0, 1, 0, 1, 0, 0, 0.07, 0.2, -0.22, 0.24, 0, 1, 0, 1, 0, 0, 0.07])
    chunk = policy.step(policy.start(skill), Observation(views=views, state=home.astype(np.float32)))
    assert chunk.actions.shape == (16, 20)
    assert (
        np.abs(chunk.actions[0, [0, 1, 2, 10, 11, 12]] - home[[0, 1, 2, 10, 11, 12]]).max() < 0.1
    )  # a step, no leap
    assert policy.fingerprint() == before
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 24e6

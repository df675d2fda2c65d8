"""Think before anybody asks: compilers, caches and graphs are paid for while no robot waits."""

from __future__ import annotations

import gc
import logging

import numpy as np

from hostbot.serve.contract import Policy
from hostbot.types import BadInput, Observation

log = logging.getLogger("hostbot.serve")


def warm(policy: Policy, max_batch: int) -> None:
    """A few passes that nobody sees, by language alone over grey pictures."""
    robot = policy.embodiment
    views = {view: np.full((64, 64, 3), 127, np.uint8) for view in robot.views}
    seen = Observation(views=views, state=np.zeros(robot.dim, np.float32))
    try:
        skill = policy.acquire(None, "warm up")
        for count in {min(2**n, max_batch) for n in range(max_batch.bit_length() + 1)}:
            policy.step_batch([policy.start(skill) for _ in range(count)], [seen] * count)
    except BadInput as reason:
        log.warning("not warmed up: %s", reason)


def spare_collector() -> None:
    """Keep what is loaded out of garbage collection: over torch's modules a full one stops every thread for 0.2 s.

    For a process that serves from here on; what is garbage by now is collected first.
    """
    gc.collect()
    gc.freeze()

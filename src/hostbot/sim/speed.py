"""How fast the bench runs: physics and pictures apart, on one core or on many."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier

from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig, SimEnv

_START: Barrier | None = None


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Seconds spent by one process, and the control steps they bought."""

    steps: int
    physics_s: float
    pictures_s: float
    reset_s: float
    wall_s: float
    episodes: int

    @property
    def steps_per_second(self) -> float:
        """Control steps a second with physics and all views."""
        return self.steps / (self.physics_s + self.pictures_s)

    @property
    def wall_steps_per_second(self) -> float:
        """Control steps a second by the clock: new scenes and the script's own thinking included."""
        return self.steps / self.wall_s


def measure(seconds: float, config: EnvConfig, first: int = 0) -> Speed:
    """Run experts through different tasks for a while, beginning together with the other processes."""
    names = split().train
    if _START is not None:
        _START.wait()
    physics = pictures = resets = 0.0
    steps = episodes = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        mark = time.perf_counter()
        env = SimEnv(task(names[(first + 37 * episodes) % len(names)]), config)
        env.reset(seed=episodes)
        actor = env.expert()
        resets += time.perf_counter() - mark
        episodes += 1
        done = False
        while not done and env.frame < 320 and time.perf_counter() - begin < seconds:
            vector = actor.act()
            mark = time.perf_counter()
            done = env.advance(vector)
            middle = time.perf_counter()
            if config.views:
                env.pictures()
            pictures += time.perf_counter() - middle
            physics += middle - mark
            steps += 1
        env.close()
    wall = time.perf_counter() - begin
    return Speed(
        steps=steps, physics_s=physics, pictures_s=pictures, reset_s=resets, wall_s=wall, episodes=episodes
    )


def _join(start: Barrier) -> None:
    """Give a worker the barrier that all of them wait at."""
    global _START
    _START = start


def measure_many(workers: int, seconds: float, config: EnvConfig) -> list[Speed]:
    """The same in several processes at once."""
    if workers <= 1:
        return [measure(seconds, config)]
    context = get_context("spawn")
    start = context.Barrier(workers)
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_join, initargs=(start,)) as pool:
        waiting = [pool.submit(measure, seconds, config, 11 * k) for k in range(workers)]
        return [future.result() for future in waiting]

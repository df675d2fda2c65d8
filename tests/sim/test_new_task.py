"""The page's example of a new task works as it is written there."""

import re
from pathlib import Path

from hostbot.sim.demonstrator import demonstrate
from hostbot.sim.env import EnvConfig, SimEnv

PAGE = Path(__file__).parents[2] / "docs" / "bench.md"


def example():
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL).group(1)
    names = "from collections.abc import Iterator\nfrom hostbot.sim.moves import Press\n"
    names += "from hostbot.sim.predicates import Pressed\nfrom hostbot.sim.task import Task\n"
    names += "from hostbot.sim.things import Thing, button, thing\n"
    space = {}
    exec(names + code, space)
    return next(space["tasks"]())


def test_both_bodies_do_it():
    task = example()
    env = SimEnv(task, EnvConfig(views=()))
    env.reset(seed=0)
    actor = env.expert()
    while env.frame < 320 and not env.advance(actor.act()):
        pass
    assert env.success
    assert env.world.pressed == ["red_button", "red_button"]
    assert demonstrate(task, 0, pictures=False)[2]

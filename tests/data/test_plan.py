"""Plans made by several processes are those made by one, to the bit; which pairs are planned."""

from collections import Counter
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from hostbot.data import plan as plans
from hostbot.data.pairs import Pair, SplitConfig, make_split, pairs
from hostbot.data.plan import Planner
from hostbot.data.sampling import choose_pairs
from hostbot.data.takes import TakeConfig
from hostbot.types import AGAIN, ASTRAY, BACK, BadInput, DataError, Event
from tests.data.toy import ABOVE, Truth, sample_config, sources, statistics_of

LENGTHS = (20, 26, 31, 17, 22, 19, 24, 28, 18, 21)
REFUSED = (2, 3, 8)


@dataclass(frozen=True)
class Refusing(Truth):
    """Refuses every pair of some robot episodes, or complains about one."""

    refused: tuple[int, ...] = ()
    wrong: int = -1
    error: type[Exception] = DataError

    def __call__(self, pair):
        if pair.robot == self.wrong:
            raise self.error(f"episode {pair.robot} is wrong: mend it")
        return None if pair.robot in self.refused else super().__call__(pair)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(plans, "CHUNK", 2)


def several(demo_body, **changes):
    bodies, config = sources(LENGTHS, (40, 28, 33, 25)), sample_config(**changes)
    split = make_split(bodies, SplitConfig(validation=0))
    chosen = choose_pairs(pairs(split, "train", demo_body), config)
    return bodies, Planner(bodies, statistics_of(bodies), config, (ABOVE,)), chosen


def assert_same(one, other):
    assert (one.texts, one.num_pairs, one.num_refused) == (other.texts, other.num_pairs, other.num_refused)
    for a, b in ((one.takes, other.takes), (one.rows, other.rows)):
        for field in fields(a):
            left, right = getattr(a, field.name), getattr(b, field.name)
            assert (left.dtype, left.shape) == (right.dtype, right.shape), field.name
            assert left.tobytes() == right.tobytes(), field.name


@pytest.mark.parametrize("demo_body", ["robot", "human"])
def test_the_plan_is_the_same_by_any_number_of_processes(demo_body, monkeypatch):
    changes = {"robot_takes": 2, "demo_takes": 2, "states": 5, "take": TakeConfig()}
    bodies, planner, chosen = several(demo_body, **changes)
    label, ticks = Refusing(bodies, REFUSED), []
    by_two = planner.plan(chosen, label, ticks.append, workers=2)
    assert ticks == [2] * (len(chosen) // 2)
    assert len(ticks) > 4
    assert by_two.num_refused == sum(pair.robot in REFUSED for pair in chosen)
    assert len(set(zip(by_two.takes.episode, by_two.takes.version, strict=True))) == len(by_two.takes.episode)
    assert_same(by_two, planner.plan(chosen, label))
    monkeypatch.setattr(plans, "CHUNK", len(chosen))
    assert_same(by_two, several(demo_body, **changes)[1].plan(chosen, label))


def test_takes_and_texts_are_numbered_as_they_come_up():
    bodies, planner, chosen = several("robot")
    made = planner.plan(chosen, Refusing(bodies, REFUSED))
    used = [pair for pair in chosen if pair.robot not in REFUSED]
    assert made.takes.episode.tolist() == list(dict.fromkeys(pair.demo for pair in used))
    assert list(made.texts) == list(
        dict.fromkeys(bodies["robot"].episode(pair.robot).instruction for pair in used)
    )
    rows = made.rows
    drawn = set(zip(rows.episode.tolist(), made.takes.episode[rows.take].tolist(), strict=True))
    assert drawn == {(pair.robot, pair.demo) for pair in used}
    told = [bodies["robot"].episode(int(episode)).instruction for episode in rows.episode]
    assert np.array(made.texts)[rows.text].tolist() == told


@pytest.mark.parametrize(("error", "workers"), [(DataError, 0), (DataError, 2), (BadInput, 2)])
def test_a_mistake_is_told_as_if_found_here(error, workers):
    bodies, planner, chosen = several("human")
    with pytest.raises(error, match=r"^episode 5 is wrong: mend it$") as told:
        planner.plan(chosen, Refusing(bodies, wrong=5, error=error), workers=workers)
    assert told.type is error


def test_nothing_to_train_on_is_found_by_several_too():
    bodies, planner, chosen = several("human")
    with pytest.raises(DataError, match=f"none of the {len(chosen)} pairs"):
        planner.plan(chosen, Refusing(bodies, tuple(range(len(LENGTHS)))), workers=2)


@pytest.mark.parametrize(("demos", "robots", "videos"), [(1, 12, 12), (1, 30, 12), (2, 9, 12), (3, 4, 12)])
def test_demonstrations_are_used_evenly(demos, robots, videos):
    """No video is left out while another is used twice, whichever robots there are; other seeds pair others."""
    every = [
        Pair(task="one", demo_body="human", demo=d, robot=r) for r in range(robots) for d in range(videos)
    ]
    config = sample_config(demos=demos)
    chosen = choose_pairs(iter(every), config)
    assert Counter(pair.robot for pair in chosen) == dict.fromkeys(range(robots), demos)
    assert len({(pair.robot, pair.demo) for pair in chosen}) == demos * robots
    used = Counter(pair.demo for pair in chosen)
    counts = [used[d] for d in range(videos)]
    assert max(counts) - min(counts) <= 1
    assert choose_pairs(iter(every), config) == chosen
    assert choose_pairs(iter(every), replace(config, seed=1)) != chosen


@pytest.mark.parametrize("states", [None, 6])
@pytest.mark.parametrize("between", [False, True])
def test_nothing_is_learned_from_where_a_robot_was_led(states, between):
    bodies, planner, chosen = several("human")
    episode, led = 1, range(10, 14)
    noted = (*bodies["robot"].events(episode), Event(name=ASTRAY, frame=10), Event(name=BACK, frame=14))
    bodies["robot"]._events[episode] = tuple(sorted(noted, key=lambda event: event.frame))
    config = replace(planner.config, states=states, couple=replace(planner.config.couple, between=between))
    planner = Planner(bodies, statistics_of(bodies), config, (ABOVE,))
    rows = planner.plan(chosen, Truth(bodies)).rows
    mine = rows.episode == episode
    spans = [set(range(frames[0], frames[-1] + 1)) for frames in rows.frames[mine]]
    assert spans
    assert not any(span & set(led) for span in spans)
    assert any(frames[0] == 14 for frames in rows.frames[mine]) or states
    # An action outside of that could be of before, so look at the actions themselves: all are of other frames.
    relative = planner._chunks(
        np.repeat(
            bodies["robot"].rows(episode, ["action"])["action"][None, led.start : led.stop], mine.sum(), 0
        ),
        bodies["robot"].rows(episode, ["observation.state"])["observation.state"][rows.frames[mine][:, 0]],
    )
    apart = np.abs(rows.action[mine][:, :, None, :3] - relative[:, None, :, :3]).max(-1)
    assert apart.min() > 1e-6
    others = rows.frames[rows.episode == 0]
    assert any(set(led) & set(range(frames[0], frames[-1] + 1)) for frames in others)


def test_what_had_to_be_done_again_is_no_example():
    bodies, planner, chosen = several("human")
    noted = (*bodies["robot"].events(1), Event(name=AGAIN, frame=11))
    bodies["robot"]._events[1] = tuple(sorted(noted, key=lambda event: event.frame))
    rows = planner.plan(chosen, Truth(bodies)).rows
    firsts = rows.frames[rows.episode == 1][:, 0]
    assert firsts.min() == 11
    assert rows.q[rows.episode == 1].min() == 0  # the demonstration begins where the robot began again
    assert rows.frames[rows.episode == 0][:, 0].min() == 0


def test_pairs_of_which_nothing_can_be_learned_are_counted_and_a_store_of_none_is_refused():
    bodies, planner, chosen = several("human")
    bodies["robot"]._events[1] = (Event(name=ASTRAY, frame=0), *bodies["robot"].events(1))
    made = planner.plan(chosen, Truth(bodies))
    assert made.num_refused == sum(pair.robot == 1 for pair in chosen)
    assert not (made.rows.episode == 1).any()
    assert set(made.rows.take.tolist()) == set(range(len(made.takes.episode)))
    for index in range(len(LENGTHS)):
        bodies["robot"]._events[index] = (Event(name=ASTRAY, frame=0), *bodies["robot"].events(index))
    with pytest.raises(DataError, match=f"none of the {len(chosen)} pairs"):
        Planner(bodies, statistics_of(bodies), planner.config, (ABOVE,)).plan(chosen, Truth(bodies))

"""Variants of training tasks: other colours, other company, never a novel task."""

from collections import defaultdict

import pytest

from hostbot.sim.catalogue import split, task
from hostbot.sim.env import EnvConfig
from hostbot.sim.episode import robot_episode
from hostbot.sim.things import COLOURS
from hostbot.sim.variants import exchanged, renamed, varied
from hostbot.types import BadInput


def look(of):
    """What a task is about, as it looks."""
    return tuple((thing.kind.__name__, thing.colour) for thing in of.things)


def test_no_variant_is_a_novel_task():
    told = {text for name in split().novel for text in task(name).instructions}
    shown = {(task(name).family, look(task(name))) for name in split().novel}
    others = {(task(name).family, look(task(name))) for name in split().train}
    for name in split().train:
        for variant in range(24):
            one = varied(task(name), variant, 0)
            assert not told & set(one.instructions), name
            # Families such as turn_knob have two tasks that look alike: there the words tell them apart.
            assert (one.family, look(one)) not in shown - others or one.family in _DIRECTED, name


_DIRECTED = ("turn_knob", "place_beside", "wipe")
"""Families in which a direction, or which of two things is the tool, is part of the task and not of its look."""


def test_novel_tasks_have_no_variants():
    with pytest.raises(BadInput, match="novel"):
        varied(task(split().novel[0]), 0, 0)


def test_words_and_looks_agree_and_scripts_find_their_things():
    for name in split().train[::7]:
        own, one = task(name), varied(task(name), 3, 11)
        assert [thing.name for thing in one.things] == [thing.name for thing in own.things]
        assert len(one.foils) == len(own.foils)
        assert len({thing.name for thing in one.scene}) == len(one.scene)
        assert len({(thing.kind, thing.colour) for thing in one.scene}) == len(one.scene)
        words = set(one.instructions[0].replace(".", " ").replace(",", " ").lower().split())
        named = {thing.colour for thing in own.things} & set(own.instructions[0].lower().split())
        if len(named) == len(own.things):
            assert words & set(COLOURS) == {thing.colour for thing in one.things}


def test_colours_come_with_the_variant_and_company_with_the_scene():
    own = task("press-red_button")
    assert varied(own, 2, 5).things == varied(own, 2, 6).things
    assert len({varied(own, v, 5).things for v in range(20)}) > 6
    assert len({varied(own, 2, s).foils for s in range(20)}) > 6


def test_things_on_the_table_no_longer_tell_which_one_is_meant():
    """In the bench's own scenes the three buttons there give the pressed one away; in variants they do not."""
    own, mixed = defaultdict(set), defaultdict(set)
    presses = split().names("train", ("press",))
    for name in presses:
        own[frozenset(thing.colour for thing in task(name).scene)].add(task(name).things[0].colour)
        for variant in range(60):
            for seed in range(20):
                one = varied(task(name), variant, seed)
                mixed[frozenset(thing.colour for thing in one.scene)].add(one.things[0].colour)
    assert all(len(pressed) == 1 for pressed in own.values())
    assert sum(len(pressed) > 1 for pressed in mixed.values()) > 0.9 * len(mixed)


def test_two_variants_can_be_meant_in_one_scene():
    """All but a few tasks have a double standing by; with names exchanged the script is about that one."""
    found = 0
    for name in split().train:
        one, other = varied(task(name), 6, 3), varied(task(name), 7, 3)
        twin = exchanged(one)
        if twin is None:
            assert len({look(varied(task(name), variant, 3)) for variant in range(12)}) > 5
            continue
        found += 1
        assert look(twin) == look(other) != look(one)
        assert one.instructions != other.instructions
        assert {(t.name, t.colour) for t in twin.scene} == {(t.name, t.colour) for t in one.scene}
        assert twin.script != one.script
    assert found > 0.85 * len(split().train)


def test_names_are_exchanged_with_their_parts_and_nothing_else():
    names = {"cup": "mug", "mug": "cup"}
    assert renamed(("cup/handle", ("mug", 1.5), {"cup": "cupboard"}), names) == (
        "mug/handle",
        ("cup", 1.5),
        {"mug": "cupboard"},
    )


@pytest.mark.parametrize(
    "name", ["press-red_button", "stack-red_block-green_block", "store-red_block-white_drawer"]
)
def test_the_expert_does_variants(name):
    done = [
        robot_episode(varied(task(name), v, 40 + v), 40 + v, EnvConfig(views=())).success for v in range(3)
    ]
    assert sum(done) >= 2

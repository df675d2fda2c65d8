import pytest

from hostbot.sim import catalogue
from hostbot.sim.catalogue import digest, siblings, split, task, tasks
from hostbot.types import BadInput


def test_the_counts_of_the_paper():
    parts = split()
    assert (len(parts.train), len(parts.novel), len(parts.mastered), len(parts.comparison)) == (229, 50, 7, 8)


def test_every_task_is_on_exactly_one_side():
    parts = split()
    assert not set(parts.train) & set(parts.novel)
    assert sorted(parts.train + parts.novel) == sorted(tasks())
    assert set(parts.mastered) <= set(parts.train)
    assert set(parts.comparison) <= set(parts.novel)


def test_the_split_is_the_committed_one():
    parts = split()
    assert digest(parts.train, parts.novel) == parts.sha256
    assert digest(parts.train[:-1], parts.novel) != parts.sha256


def test_at_least_fifteen_novel_tasks_are_of_skills_that_training_never_shows():
    parts = split()
    seen = {task(name).family for name in parts.train}
    unseen = [name for name in parts.novel if task(name).family not in seen]
    assert len(unseen) >= 15
    assert len({task(name).family for name in unseen}) >= 5


@pytest.mark.parametrize("name", tasks())
def test_every_scene_affords_another_task(name):
    assert siblings(task(name))


def test_instructions_tell_tasks_apart():
    firsts = [one.instructions[0] for one in tasks().values()]
    assert len(set(firsts)) == len(firsts)
    assert all(len(set(one.instructions)) >= 3 for one in tasks().values())


def test_a_wrong_name_is_answered_with_near_ones():
    with pytest.raises(BadInput, match="fold-pink_sock"):
        task("fold-pink_sok")


def test_a_sibling_starts_as_its_own_scene_would():
    shut, out = task("open_drawer-white_drawer"), task("close_drawer-white_drawer")
    assert not shut.affords(out)
    assert not out.affords(shut)


def test_a_wrong_part_is_refused():
    with pytest.raises(BadInput, match="no part 'test'"):
        catalogue.split().names("test")

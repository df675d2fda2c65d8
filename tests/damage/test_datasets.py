"""Every damaged dataset is answered by one sentence, or was harmless: every element is the original's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hostbot.data.store import open_dataset
from hostbot.types import DataError, VideoError
from tests.damage.datasets import COUNT, Damage, damages, make_sound
from tests.data.build import everything, same

Sound = dict[str, tuple[Path, list[dict[str, object]]]]
ALL = damages()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    root = tmp_path_factory.mktemp("sound")
    make_sound(root)
    return {v: (root / v, everything(open_dataset(root / v))) for v in ("v3.0", "v2.1")}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("damage", ALL, ids=lambda d: f"{d.version}-{d.name}-{d.seed}".replace(" ", "_"))
def test_damage_is_told_or_harmless(damage: Damage, sound: Sound, tmp_path: Path) -> None:
    root, expected = sound[damage.version]
    shutil.copytree(root, tmp_path / "set")
    damage(tmp_path / "set")
    try:
        found = everything(open_dataset(tmp_path / "set"))
    except (DataError, VideoError) as told:
        sentence = str(told)
        assert sentence
        assert "\n" not in sentence
        assert len(sentence) < 600
        return
    assert same(found, expected) or not damage.judged


def test_there_are_three_hundred_and_the_seed_decides() -> None:
    assert len(ALL) == COUNT == 300
    assert [(d.name, d.seed) for d in damages()] == [(d.name, d.seed) for d in ALL]
    assert {d.version for d in ALL} == {"v3.0", "v2.1"}
    assert sum(d.version == "v2.1" and not d.judged for d in ALL) < 60


def test_deliberate_damage_is_always_told(sound: Sound, tmp_path: Path) -> None:
    """Contradictions and missing files must be found; only a random hit may turn out harmless."""
    for number, damage in enumerate(d for d in ALL if ":" in d.name or d.name.startswith("no ")):
        root = tmp_path / str(number)
        shutil.copytree(sound[damage.version][0], root)
        damage(root)
        try:
            everything(open_dataset(root))
        except (DataError, VideoError):
            continue
        pytest.fail(f"{damage.version} {damage.name} was read as if nothing had happened")

"""Name what a dataset's numbers mean, where it does not say so itself."""

from __future__ import annotations

from pathlib import Path

from hostbot.config import from_dict, read_json
from hostbot.data.stats import ACTION, STATE
from hostbot.data.store import Dataset
from hostbot.types import DataError, Embodiment, EpisodeSource, bimanual, joint_space, single_arm


def resolve_embodiment(named: str, source: EpisodeSource) -> Embodiment:
    """``bimanual``, ``single_arm``, ``joints``, or a JSON file like ``meta/hostbot/embodiment.json``."""
    if named == "bimanual":
        found = bimanual(source.fps, source.views)
    elif named == "single_arm":
        found = single_arm(source.fps, source.views)
    elif named == "joints":
        found = joint_space(_joint_names(source), source.fps, source.views)
    elif named.endswith(".json"):
        found = from_dict(Embodiment, read_json(Path(named), DataError), named)
    else:
        raise DataError(f"there is no embodiment {named!r}; say bimanual, single_arm, joints or a .json file")
    for feature in (STATE, ACTION):
        width = source.widths.get(feature, found.dim)
        if width != found.dim:
            raise DataError(
                f"{source.name}: {feature} is {width} wide, but {found.name!r} has {found.dim} numbers"
            )
    if source.embodiment is not None and source.embodiment.parts != found.parts:
        raise DataError(
            f"{source.name} says itself that it is {source.embodiment.name!r}; leave --embodiment out"
        )
    return found


def _joint_names(source: EpisodeSource) -> list[str]:
    width = source.widths.get(ACTION) or source.widths.get(STATE)
    if width is None:
        raise DataError(f"{source.name} has neither {STATE!r} nor {ACTION!r}: it has no joints")
    if isinstance(source, Dataset):
        for feature in (ACTION, STATE):
            described = source.schema.features.get(feature)
            names = described.names if described is not None else None
            if names is not None and len(set(names)) == width:
                return list(names)
    return [f"joint_{number}" for number in range(width)]

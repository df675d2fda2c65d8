"""The features of a dataset to be written, and the parquet columns they become.

A feature of shape (1,) is a scalar column, of one dimension a fixed-size list, of more nested lists, as
LeRobot writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from hostbot.data.schema import BOOKKEEPING, NUMERIC, is_inside
from hostbot.types import BadInput, Embodiment

CAMERA = "observation.images."


@dataclass(frozen=True, kw_only=True)
class FeatureSpec:
    """A feature to write, as ``info.json`` describes it."""

    name: str = ""
    dtype: str = "float32"
    shape: tuple[int, ...]
    names: tuple[str, ...] | None = None
    info: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The entry of ``features``."""
        names = list(self.names) if self.names else None
        entry: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape), "names": names}
        return entry | ({"info": dict(self.info)} if self.info else {})

    def with_info(self, info: Mapping[str, Any] | None) -> FeatureSpec:
        """The same feature with what is known of its video."""
        return replace(self, info=info or {})

    def column_type(self) -> pa.DataType:
        """The parquet type of the feature's column."""
        value = pa.bool_() if self.dtype == "bool" else pa.type_for_alias(self.dtype)
        if self.shape == (1,):
            return value
        if len(self.shape) == 1:
            return pa.list_(value, self.shape[0])
        for _ in self.shape:
            value = pa.list_(value)
        return value


def feature_specs(
    features: Mapping[str, int | FeatureSpec],
    views: Mapping[str, tuple[int, int]],
    embodiment: Embodiment | None,
) -> dict[str, FeatureSpec]:
    """Every feature of a dataset by name: the caller's, the cameras, and LeRobot's own five."""
    specs: dict[str, FeatureSpec] = {}
    for name, given in features.items():
        spec = given if isinstance(given, FeatureSpec) else FeatureSpec(shape=(given,))
        if spec.dtype not in NUMERIC | {"string"} or not spec.shape or min(spec.shape) < 1:
            raise BadInput(
                f"feature {name!r} has dtype {spec.dtype!r} and shape {spec.shape}; it cannot be written"
            )
        names = spec.names
        if names is None and embodiment is not None and spec.shape == (embodiment.dim,):
            names = tuple(embodiment.axis_names())
        specs[name] = replace(spec, name=name, names=names)
    for view, (height, width) in views.items():
        key = view if "." in view else CAMERA + view
        axes = ("height", "width", "channels")
        specs[key] = FeatureSpec(name=key, dtype="video", shape=(height, width, 3), names=axes)
        if height % 2 or width % 2:
            raise BadInput(
                f"view {view!r} is {height}x{width}; a video needs even sides: pad or resize its frames"
            )
    for name in specs:
        if name in BOOKKEEPING or not name or "/" in name or not is_inside(name):
            raise BadInput(
                f"a feature cannot be called {name!r}; choose a name without slashes that is not LeRobot's"
            )
    return specs | {n: FeatureSpec(name=n, dtype=d, shape=(1,)) for n, d in BOOKKEEPING.items()}


def data_schema(specs: Mapping[str, FeatureSpec]) -> pa.Schema:
    """Columns of the data parquet."""
    return pa.schema([(n, s.column_type()) for n, s in specs.items() if s.dtype != "video"])

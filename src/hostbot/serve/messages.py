"""openpi's observations to ours, and our chunks to openpi's answers.

Legend: D vector width, H steps, h w pixels. Both layouts in use are read: nested (``state``, ``images``, ``prompt``, as
for ALOHA) and flat (``observation/state``, ``observation/third_person``, as for DROID and LIBERO); pictures may be
channels-first or channels-last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hostbot import __version__
from hostbot.types import ActionChunk, BadInput, Embodiment, Image, Observation

_PREFIXES = ("observation.images.", "observation/images/", "observation/", "observation.")
_STATES = ("state", "observation/state", "observation.state")
_PROMPTS = ("prompt", "instruction", "task")
_MAX_PIXELS = 4_000_000
_MAX_PROMPT = 2000


def metadata(embodiment: Embodiment, horizon: int, session: str, has_memory: bool) -> dict[str, Any]:
    """The first message of every connection: who this is and what it wants."""
    return {
        "protocol": "openpi",
        "host": 1,
        "server": f"hostbot {__version__}",
        "session": session,
        "action_dim": embodiment.dim,
        "horizon": horizon,
        "control_hz": float(embodiment.rate_hz),
        "cameras": list(embodiment.views),
        "parts": [{"name": p.name, "kind": p.kind, "limb": p.limb} for p in embodiment.parts],
        "axes": embodiment.axis_names(),
        "memory": has_memory,
    }


def observation(
    message: Mapping[Any, Any], embodiment: Embodiment, cameras: Mapping[str, str]
) -> Observation:
    """An observation the policy can take, or one sentence."""
    return Observation(
        views=views(message, embodiment, cameras),
        state=_state(message, embodiment),
        instruction=prompt(message),
    )


def prompt(message: Mapping[Any, Any]) -> str:
    """The instruction; empty where there is none."""
    for name in _PROMPTS:
        found = message.get(name, "")
        if not isinstance(found, str) or len(found) > _MAX_PROMPT:
            raise BadInput(f"{name!r} must be text of at most {_MAX_PROMPT} characters")
        if found.strip():
            return found.strip()
    return ""


def _state(message: Mapping[Any, Any], embodiment: Embodiment) -> np.ndarray:
    found = next((message[name] for name in _STATES if name in message), None)
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iuf":
        raise BadInput(f"an observation needs 'state', an array of {embodiment.dim} numbers")
    if found.shape != (embodiment.dim,) or not np.isfinite(found).all():
        raise BadInput(
            f"'state' must be {embodiment.dim} finite numbers ({', '.join(embodiment.axis_names())}), "
            f"got shape {found.shape}"
        )
    return np.array(found, np.float32)


def views(message: Mapping[Any, Any], embodiment: Embodiment, cameras: Mapping[str, str]) -> dict[str, Image]:
    """Every view of the embodiment, from wherever the client put it."""
    found: dict[str, Image] = {}
    for name, picture in _pictures(message):
        view = name if name in embodiment.views else cameras.get(name)
        if view in embodiment.views and view is not None:
            if view in found:
                raise BadInput(f"two pictures are given for the view {view!r}; send one")
            found[view] = image(picture, name)
    if missing := [view for view in embodiment.views if view not in found]:
        raise BadInput(
            f"the observation lacks the view(s) {', '.join(missing)}; send 'images' with {', '.join(embodiment.views)}"
        )
    return found


def _pictures(message: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    nested = message.get("images", {})
    if not isinstance(nested, Mapping):
        raise BadInput("'images' must be a dictionary of pictures by camera")
    for name, picture in (*nested.items(), *message.items()):
        if isinstance(name, str) and isinstance(picture, np.ndarray) and picture.ndim >= 3:
            prefix = next((p for p in _PREFIXES if name.startswith(p)), "")
            yield name.removeprefix(prefix), picture


def image(picture: np.ndarray, name: str) -> Image:
    """(h, w, 3) bytes from either layout."""
    if picture.dtype != np.uint8 or picture.ndim != 3 or 0 in picture.shape:
        raise BadInput(
            f"picture {name!r} must be (h, w, 3) or (3, h, w) bytes, got {picture.shape} of {picture.dtype}"
        )
    last, first = picture.shape[2] == 3, picture.shape[0] == 3
    if first == last:
        raise BadInput(f"picture {name!r} of shape {picture.shape} has no one axis of 3 colours")
    if math.prod(picture.shape) > 3 * _MAX_PIXELS:
        raise BadInput(f"picture {name!r} has over {_MAX_PIXELS:,} pixels; make it smaller before sending")
    return np.array(picture if last else picture.transpose(1, 2, 0), order="C")


def answer(chunk: ActionChunk, host: Mapping[str, Any], timing: Mapping[str, float]) -> dict[str, Any]:
    """A chunk as openpi's clients read it; whatever else is told is plain numbers and text in ``host``.

    Their broker cuts every array of an answer into steps, so ``actions`` is the only array.
    """
    told = {"progress": _number(chunk.progress), "confidence": _number(chunk.confidence), **host}
    for name in ("frame", "finished", "held"):
        if hasattr(chunk, name):
            told[name] = getattr(chunk, name)
    window = getattr(chunk, "window", None)
    if window is not None:
        told["window"] = [int(n) for n in window]
    return {
        "actions": np.ascontiguousarray(chunk.actions, np.float32),
        "server_timing": {name: float(value) for name, value in timing.items()},
        "policy_timing": {f"{name}_ms": float(value) for name, value in chunk.timing_ms.items()},
        "host": told,
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

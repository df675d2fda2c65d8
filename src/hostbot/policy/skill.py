"""What is kept of a demonstration once it has been watched: plain data, one file.

Legend: C latent channels, F latent frames of the whole demonstration, H W latents of its views stacked by height,
L text tokens, t text width.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from hostbot.types import BadInput

_FORMAT = "1"
_ARRAYS = ("latents", "text")


@dataclass(frozen=True, kw_only=True)
class Skill:
    """A demonstration, an instruction, or both, as the model is given them; acquiring one changes no weight."""

    instruction: str
    text: Float32[np.ndarray, "L t"]
    text_encoder: str
    """Identity of the encoder that made ``text``."""
    latents: Float32[np.ndarray, "C F H W"] | None = None
    """None: language alone says what to do."""
    views: tuple[str, ...] = ()
    """Views the demonstration has, in the robot's order."""
    num_frames: int = 0
    """Frames at the control rate, after the pace."""
    rate_hz: float = 0.0
    pace: float = 1.0
    """How many times as fast as it was filmed."""
    codec: str = ""
    """Identity of the VAE that made ``latents``."""
    frames_sha256: str = ""
    """Of the frames that were encoded, before the pace."""
    shares: tuple[float, ...] = ()
    """Where in the video each frame lies, 0 to 1, where rests were cut short; without it they lie evenly."""

    def progress(self, frame: int) -> float:
        """Where in the video a frame lies, 0 to 1."""
        return self.shares[frame] if self.shares else frame / max(1, self.num_frames - 1)

    @property
    def id(self) -> str:
        """A hash of everything in it: equal skills have equal names."""
        digest = hashlib.sha256(json.dumps(self._plain(), sort_keys=True).encode())
        for name in _ARRAYS:
            array = getattr(self, name)
            digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:32]

    def _plain(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _ARRAYS}
        if not self.shares:  # so skills that were named before there were any keep their names
            del plain["shares"]
        return plain

    def save(self, path: Path) -> None:
        """Write one safetensors file with JSON in its header, moved into place whole."""
        arrays = {name: np.ascontiguousarray(a) for name in _ARRAYS if (a := getattr(self, name)) is not None}
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        try:
            save_file(arrays, aside, {"hostbot_skill": _FORMAT, "skill": json.dumps(self._plain())})
            with open(aside, "rb") as file:
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: Path) -> Skill:
        """A skill from its file; anything else is refused."""
        if not path.is_file():
            raise BadInput(f"{path} is no file: acquire the skill again, or give another path")
        try:
            with safe_open(path, framework="numpy") as file:
                header = file.metadata() or {}
                if header.get("hostbot_skill") != _FORMAT:
                    raise BadInput(f"{path} is no skill of format {_FORMAT}: acquire it again")
                plain = json.loads(header["skill"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            plain["views"] = tuple(plain["views"])
            plain["shares"] = tuple(plain.get("shares", ()))
            if len(plain["shares"]) not in (0, plain["num_frames"]):
                raise KeyError(f"{len(plain['shares'])} shares of {plain['num_frames']} frames")
            return cls(**plain, **arrays)
        except (SafetensorError, json.JSONDecodeError, KeyError, TypeError) as reason:
            raise BadInput(f"{path} is damaged ({reason}): acquire the skill again") from None

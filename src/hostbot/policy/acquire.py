"""From a video to a skill: the control rate, the pace, the model's size, one pass through the VAE.

Legend: T demonstration frames, V views the demonstration has, C latent channels, F latent frames, H W latents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int, UInt8

from hostbot.model.text import TextEncoder
from hostbot.model.vae import LatentCache, LatentCodec
from hostbot.policy.bundle import PolicySpec
from hostbot.policy.rests import without_rests
from hostbot.policy.skill import Skill
from hostbot.policy.window import DemoGrid, retimed
from hostbot.types import BadInput, Demonstration
from hostbot.video import fit_frames, load_demonstration

Video = Path | str | Demonstration


@dataclass(frozen=True, kw_only=True)
class Acquirer:
    """What it takes to watch a demonstration; it has no state and changes nothing."""

    spec: PolicySpec
    grid: DemoGrid
    codec: LatentCodec
    text: TextEncoder
    cache: Path | None = None
    """Latents already made are found here, by the content of the frames."""

    def __call__(
        self,
        video: Video | None,
        instruction: str = "",
        *,
        view: str = "third_person",
        pace: float | None = None,
        seconds: float | None = None,
    ) -> Skill:
        """A skill from a video, an instruction, or both.

        ``pace`` says how many times as fast as filmed the robot shall follow, ``seconds`` how long it shall take;
        without either it is the policy's own. ``view`` names the camera that a video file stands for.
        """
        instruction = instruction or (video.instruction if isinstance(video, Demonstration) else "")
        if video is None and not instruction:
            raise BadInput("a skill needs a video, an instruction, or both")
        text = self.text.encode([instruction])[0].numpy()
        if video is None:
            return Skill(instruction=instruction, text=text, text_encoder=self.text.identity)
        demo = video if isinstance(video, Demonstration) else self._read(video, instruction, view)
        views = self._views(demo.views)
        frames = np.stack([self._sized(demo, name) for name in views])
        faster = demo.fps / self.spec.embodiment.rate_hz
        kept = self._kept(frames, faster)
        pace = self._pace(pace, seconds, len(kept), demo.fps)
        order = kept[retimed(len(kept), pace * faster)]
        return Skill(
            instruction=instruction,
            text=text,
            text_encoder=self.text.identity,
            latents=self._encode(frames[:, order[self.grid.frames(len(order))]]),
            views=views,
            num_frames=len(order),
            rate_hz=self.spec.embodiment.rate_hz,
            pace=pace,
            codec=self.codec.identity,
            shares=() if len(kept) == len(demo) else tuple((order / (len(demo) - 1)).tolist()),
            frames_sha256=hashlib.sha256(str(frames.shape).encode() + frames.tobytes()).hexdigest(),
        )

    def _kept(self, frames: UInt8[np.ndarray, "V T h w 3"], faster: float) -> Int[np.ndarray, " K"]:
        """Frames that are left once rests are cut short."""
        if self.spec.rests is None:
            return np.arange(frames.shape[1])
        return without_rests(frames, round(self.spec.rests * faster))

    def _read(self, path: Path | str, instruction: str, view: str) -> Demonstration:
        self._views([view])
        return load_demonstration(
            path,
            rate_hz=self.spec.embodiment.rate_hz,
            size=self.spec.image_size,
            instruction=instruction,
            view=view,
        )

    def _views(self, given: Iterable[str]) -> tuple[str, ...]:
        names, known = set(given), self.spec.embodiment.views
        if unknown := sorted(names - set(known)):
            raise BadInput(
                f"the robot has no view {', '.join(unknown)}; it has {', '.join(known)}: name one of those"
            )
        return tuple(name for name in known if name in names)

    def _sized(self, demo: Demonstration, view: str) -> UInt8[np.ndarray, "T h w 3"]:
        return fit_frames(demo.views[view], self.spec.image_size)

    def _pace(self, pace: float | None, seconds: float | None, num_frames: int, fps: float) -> float:
        if self.spec.whole_video:
            if pace is not None or seconds is not None:
                raise BadInput("this policy sees a whole demonstration at once: it has no pace to choose")
            return max(1, num_frames - 1) * self.spec.embodiment.rate_hz / fps / self.grid.length
        if pace is not None and seconds is not None:
            raise BadInput(f"give a pace or a duration, not both: got pace {pace} and {seconds} s")
        if seconds is not None:
            if not seconds > 0:
                raise BadInput(f"a duration must be above 0 s, got {seconds}")
            return num_frames / fps / seconds
        return self.spec.pace if pace is None else pace

    def _encode(self, frames: UInt8[np.ndarray, "V T h w 3"]) -> Float32[np.ndarray, "C F H W"]:
        if self.cache is not None:
            return LatentCache(self.codec, self.cache).encode_views(frames).numpy()
        return self.codec.encode_views(torch.from_numpy(np.ascontiguousarray(frames))).cpu().numpy()

"""Acquire a skill from one video, then act on it: the whole of HOST in use, with no parameter ever changed.

Legend: B robots in a batch, V views, C latent channels, F latent frames, H W latents, A actions a chunk, a action
width, L text tokens, t text width.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from hostbot.data.stats import Statistics
from hostbot.geometry import to_absolute
from hostbot.model import checkpoint
from hostbot.model.host import HostModel
from hostbot.model.text import TextEncoder
from hostbot.model.vae import LatentCodec, load_vae
from hostbot.policy.acquire import Acquirer, Video
from hostbot.policy.batch import Place, Rigs, Row
from hostbot.policy.bundle import PolicySpec, find_text_encoder, read_bundle, scaling, weights_hash
from hostbot.policy.contract import CascadeConfig, CascadeOutput
from hostbot.policy.session import Decision, Session, begin
from hostbot.policy.skill import Skill
from hostbot.policy.window import WindowConfig, advance, follow
from hostbot.types import BadInput, Frames, Observation
from hostbot.video import fit_frames


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """How a policy is run; what it is stands in its bundle."""

    window: WindowConfig | None = None
    """None: the usual rules for its chunk length."""
    cascade: CascadeConfig | None = None
    """None: as the bundle says."""
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    """Robots in one pass; a batch is filled up to the next of these, each with caches of its own once used."""
    cache: Path | None = None
    """Folder of latents by content; None keeps none."""


class Policy:
    """A model, its encoders and its statistics. Sessions hold all state, so many robots share one policy.

    All calls come from one thread.
    """

    def __init__(
        self,
        model: HostModel,
        codec: LatentCodec,
        text: TextEncoder,
        spec: PolicySpec,
        statistics: Statistics | None,
        config: PolicyConfig | None = None,
    ) -> None:
        config = config or PolicyConfig()
        spec.check(model.config)
        self.scaling = scaling(spec, statistics, model.config.horizon)
        if spec.codec != codec.identity:
            raise BadInput(
                f"policy {spec.name!r} sees with the VAE {spec.codec[:12]} but is given {codec.identity[:12]}"
            )
        self.spec, self.codec = spec, codec
        self.model = model.eval().requires_grad_(False)
        self.embodiment, self.horizon = spec.embodiment, model.config.horizon
        self.grid = spec.grid(model.config)
        self.window_config = config.window or follow(self.horizon)
        self._acquirer = Acquirer(spec=spec, grid=self.grid, codec=codec, text=text, cache=config.cache)
        self.cascade = config.cascade or spec.cascade
        self._rigs = Rigs(self.model, self.cascade, config.batch_sizes)
        self._alone = threading.Lock()  # a cascade's buffers serve one cycle at a time

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        vae: Path | None = None,
        text: Path | None = None,
        config: PolicyConfig | None = None,
    ) -> Policy:
        """A policy from its bundle; ``vae`` and ``text`` say where encoders lie that the bundle leaves out."""
        manifest = read_bundle(folder)
        model = checkpoint.load(folder / "model", dtype, device)
        codec = LatentCodec(load_vae(vae or folder / "vae"), device)
        reader = find_text_encoder(manifest.spec, model.config, text or folder / "text")
        return cls(model, codec, reader, manifest.spec, manifest.statistics, config)

    # A skill ------------------------------------------------------------------------------------------

    def acquire(
        self,
        video: Video | None,
        instruction: str = "",
        *,
        view: str = "third_person",
        pace: float | None = None,
        seconds: float | None = None,
    ) -> Skill:
        """Watch a video (a file or a Demonstration), read an instruction, or both."""
        return self._acquirer(video, instruction, view=view, pace=pace, seconds=seconds)

    def start(self, skill: Skill, seed: int = 0) -> Session:
        """Begin to follow a skill; a skill made with other encoders is refused."""
        ours = {"text encoder": self._acquirer.text.identity, "VAE": self.codec.identity}
        theirs = {"text encoder": skill.text_encoder, "VAE": skill.codec or self.codec.identity}
        for what, name in theirs.items():
            if name != ours[what]:
                raise BadInput(
                    f"the skill was made with the {what} {name[:40]} but this policy has {ours[what][:40]}: "
                    "acquire it again"
                )
        return begin(skill, seed)

    def fingerprint(self) -> str:
        """sha256 of all weights; no call changes it."""
        return weights_hash(self.model)

    def changes(self) -> str:
        """How it decides where that is not as usual; empty where it is."""
        reach, rests, pace = self.window_config.reach, self.spec.rests, self.spec.pace
        told = {
            f"reach {reach}": reach is not None,
            f"rests {rests}": rests is not None,
            f"pace {pace:g}": pace != 1.0,
        }
        return ", ".join(filter(None, [self.cascade.changes(), *(words for words, so in told.items() if so)]))

    # A cycle ------------------------------------------------------------------------------------------

    def step(self, session: Session, observation: Observation, *, frames: bool = False) -> Decision:
        """One cycle for one robot: localise, foresee, decide (eq:ar_inference), and advance its window."""
        return self.step_batch([session], [observation], frames=frames)[0]

    def step_batch(
        self, sessions: Sequence[Session], observations: Sequence[Observation], *, frames: bool = False
    ) -> list[Decision]:
        """One cycle for many robots in as few passes as their demonstrations' views allow; threads take turns."""
        if len(sessions) != len(observations) or len({id(s) for s in sessions}) != len(sessions):
            raise BadInput(
                f"a batch needs one observation a session and each session once, got {len(sessions)} sessions and "
                f"{len(observations)} observations"
            )
        with self._alone:
            return self._cycle(sessions, observations, frames)

    def prepare(self, sessions: Sequence[Session]) -> None:
        """Watch the windows that the next cycle of these robots looks at, while they still move.

        Where the next window lies is known as soon as a cycle is over (eq:window_advance). Nothing that is decided
        depends on whether or for whom this was called, only how soon.
        """
        with self._alone:
            self._rigs.prepare([self._stands(session) for session in sessions])

    def _cycle(
        self, sessions: Sequence[Session], observations: Sequence[Observation], frames: bool
    ) -> list[Decision]:
        begun = time.perf_counter()
        seen = self._see(observations)
        encode_ms = 1e3 * (time.perf_counter() - begun)
        rows = [
            self._row(session, observation, latent)
            for session, observation, latent in zip(sessions, observations, seen, strict=True)
        ]
        decisions = []
        for session, observation, row, out in zip(
            sessions, observations, rows, self._rigs.act(rows), strict=True
        ):
            decision = self._decide(session, observation, row, out)
            timing = {"encode": encode_ms, **out.timing_ms, "total": 1e3 * (time.perf_counter() - begun)}
            decision = replace(decision, timing_ms=timing)
            decisions.append(
                replace(decision, predicted_views=self.imagine(decision)) if frames else decision
            )
        return decisions

    def imagine(self, decision: Decision) -> Mapping[str, Frames]:
        """The predicted frames of every view; empty where the model did not predict any."""
        if decision.future is None:
            return {}
        frames = self.codec.decode_views(decision.future, len(self.embodiment.views)).cpu().numpy()
        return {name: view[1:] for name, view in zip(self.embodiment.views, frames, strict=True)}

    def _see(self, observations: Sequence[Observation]) -> list[Float32[Tensor, "C 1 H W"]]:
        """Latents of what every robot sees, in one pass of the VAE."""
        pictures = []
        for observation in observations:
            for view in self.embodiment.views:
                if view not in observation.views:
                    raise BadInput(
                        f"the observation lacks the view {view!r}; this policy needs {', '.join(self.embodiment.views)}"
                    )
                pictures.append(fit_frames(observation.views[view][None], self.spec.image_size))
        latents = self.codec.encode_views(torch.from_numpy(np.stack(pictures)))
        return list(latents.chunk(len(observations), dim=2))

    def _row(self, session: Session, observation: Observation, latent: Float32[Tensor, "C 1 H W"]) -> Row:
        state = np.asarray(observation.state, np.float32)
        if state.shape != (self.embodiment.dim,) or not np.isfinite(state).all():
            raise BadInput(
                f"a state is {self.embodiment.dim} finite numbers, got shape {state.shape}: "
                f"{int((~np.isfinite(state)).sum())} of them are not finite"
            )
        stands = self._stands(session)
        return Row(
            skill=stands.skill,
            first=stands.first,
            views=stands.views,
            observation=latent,
            proprio=torch.from_numpy(self.scaling.state.normalize(state)),
            generator=session.generator,
            expected=self._expected(session, observation),
        )

    def _stands(self, session: Session) -> Place:
        first = 0 if session.window is None else session.window.start // self.grid.unit
        views = tuple(self.embodiment.views.index(name) for name in session.skill.views)
        return Place(skill=session.skill, first=first, views=views)

    def _expected(self, session: Session, observation: Observation) -> tuple[float, float]:
        """Where in the window a robot can be: a chunk's step is a frame of the demonstration."""
        window, reach = session.window, self.window_config.reach
        if window is None or reach is None or session.num_cycles == 0:
            return -math.inf, math.inf
        least, most = (0, self.horizon) if observation.executed is None else (observation.executed,) * 2
        last = window.num_frames - 1
        low, high = (min(window.frame + steps, last) for steps in (least, most))
        return self._place(window, low - reach), self._place(window, high + reach)

    def _place(self, window: Window, frame: int) -> float:
        """A frame as the model tells it: -1 and 1 are the window's ends."""
        return 2 * (frame - window.start) / self.grid.length - 1

    def _decide(self, session: Session, observation: Observation, row: Row, out: CascadeOutput) -> Decision:
        p, confidence = (float(out.p[0]) + 1) / 2, float(out.confidence[0])
        stood = session.window
        actions, held = self._actions(session, observation, out.a[0])
        if stood is not None:
            session.window = advance(stood, p, confidence, self.grid, self.window_config)
        session.num_cycles += 1
        session.last_action = actions[-1]
        window = session.window
        return Decision(
            actions=actions,
            embodiment=self.embodiment,
            progress=float("nan") if window is None else session.skill.progress(window.frame),
            confidence=confidence,
            frame=-1 if window is None else window.frame,
            window=(0, 0) if stood is None else (stood.start, stood.start + self.grid.length),
            finished=session.finished,
            held=held,
            future=None if out.o is None else torch.cat([row.observation, out.o[0]], dim=1),
        )

    def _actions(
        self, session: Session, observation: Observation, normalised: Float32[Tensor, "A a"]
    ) -> tuple[Float32[np.ndarray, "A a"], str]:
        """Own units and absolute poses; what is not finite or no rotation becomes holding still, and is told."""
        values = normalised.float().cpu().numpy()
        state = np.asarray(observation.state, np.float32)
        held = "" if np.isfinite(values).all() else "the model's actions were not finite"
        if not held:
            try:
                actions = self.scaling.action.denormalize(np.clip(values, -1, 1))
                if self.spec.relative_actions:
                    actions = to_absolute(actions, state, self.embodiment)
                return actions.astype(np.float32), ""
            except BadInput as reason:
                held = str(reason)
        still = state if session.last_action is None else session.last_action
        return np.tile(still, (len(values), 1)).astype(np.float32), held

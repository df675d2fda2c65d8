"""The causal cascade p -> o -> a from noise, eq:ar_inference: context cached once, then each target in turn.

Legend: B batch, K localisation samples, C latent channels, F latent frames, H W latents, A actions a chunk, a action
width, s state width, L text tokens, t text width.

``stages`` says what each stage does, ``passes`` how tokens go through the layers, ``buffers`` what is kept. On CUDA
each stage is one graph over static shapes.
"""

# mypy: allow-untyped-calls
# (torch and safetensors leave a few methods without types)

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from hostbot.model.host import HostModel
from hostbot.model.tokens import patchify, unpatchify
from hostbot.policy.buffers import Buffers
from hostbot.policy.contract import CascadeConfig, CascadeOutput, Noise
from hostbot.policy.passes import Passes
from hostbot.policy.stage import Stage, elapsed_ms
from hostbot.policy.stages import Stages
from hostbot.types import BadInput


class Cascade:
    """A model made ready to act: caches for one batch size, one instruction and one demonstration window.

    ``instruct`` and ``watch`` set what changes seldom, ``act`` runs a cycle. All calls come from one thread.
    """

    def __init__(self, model: HostModel, config: CascadeConfig | None = None, batch: int = 1) -> None:
        self.model, self.config, self.batch = model.eval(), config or CascadeConfig(), batch
        if self.config.skip_future and model.config.flow.unseen_future == 0:
            raise BadInput(
                "this model never acted without seeing the future (unseen_future = 0), so skip_future would "
                "ask of it what it was not trained for"
            )
        self.device = next(model.parameters()).device
        with torch.inference_mode():
            self.buffers = Buffers(model, self.config, batch, self.device)
            self.passes = Passes(model, self.config, self.buffers)
            self.stages = Stages(model, self.config, self.buffers, self.passes)
        self._made: dict[tuple[tuple[int, ...] | None, int], dict[str, Stage]] = {}
        self._views: tuple[int, ...] | None = None
        self._num_demo, self._unwatched, self._instructed = 0, False, False

    @property
    def fused(self) -> bool:
        """Whether passes run on hostbot's own kernels."""
        return self.passes.fused

    # What changes seldom ------------------------------------------------------------------------------

    @torch.inference_mode()
    def instruct(self, text: Float[Tensor, "B L t"]) -> None:
        """Cache both experts' cross-attention keys of an instruction; watch the window anew after it."""
        buffers, model = self.buffers, self.model
        if tuple(text.shape) != tuple(buffers.text.shape):
            raise BadInput(f"text is {tuple(text.shape)} but this cascade takes {tuple(buffers.text.shape)}")
        buffers.text.copy_(text)
        buffers.num_told = self.passes.num_told(text)
        num = buffers.num_text_keys
        for expert in (model.video, model.action):
            self.passes.cache_context(expert, expert.text(buffers.text[:, :num]), 0)
        self._instructed, self._num_demo = True, -1

    @torch.inference_mode()
    def watch(
        self,
        demo: Float[Tensor, "B C F H W"] | None,
        views: tuple[int, ...] | None = None,
        timed: bool = False,
        now: bool = True,
    ) -> float:
        """Cache a demonstration window, or take the last one away; returns milliseconds if ``timed``.

        ``views`` are those the demonstration has (``None``: all); the others' tokens do not exist. With ``now`` off
        the window rides in the next cycle's observation pass: less work in all, but none of it done ahead.
        """
        if not self._instructed:
            raise BadInput("give the instruction (an empty one will do) before the demonstration")
        grid = self.model.config.grid
        if demo is None:
            self._views, self._num_demo, self._unwatched = (), 0, False
            return 0.0
        if views is not None and not (set(views) <= set(range(grid.num_views)) and views):
            raise BadInput(f"views {views} are not among 0..{grid.num_views - 1}")
        grid.check(demo, grid.demo_latents, "demonstration")
        self._views = tuple(range(grid.num_views)) if views is None else tuple(sorted(set(views)))
        self._num_demo = grid.demo_latents * len(self._views) * grid.view_tokens
        self.buffers.demo.copy_(demo)
        self._unwatched = not now
        return self.run(["demo"], timed)["demo"] if now else 0.0

    # One cycle ----------------------------------------------------------------------------------------

    def draw(self, generator: torch.Generator) -> Noise:
        """Noise for a cycle."""
        config, grid = self.model.config, self.model.config.grid

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, device=generator.device).to(self.device)

        return Noise(
            p=normal(self.batch, self.config.num_localisations),
            o=normal(self.batch, *grid.latents(grid.future_latents)),
            a=normal(self.batch, config.horizon, config.action_dim),
        )

    @torch.inference_mode()
    def act(
        self,
        observation: Float[Tensor, "B C 1 H W"],
        proprio: Float[Tensor, "B s"],
        noise: Noise,
        timed: bool = False,
        expected: tuple[Float[Tensor, " B"], Float[Tensor, " B"]] | None = None,
    ) -> CascadeOutput:
        """One cycle: cache the observation, then denoise p, o and a, each conditioned on those before it.

        ``expected`` bounds p from below and above, where the past tells something of it.
        """
        if self._num_demo < 0 or not self._instructed:
            raise BadInput("call instruct, then watch (with None for no demonstration), before act")
        grid, buffers = self.model.config.grid, self.buffers
        grid.check(observation, 1, "observation")
        buffers.observation.copy_(observation)
        buffers.proprio.copy_(proprio)
        if expected is None:  # filled where they lie: copying would wait for the device
            buffers.p_low.fill_(-torch.inf)
            buffers.p_high.fill_(torch.inf)
        else:
            buffers.p_low.copy_(expected[0])
            buffers.p_high.copy_(expected[1])
        buffers.noise_p.copy_(noise.p)
        buffers.noise_o.copy_(self.config.noise_o * patchify(noise.o, grid.patch))
        buffers.noise_a.copy_(self.config.noise_a * noise.a)
        first = "demo_observation" if self._unwatched else "observation"
        middle = ["clean_p"] if self.config.skip_future else ["o", "clean_o"]
        timing = self.run([first, "p", *middle, "a"], timed)
        self._unwatched = False
        return CascadeOutput(
            p=buffers.p.clone(),
            p_samples=buffers.p_samples.clone(),
            confidence=buffers.confidence.clone(),
            o=None if self.config.skip_future else unpatchify(buffers.o.clone(), grid),
            a=buffers.a.clone(),
            timing_ms=timing,
        )

    @torch.inference_mode()
    def run(self, names: Sequence[str], timed: bool = False) -> dict[str, float]:
        """Run some stages over the buffers as they are; milliseconds of each if ``timed``, else zeros."""
        layout = self._views, self.buffers.num_told
        if layout not in self._made:
            self._made[layout] = self._make_stages()
        stages, marks = self._made[layout], []
        with self.passes.many_variants():
            for name in names:
                marks.append(self._mark(timed))
                stages[name]()
        marks.append(self._mark(timed))
        if not timed:
            return dict.fromkeys(names, 0.0)
        return {name: elapsed_ms(a, b) for name, a, b in zip(names, marks[:-1], marks[1:], strict=True)}

    def _make_stages(self) -> dict[str, Stage]:
        graphs = self.config.graphs and self.device.type == "cuda"
        functions = self.stages.functions(self._views, self._num_demo)
        return {name: Stage(name, function, graphs) for name, function in functions.items()}

    def _mark(self, timed: bool) -> torch.cuda.Event | float:
        if not timed or self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

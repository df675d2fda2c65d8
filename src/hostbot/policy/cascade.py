"""The causal cascade p -> o -> a from noise, eq:ar_inference: context cached once, then each target in turn.

Legend: B batch, K localisation samples, S tokens, T cache length, C latent channels, F latent frames,
H W latents, A actions a chunk, a action width, L text tokens, h heads, d head width.

One buffer a layer holds the keys and values of [D | O | p | o | a]. Every stage writes its tokens at their
place and attends to the buffer up to their end, so a noisy target lies where its clean self will lie, and
nothing is ever masked, concatenated or grown. On CUDA each stage is one graph over static shapes.

Stages: ``demo`` when the window moved (it may run while the robot still moves), ``observation`` with the
first localisation step (or both in one, ``demo_observation``), ``p``, ``o`` with the clean localisation,
``clean_o``, ``a``.
"""

# mypy: allow-untyped-calls
# (torch and safetensors leave a few methods without types)

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from hostbot import flow
from hostbot.model import kernels
from hostbot.model.experts import Expert
from hostbot.model.host import UNLOCALISED, HostModel
from hostbot.model.mot import StageStream, stage_layer
from hostbot.model.tokens import patchify, unpatchify
from hostbot.policy.contract import CascadeConfig, CascadeOutput, Noise
from hostbot.policy.stage import Stage, elapsed_ms
from hostbot.types import BadInput

MAX_VARIANTS = 128
"""Compiled versions of a layer: about ten a demonstration layout."""
UNIFORM_STD = 3**-0.5
"""Standard deviation of a value anywhere in [-1, 1]: no idea where."""


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
        self._codec = copy.deepcopy(model.localisation).float()  # it computes in float32: cast its weights once
        self._layer: Callable[..., Tensor] = stage_layer
        if self.config.compile != "off":
            self._layer = torch.compile(stage_layer, dynamic=False, fullgraph=True, mode=self.config.compile)
        self.fused = self.config.kernels and kernels.usable(model)
        """Whether passes run on hostbot's own kernels."""
        self._use_graphs = self.config.graphs and self.device.type == "cuda"
        self._stages: dict[tuple[int, ...] | None, dict[str, Stage]] = {}
        self._views: tuple[int, ...] | None = None
        self._num_demo = 0
        self._unwatched = False
        self._instructed = False
        with torch.inference_mode():
            self._allocate()
            self._tables()

    # Buffers ------------------------------------------------------------------------------------------

    def _allocate(self) -> None:
        config, grid, batch = self.model.config, self.model.config.grid, self.batch
        layers, heads = config.video.num_layers, (config.video.num_heads, config.video.head_dim)
        frame, num_future = grid.frame_tokens, grid.future_latents * grid.frame_tokens
        tail = max(self.config.num_localisations, 1 + num_future + config.horizon)
        length = (grid.demo_latents + 1) * frame + tail
        dtype = self.model.video.dtype  # of keys, values and text; everything else is float32

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, device=self.device, dtype=dtype)

        self._keys = empty(layers, batch, length, *heads, dtype=dtype)
        self._values = empty(layers, batch, length, *heads, dtype=dtype)
        num_context = config.text_length + 1
        self._video_keys = empty(layers, 2, batch, num_context, *heads, dtype=dtype)
        self._action_keys = empty(layers, 2, batch, num_context, *heads, dtype=dtype)
        self._text = empty(batch, config.text_length, config.video.text_dim, dtype=dtype)
        self._proprio = empty(batch, config.state_dim)
        self._demo = empty(batch, *grid.latents(grid.demo_latents))
        self._observation = empty(batch, *grid.latents(1))
        self._noise_p = empty(batch, self.config.num_localisations)
        self._noise_o = empty(batch, num_future, grid.patch_dim)
        self._noise_a = empty(batch, config.horizon, config.action_dim)
        self._p_samples, self._p = empty(batch, self.config.num_localisations), empty(batch)
        self._confidence = empty(batch)
        self._o = empty(batch, num_future, grid.patch_dim)
        self._a = empty(batch, config.horizon, config.action_dim)

    def _tables(self) -> None:
        """What depends on the schedules alone: levels and their modulations, made once."""
        model, flows, steps = self.model, self.model.config.flow, self.config
        self._sigmas = {
            "p": flow.schedule(steps.steps_p, flows.shift_p).tolist(),
            "o": flow.schedule(steps.steps_o, flows.shift_o).tolist(),
            "a": flow.schedule(steps.steps_a, flows.shift_a).tolist(),
        }

        def modulations(expert: Expert, sigmas: Sequence[float]) -> tuple[Tensor, Tensor]:
            embedding, mod = expert.time(torch.tensor(sigmas, device=self.device)[:, None])
            return embedding[:, None], mod[:, None]

        _, clean = modulations(model.video, [0.0])
        _, mod_p = modulations(model.video, self._sigmas["p"][:-1])
        self._embedding_o, mod_o = modulations(model.video, self._sigmas["o"][:-1])
        _, self._mod_a = modulations(model.action, self._sigmas["a"][:-1])
        self._mod_clean, self._mod_p, self._mod_o = clean[0], mod_p, mod_o
        # Passes that carry two runs of tokens: the first localisation step rides with the observation, the
        # clean localisation with the first step of the future. Each spares a reading of all weights.
        self._mod_first_p = torch.cat([clean[0], mod_p[0]], dim=1)
        self._mod_first_o = torch.cat([clean[0], mod_o[0]], dim=1)

    # What changes seldom ------------------------------------------------------------------------------

    @torch.inference_mode()
    def instruct(self, text: Float[Tensor, "B L t"]) -> None:
        """Cache both experts' cross-attention keys of an instruction; watch the window anew after it."""
        if tuple(text.shape) != tuple(self._text.shape):
            raise BadInput(f"text is {tuple(text.shape)} but this cascade takes {tuple(self._text.shape)}")
        self._text.copy_(text)
        for expert, keys in ((self.model.video, self._video_keys), (self.model.action, self._action_keys)):
            embedded = expert.text(self._text)
            for index in range(len(expert.blocks)):
                keys[index, :, :, :-1].copy_(expert.layer(index).context_keys(embedded))
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
        self._demo.copy_(demo)
        self._unwatched = not now
        return self._run(["demo"], timed)["demo"] if now else 0.0

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
    ) -> CascadeOutput:
        """One cycle: cache the observation, then denoise p, o and a, each conditioned on those before it."""
        if self._num_demo < 0 or not self._instructed:
            raise BadInput("call instruct, then watch (with None for no demonstration), before act")
        grid = self.model.config.grid
        grid.check(observation, 1, "observation")
        self._observation.copy_(observation)
        self._proprio.copy_(proprio)
        self._noise_p.copy_(noise.p)
        self._noise_o.copy_(patchify(noise.o, grid.patch))
        self._noise_a.copy_(noise.a)
        middle = ["clean_p"] if self.config.skip_future else ["o", "clean_o"]
        first = "demo_observation" if self._unwatched else "observation"
        timing = self._run([first, "p", *middle, "a"], timed)
        self._unwatched = False
        return CascadeOutput(
            p=self._p.clone(),
            p_samples=self._p_samples.clone(),
            confidence=self._confidence.clone(),
            o=None if self.config.skip_future else unpatchify(self._o.clone(), grid),
            a=self._a.clone(),
            timing_ms=timing,
        )

    def _run(self, names: Sequence[str], timed: bool = False) -> dict[str, float]:
        if self._views not in self._stages:
            self._stages[self._views] = self._make_stages()
        stages, marks = self._stages[self._views], []
        with self._many_variants():
            for name in names:
                marks.append(self._mark(timed))
                stages[name]()
        marks.append(self._mark(timed))
        if not timed:
            return dict.fromkeys(names, 0.0)
        return {name: elapsed_ms(a, b) for name, a, b in zip(names, marks[:-1], marks[1:], strict=True)}

    def _many_variants(self) -> AbstractContextManager[object]:
        """Stages and layouts differ in shapes, each compiled once; the usual limit takes that for a fault."""
        if self.config.compile == "off":
            return nullcontext()
        patch: AbstractContextManager[object] = torch._dynamo.config.patch(recompile_limit=MAX_VARIANTS)
        return patch

    def _mark(self, timed: bool) -> torch.cuda.Event | float:
        if not timed or self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    # Stages -------------------------------------------------------------------------------------------

    def _make_stages(self) -> dict[str, Stage]:
        """The stages for the present demonstration layout; shapes are fixed from here on."""
        grid, num_demo = self.model.config.grid, self._num_demo
        context = num_demo + grid.frame_tokens
        future = context + 1 + grid.future_latents * grid.frame_tokens
        functions = {"observation": self._observe(num_demo), "p": self._no_place}
        if num_demo:
            functions |= {
                "demo": self._see_demo(num_demo),
                "demo_observation": self._observe(num_demo, with_demo=True),
                "p": self._localise(context),
            }
        if self.config.skip_future:
            functions |= {"clean_p": self._place_p(context), "a": self._decide(context + 1)}
        else:
            functions |= {
                "o": self._foresee(context),
                "clean_o": self._place_o(context + 1),
                "a": self._decide(future),
            }
        return {name: Stage(name, fn, self._use_graphs) for name, fn in functions.items()}

    def _stream(
        self,
        start: int,
        ropes: Sequence[Float32[Tensor, "S d/2 2"]],
        wanted: Literal["all", "last", "none"] = "all",
        num_blind: int = 0,
    ) -> StageStream:
        """Runs of tokens one after the other from ``start``, each seeing up to its own end."""
        widths = tuple(len(rope) for rope in ropes)
        return StageStream(
            widths=widths,
            start=start,
            ends=tuple(start + sum(widths[: i + 1]) for i in range(len(widths))),
            rope=torch.cat(list(ropes)).to(self.device),
            num_blind=num_blind,
            wanted=wanted,
        )

    def _layers(
        self,
        expert: Expert,
        context: Float[Tensor, "N 2 B L h d"],
        x: Float32[Tensor, "B S w"],
        stream: StageStream,
        mod: Float32[Tensor, "1 G 6 w"],
    ) -> Float32[Tensor, "B S2 w"]:
        if self.fused:
            from hostbot.model.fused import fused_pass

            return fused_pass(expert, x, stream, mod, self._keys, self._values, context)
        last = len(expert.blocks) - 1 if stream.wanted != "all" else -1
        for index in range(len(expert.blocks)):
            block = expert.layer(index)
            cache = self._keys[index], self._values[index]
            x = self._layer(block, x, stream, mod, *cache, context[index], index == last)
        return x

    def _video(
        self, x: Float32[Tensor, "B S w"], stream: StageStream, mod: Float32[Tensor, "1 G 6 w"]
    ) -> Float32[Tensor, "B S2 w"]:
        return self._layers(self.model.video, self._video_keys, x, stream, mod)

    def _see_demo(self, num_demo: int) -> Callable[[], None]:
        views = self._views
        stream = self._stream(0, [self.model.demo_rope(views)], wanted="none", num_blind=num_demo)
        return lambda: self._discard(
            self._video(self.model.demo_tokens(self._demo, views), stream, self._mod_clean)
        )

    @staticmethod
    def _discard(_: Tensor) -> None:
        """A prefill's result is what it left in the cache."""

    def _localisation_stream(self, start: int, before: Sequence[Float32[Tensor, "S d/2 2"]]) -> StageStream:
        """Samples side by side, each seeing the context and itself, after runs of tokens with these positions."""
        num = self.config.num_localisations
        stream = self._stream(start, [*before, self.model.localisation_rope().expand(num, -1, -1)], wanted="last")
        context = torch.ones(num, stream.ends[-1] - num, dtype=torch.bool)
        mask = torch.cat([context, torch.eye(num, dtype=torch.bool)], dim=1)[None, None]
        return stream if num == 1 and len(before) < 2 else replace(stream, mask=mask.to(self.device))

    def _observe(self, num_demo: int, with_demo: bool = False) -> Callable[[], None]:
        """Cache the state's cross-attention keys and the observation; take the first localisation step."""
        model, sigmas, views = self.model, self._sigmas["p"], self._views
        before, mod = [model.observation_rope()], self._mod_first_p
        if with_demo:
            before, mod = [model.demo_rope(views), *before], torch.cat([self._mod_clean, mod], dim=1)
        stream = self._localisation_stream(0 if with_demo else num_demo, before)
        stream = replace(stream, num_blind=num_demo if with_demo else 0)

        def run() -> None:
            state = model.proprio.in_float32(self._proprio)[:, None].to(model.video.dtype)
            for expert, keys in ((model.video, self._video_keys), (model.action, self._action_keys)):
                self._cache_state(expert, expert.text(state), keys[:, :, :, -1:])
            seen = [model.demo_tokens(self._demo, views)] if with_demo else []
            seen.append(model.frame_tokens(self._observation, 1, "observation"))
            x = torch.cat([*seen, self._codec.encode(self._noise_p)], dim=1)
            velocity = self._codec.decode(self._video(x, stream, mod))
            self._p_samples.copy_(flow.euler(self._noise_p, velocity, sigmas[0], sigmas[1]))

        return run

    def _cache_state(
        self, expert: Expert, embedded: Float[Tensor, "B 1 w"], keys: Float[Tensor, "N 2 B 1 h d"]
    ) -> None:
        for index in range(len(expert.blocks)):
            if self.fused:
                from hostbot.model.fused import cache_context

                cache_context(expert.layer(index), embedded, keys[index])
            else:
                keys[index].copy_(expert.layer(index).context_keys(embedded))

    def _localise(self, start: int) -> Callable[[], None]:
        """The other localisation steps, and what the samples say together."""
        stream, codec, sigmas = self._localisation_stream(start, []), self._codec, self._sigmas["p"]

        def run() -> None:
            state = self._p_samples
            for i in range(1, self.config.steps_p):
                x = self._video(codec.encode(state), stream, self._mod_p[i])
                state = flow.euler(state, codec.decode(x), sigmas[i], sigmas[i + 1])
            samples = state.clamp(-1, 1)
            spread = samples.std(dim=1) if samples.shape[1] > 1 else torch.full_like(samples[:, 0], torch.nan)
            self._confidence.copy_((1 - spread / UNIFORM_STD).clamp(min=0))
            self._p.copy_(samples.median(dim=1).values)
            self._p_samples.copy_(samples)

        return run

    def _no_place(self) -> None:
        """Without a demonstration there is no place in it: the value that stood for this in training."""
        self._p_samples.fill_(UNLOCALISED)
        self._p.fill_(UNLOCALISED)
        self._confidence.fill_(torch.nan)

    def _place_p(self, start: int) -> Callable[[], None]:
        stream = self._stream(start, [self.model.localisation_rope()], wanted="none")
        encode = self._codec.encode
        return lambda: self._discard(self._video(encode(self._p[:, None]), stream, self._mod_clean))

    def _foresee(self, start: int) -> Callable[[], None]:
        """Denoise the future; the clean localisation takes its place in the first step's pass."""
        model, sigmas = self.model, self._sigmas["o"]
        both = self._stream(start, [model.localisation_rope(), model.future_rope()], wanted="last")
        alone = self._stream(start + 1, [model.future_rope()])

        def run() -> None:
            state = self._noise_o
            for i in range(self.config.steps_o):
                x = model.video.embed(state)
                if i == 0:
                    x = torch.cat([self._codec.encode(self._p[:, None]), x], dim=1)
                    x = self._video(x, both, self._mod_first_o)
                else:
                    x = self._video(x, alone, self._mod_o[i])
                velocity = model.video.velocity(x, self._embedding_o[i])
                state = flow.euler(state, velocity, sigmas[i], sigmas[i + 1])
            self._o.copy_(state)

        return run

    def _place_o(self, start: int) -> Callable[[], None]:
        stream, embed = self._stream(start, [self.model.future_rope()], wanted="none"), self.model.video.embed
        return lambda: self._discard(self._video(embed(self._o), stream, self._mod_clean))

    def _decide(self, start: int) -> Callable[[], None]:
        """Denoise the actions with the narrow expert, on everything cached."""
        expert, sigmas = self.model.action, self._sigmas["a"]
        stream = self._stream(start, [self.model.action_rope()])

        def run() -> None:
            state = self._noise_a
            for i in range(self.config.steps_a):
                x = self._layers(expert, self._action_keys, expert.embed(state), stream, self._mod_a[i])
                state = flow.euler(state, expert.velocity(x), sigmas[i], sigmas[i + 1])
            self._a.copy_(state)

        return run

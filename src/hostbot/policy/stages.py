"""The stages of a cycle as functions over a cascade's buffers, for one demonstration layout.

``demo`` when the window moved (it may run while the robot still moves), ``observation`` with the first localisation
step (or both in one, ``demo_observation``), ``p``, ``o`` with the clean localisation, ``clean_o``, ``a``. Every stage
writes its tokens' keys at their place and attends to the buffer up to their end, so a noisy target lies where its
clean self will lie, and nothing is ever concatenated or grown.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from jaxtyping import Float32
from torch import Tensor

from hostbot import flow
from hostbot.model.host import UNLOCALISED, HostModel
from hostbot.policy.buffers import Buffers, Levels
from hostbot.policy.contract import CascadeConfig
from hostbot.policy.passes import Passes

UNIFORM_STD = 3**-0.5
"""Standard deviation of a value anywhere in [-1, 1]: no idea where."""
Run = Callable[[], None]


class Stages:
    """What each stage does, given a model, its levels and its buffers."""

    def __init__(self, model: HostModel, config: CascadeConfig, buffers: Buffers, passes: Passes) -> None:
        self.model, self.config, self.buffers, self.passes = model, config, buffers, passes
        self.levels = Levels(model, config, buffers.keys.device)
        self.codec = copy.deepcopy(
            model.localisation
        ).float()  # it computes in float32: cast its weights once

    def functions(self, views: tuple[int, ...] | None, num_demo: int) -> dict[str, Run]:
        """The stages for a demonstration of these views; shapes are fixed from here on."""
        grid = self.model.config.grid
        context = num_demo + grid.frame_tokens
        future = context + 1 + grid.future_latents * grid.frame_tokens
        found: dict[str, Run] = {"observation": self._observe(views, num_demo, False), "p": self._no_place}
        if num_demo:
            found |= {
                "demo": self._see_demo(views, num_demo),
                "demo_observation": self._observe(views, num_demo, True),
                "p": self._localise(context),
            }
        if self.config.skip_future:
            return found | {"clean_p": self._place_p(context), "a": self._decide(context + 1)}
        o, clean_o = self._foresee(context), self._place_o(context + 1)
        return found | {"o": o, "clean_o": clean_o, "a": self._decide(future)}

    def _see_demo(self, views: tuple[int, ...] | None, num_demo: int) -> Run:
        model, passes = self.model, self.passes
        stream = passes.stream(0, [model.demo_rope(views)], wanted="none", num_blind=num_demo)
        return lambda: _discard(
            passes.video(model.demo_tokens(self.buffers.demo, views), stream, self.levels.clean)
        )

    def _observe(self, views: tuple[int, ...] | None, num_demo: int, with_demo: bool) -> Run:
        """Cache the state's cross-attention keys and the observation; take the first localisation step."""
        model, passes, codec, buffers = self.model, self.passes, self.codec, self.buffers
        sigmas, mod, before = self.levels.sigmas["p"], self.levels.first_p, [model.observation_rope()]
        start, num_blind = num_demo, 0
        if with_demo:
            before, mod = [model.demo_rope(views), *before], self.levels.first_p_with_demo
            start, num_blind = 0, num_demo
        stream = passes.localisation_stream(start, before, num_blind)

        def run() -> None:
            self._cache_state()
            seen = [model.demo_tokens(buffers.demo, views)] if with_demo else []
            seen.append(model.observation_tokens(buffers.observation))
            x = torch.cat([*seen, codec.encode(buffers.noise_p)], dim=1)
            velocity = codec.decode(passes.video(x, stream, mod))
            buffers.p_begun.copy_(flow.euler(buffers.noise_p, velocity, sigmas[0], sigmas[1]))

        return run

    def _cache_state(self) -> None:
        model, place = self.model, self.buffers.num_text_keys
        state = model.proprio.in_float32(self.buffers.proprio)[:, None].to(model.video.dtype)
        for expert in (model.video, model.action):
            self.passes.cache_context(expert, expert.text(state), place)

    def _localise(self, start: int) -> Run:
        """The other localisation steps, and what the samples say together."""
        stream, sigmas = self.passes.localisation_stream(start, []), self.levels.sigmas["p"]
        codec, buffers = self.codec, self.buffers

        def run() -> None:
            state = buffers.p_begun
            for i in range(1, self.config.steps_p):
                x = self.passes.video(codec.encode(state), stream, self.levels.p[i])
                state = flow.euler(state, codec.decode(x), sigmas[i], sigmas[i + 1])
            samples = state.clamp(-1, 1)
            spread = samples.std(dim=1) if samples.shape[1] > 1 else torch.full_like(samples[:, 0], torch.nan)
            buffers.confidence.copy_((1 - spread / UNIFORM_STD).clamp(min=0))
            buffers.p.copy_(believed(samples, buffers.p_low, buffers.p_high))
            buffers.p_samples.copy_(samples)

        return run

    def _no_place(self) -> None:
        """Without a demonstration there is no place in it: the value that stood for this in training."""
        self.buffers.p_samples.fill_(UNLOCALISED)
        self.buffers.p.fill_(UNLOCALISED)
        self.buffers.confidence.fill_(torch.nan)

    def _place_p(self, start: int) -> Run:
        stream = self.passes.stream(start, [self.model.localisation_rope()], wanted="none")
        encode, p = self.codec.encode, self.buffers.p
        return lambda: _discard(self.passes.video(encode(p[:, None]), stream, self.levels.clean))

    def _foresee(self, start: int) -> Run:
        """Denoise the future; the clean localisation takes its place in the first step's pass."""
        model, passes, buffers, levels = self.model, self.passes, self.buffers, self.levels
        both = passes.stream(start, [model.localisation_rope(), model.future_rope()], wanted="last")
        alone, sigmas = passes.stream(start + 1, [model.future_rope()]), levels.sigmas["o"]

        def run() -> None:
            state = buffers.noise_o
            for i in range(self.config.steps_o):
                x, stream, mod = model.video.embed(state), alone, levels.o[i]
                if i == 0:
                    x, stream = torch.cat([self.codec.encode(buffers.p[:, None]), x], dim=1), both
                    mod = levels.first_o
                step = sigmas[i], sigmas[i + 1]
                state = passes.denoise(state, x, stream, mod, levels.embedding_o[i], step)
            buffers.o.copy_(state)

        return run

    def _place_o(self, start: int) -> Run:
        stream = self.passes.stream(start, [self.model.future_rope()], wanted="none")
        embed, o = self.model.video.embed, self.buffers.o
        return lambda: _discard(self.passes.video(embed(o), stream, self.levels.clean))

    def _decide(self, start: int) -> Run:
        """Denoise the actions with the narrow expert, on everything cached."""
        expert, buffers, sigmas = self.model.action, self.buffers, self.levels.sigmas["a"]
        stream = self.passes.stream(start, [self.model.action_rope()])

        def run() -> None:
            state = buffers.noise_a
            for i in range(self.config.steps_a):
                x = self.passes.action(expert.embed(state), stream, self.levels.a[i])
                state = flow.euler(state, expert.velocity(x), sigmas[i], sigmas[i + 1])
            buffers.a.copy_(state)

        return run


def believed(
    samples: Float32[Tensor, "B K"], low: Float32[Tensor, " B"], high: Float32[Tensor, " B"]
) -> Float32[Tensor, " B"]:
    """One place from several samples: the median of those that can be expected, if they are a quarter at least.

    Otherwise something went wrong and it is the median of what lies behind; or all are ahead, and it is the least of
    them, but no further than can be expected. Without bounds it is the median of all; not a number if one is none.
    """
    expected = (samples >= low[:, None]) & (samples <= high[:, None])
    within = samples.masked_fill(~expected, torch.nan).nanmedian(dim=1).values
    behind = samples.masked_fill(samples >= low[:, None], torch.nan).nanmedian(dim=1).values
    ahead = torch.minimum(samples.min(dim=1).values, high)
    enough = 4 * expected.sum(dim=1) >= samples.shape[1]
    place = torch.where(enough, within, torch.where(behind.isnan(), ahead, behind))
    return place.masked_fill(samples.isnan().any(dim=1), torch.nan)


def _discard(_: Tensor) -> None:
    """A prefill's result is what it left in the cache."""

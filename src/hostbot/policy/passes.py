"""One pass of some tokens through an expert's layers, over what is cached: by kernels, compiled, or plain.

Legend: B batch, N layers, L context tokens, S tokens, G runs of tokens, h heads, d head width, w expert width.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from hostbot.model import kernels
from hostbot.model.experts import Expert
from hostbot.model.host import HostModel
from hostbot.model.mot import StageStream, stage_layer
from hostbot.policy.buffers import Buffers
from hostbot.policy.contract import CascadeConfig

MAX_VARIANTS = 128
"""Compiled versions of a layer: about ten a demonstration layout."""
TOLD = (62, 126, 254)
"""Text tokens that get a key each; with the padding's key and the state's they fill whole blocks of keys."""


class Passes:
    """A model's layers over a cascade's buffers."""

    def __init__(self, model: HostModel, config: CascadeConfig, buffers: Buffers) -> None:
        self.model, self.config, self.buffers = model, config, buffers
        self.fused = config.kernels and kernels.usable(model)
        self._layer: Callable[..., Tensor] = stage_layer
        if config.compile != "off":
            self._layer = torch.compile(stage_layer, dynamic=False, fullgraph=True, mode=config.compile)

    def many_variants(self) -> AbstractContextManager[object]:
        """Stages and layouts differ in shapes, each compiled once; the usual limit takes that for a fault."""
        if self.config.compile == "off":
            return nullcontext()
        patch: AbstractContextManager[object] = torch._dynamo.config.patch(recompile_limit=MAX_VARIANTS)
        return patch

    def stream(
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
            rope=torch.cat(list(ropes)).to(self.buffers.keys.device),
            num_blind=num_blind,
            wanted=wanted,
        )

    def localisation_stream(
        self, start: int, before: Sequence[Float32[Tensor, "S d/2 2"]], num_blind: int = 0
    ) -> StageStream:
        """Samples side by side, each seeing the context and itself, after runs of tokens with these positions."""
        num = self.config.num_localisations
        ropes = [*before, self.model.localisation_rope().expand(num, -1, -1)]
        stream = self.stream(start, ropes, wanted="last", num_blind=num_blind)
        if num == 1 and len(before) < 2:
            return stream
        context = torch.ones(num, stream.ends[-1] - num, dtype=torch.bool)
        mask = torch.cat([context, torch.eye(num, dtype=torch.bool)], dim=1)[None, None]
        return replace(stream, mask=mask.to(self.buffers.keys.device))

    def video(
        self, x: Float32[Tensor, "B S w"], stream: StageStream, mod: Float32[Tensor, "1 G 6 w"]
    ) -> Float32[Tensor, "B S2 w"]:
        """A pass of the video expert."""
        return self._layers(self.model.video, self.buffers.video_context, x, stream, mod)

    def action(
        self, x: Float32[Tensor, "B S w"], stream: StageStream, mod: Float32[Tensor, "1 G 6 w"]
    ) -> Float32[Tensor, "B S2 w"]:
        """A pass of the action expert."""
        return self._layers(self.model.action, self.buffers.action_context, x, stream, mod)

    def _layers(
        self,
        expert: Expert,
        context: Float[Tensor, "N 2 B L h d"],
        x: Float32[Tensor, "B S w"],
        stream: StageStream,
        mod: Float32[Tensor, "1 G 6 w"],
    ) -> Float32[Tensor, "B S2 w"]:
        keys, values = self.buffers.keys, self.buffers.values
        if self.fused:
            from hostbot.model.fused import fused_pass

            return fused_pass(expert, x, stream, mod, keys, values, context, self.buffers.num_told)
        last = len(expert.blocks) - 1 if stream.wanted != "all" else -1
        for index in range(len(expert.blocks)):
            block, cache = expert.layer(index), (keys[index], values[index])
            x = self._layer(block, x, stream, mod, *cache, context[index], index == last)
        return x

    def num_told(self, text: Float[Tensor, "B L t"]) -> int:
        """Text tokens that must have a key each; what comes after them is zeros in every sample.

        Only kernels let one key stand for many. Few lengths are told apart: each has stages of its own.
        """
        if not self.fused:
            return text.shape[1]
        places = torch.arange(1, text.shape[1] + 1, device=text.device)
        used = int((text.ne(0).any(-1) * places).max())
        return next((n for n in TOLD if used <= n < text.shape[1]), text.shape[1])

    def cache_context(
        self, expert: Expert, embedded: Float[Tensor, "B L w"], keys: Float[Tensor, "N 2 B L h d"]
    ) -> None:
        """Put every layer's cross-attention keys and values of embedded context tokens into ``keys``."""
        for index in range(len(expert.blocks)):
            if self.fused:
                from hostbot.model.fused import cache_context

                cache_context(expert.layer(index), embedded, keys[index])
            else:
                keys[index].copy_(expert.layer(index).context_keys(embedded))

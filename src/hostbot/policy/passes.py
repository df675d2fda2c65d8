"""One pass of some tokens through an expert's layers, over what is cached: by kernels, compiled, or plain.

Legend: B batch, N layers, L context tokens, S tokens, G runs of tokens, h heads, d head width, w expert width.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from hostbot import flow
from hostbot.model import kernels
from hostbot.model.experts import Expert
from hostbot.model.host import HostModel
from hostbot.model.mot import StageStream, stage_layer
from hostbot.policy.buffers import Buffers
from hostbot.policy.contract import CascadeConfig

if TYPE_CHECKING:
    from hostbot.model.kernels.norm import Modulated

MAX_VARIANTS = 128
"""Compiled versions of a layer: about ten a demonstration layout."""
TOLD = (62, 126, 254)
"""Text tokens that get a key each; with the padding's key and the state's they fill whole blocks of keys."""


class Passes:
    """A model's layers over a cascade's buffers."""

    def __init__(self, model: HostModel, config: CascadeConfig, buffers: Buffers) -> None:
        self.model, self.config, self.buffers = model, config, buffers
        self.fused = config.kernels and kernels.usable(model)
        self._folds: dict[Expert, Float[Tensor, "N w F"]] = {}
        if self.fused and len(buffers.text) == 1:
            from hostbot.model.fused import empty_folds

            self._folds = {e: empty_folds(e, buffers.keys.device) for e in (model.video, model.action)}
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

    def denoise(
        self,
        state: Float32[Tensor, "B S c"],
        x: Float32[Tensor, "B S2 w"],
        stream: StageStream,
        mod: Float32[Tensor, "1 G 6 w"],
        embedding: Float32[Tensor, "1 1 w"],
        sigmas: tuple[float, float],
    ) -> Float32[Tensor, "B S c"]:
        """A step of the frames to come, whose tokens are the last run of ``x``, from one noise level to the next."""
        video = self.model.video
        if self.fused and len(state) == 1:
            from hostbot.model.fused import step_along, velocity_head

            context, head = self.buffers.video_context, velocity_head(video, embedding)
            normed = self._layers(video, context, x, stream, mod, head)
            return step_along(video, state, normed, *sigmas)
        return flow.euler(state, video.velocity(self.video(x, stream, mod), embedding), *sigmas)

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
        head: Modulated | None = None,
    ) -> Float[Tensor, "B S2 w"]:
        keys, values = self.buffers.keys, self.buffers.values
        if self.fused:
            from hostbot.model.fused import fused_pass

            folds = self._folds_of(expert)
            told = self.buffers.num_told
            return fused_pass(expert, x, stream, mod, keys, values, context, told, folds, head)
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

    def _folds_of(self, expert: Expert) -> Float[Tensor, "N w F"] | None:
        """Room for the instruction's folded values, where it is one sample's and short enough."""
        if expert not in self._folds:
            return None
        from hostbot.model.fused import can_fold

        short = can_fold(self.buffers.num_told, self.buffers.text_length)
        return self._folds[expert] if short else None

    def cache_context(self, expert: Expert, embedded: Float[Tensor, "B L w"], first: int) -> None:
        """Put every layer's cross-attention keys and values of embedded context tokens at places from ``first`` on."""
        is_video = expert is self.model.video
        keys = self.buffers.video_context if is_video else self.buffers.action_context
        folds = self._folds_of(expert)
        for index in range(len(expert.blocks)):
            if self.fused:
                from hostbot.model.fused import cache_context

                values = None if folds is None else folds[index]
                cache_context(expert.layer(index), embedded, keys[index], first, values)
            else:
                made = expert.layer(index).context_keys(embedded)
                keys[index][:, :, first : first + embedded.shape[1]].copy_(made)

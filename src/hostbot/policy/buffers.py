"""What a cascade keeps: buffers that its stages read and write in place, and the modulations of all its levels.

Legend: B batch, K localisation samples, N layers, T cache length, C latent channels, F latent frames, H W latents,
A actions a chunk, a action width, s state width, L text tokens, t text width, S tokens, c numbers a patch, h heads,
d head width, w expert width, G runs of tokens that share a noise level.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hostbot import flow
from hostbot.model.experts import Expert
from hostbot.model.host import HostModel
from hostbot.policy.contract import CascadeConfig


class Buffers:
    """Keys and values of everything cached, the inputs of a cycle and its results, for one batch size.

    One buffer a layer holds the keys of [D | O | p | o | a], another the values: a compiler writes into each in
    place, into halves of one it does not. Their type is the weights'; everything else is float32.
    """

    def __init__(self, model: HostModel, config: CascadeConfig, batch: int, device: torch.device) -> None:
        sizes, grid = model.config, model.config.grid
        heads = (sizes.video.num_heads, sizes.video.head_dim)
        layers, self.text_length = sizes.video.num_layers, sizes.text_length
        self.num_told = sizes.text_length
        """Text tokens with a key each; those after them are padding, all alike, and one key stands for them."""
        frame, num_future = grid.frame_tokens, grid.future_latents * grid.frame_tokens
        tail = max(config.num_localisations, 1 + num_future + sizes.horizon)
        length, dtype = (grid.demo_latents + 1) * frame + tail, model.video.dtype

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, device=device, dtype=dtype)

        self.keys, self.values = (empty(layers, batch, length, *heads, dtype=dtype) for _ in range(2))
        self.video_context, self.action_context = (
            empty(layers, 2, batch, sizes.text_length + 1, *heads, dtype=dtype) for _ in range(2)
        )
        self.text = empty(batch, sizes.text_length, sizes.video.text_dim, dtype=dtype)
        self.proprio = empty(batch, sizes.state_dim)
        self.demo = empty(batch, *grid.latents(grid.demo_latents))
        self.observation = empty(batch, *grid.latents(1))
        # ``p_begun``: the samples after their first step, which rides with the observation. No stage writes what it
        # reads: to become a graph it is run once before it counts.
        self.noise_p, self.p_begun, self.p_samples = (
            empty(batch, config.num_localisations) for _ in range(3)
        )
        self.noise_o, self.o = (empty(batch, num_future, grid.patch_dim) for _ in range(2))
        self.noise_a, self.a = (empty(batch, sizes.horizon, sizes.action_dim) for _ in range(2))
        self.p, self.confidence = empty(batch), empty(batch)
        self.p_low, self.p_high = empty(batch) - torch.inf, empty(batch) + torch.inf

    @property
    def num_text_keys(self) -> int:
        """Keys of the text; the state's lies after them."""
        return min(self.num_told + 1, self.text_length)


class Levels:
    """What depends on the schedules alone: noise levels and their modulations, made once."""

    def __init__(self, model: HostModel, config: CascadeConfig, device: torch.device) -> None:
        flows = model.config.flow
        steps = {"p": config.steps_p, "o": config.steps_o, "a": config.steps_a}
        shifts = {"p": flows.shift_p, "o": flows.shift_o, "a": flows.shift_a}
        self.sigmas = {name: flow.schedule(steps[name], shifts[name]).tolist() for name in steps}

        def modulations(expert: Expert, sigmas: Sequence[float]) -> tuple[Tensor, Tensor]:
            embedding, mod = expert.time(torch.tensor(sigmas, device=device)[:, None])
            return embedding[:, None], mod[:, None]

        self.clean = modulations(model.video, [0.0])[1][0]
        self.p = modulations(model.video, self.sigmas["p"][:-1])[1]
        self.embedding_o, self.o = modulations(model.video, self.sigmas["o"][:-1])
        self.a = modulations(model.action, self.sigmas["a"][:-1])[1]
        # Passes that carry several runs of tokens: the first localisation step rides with the observation, the
        # clean localisation with the first step of the future. Each spares a reading of all weights.
        self.first_p = torch.cat([self.clean, self.p[0]], dim=1)
        self.first_p_with_demo = torch.cat([self.clean, self.clean, self.p[0]], dim=1)
        self.first_o = torch.cat([self.clean, self.o[0]], dim=1)

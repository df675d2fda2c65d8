"""The HOST model: one pass for training, eq:sequence, with the three flow-matching losses.

Legend: B batch, W demonstrations, C latent channels, F latent frames, H W latents, V views, S tokens,
A actions a chunk, a action width, s state width, L text tokens, t text width.
Localisation values are in [-1, 1] here: ``2 p_t - 1``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hostbot import flow
from hostbot.model import tokens as grid_tokens
from hostbot.model.experts import ActionExpert, ExpertConfig, VideoExpert
from hostbot.model.layers import Linear, LocalisationCodec
from hostbot.model.mot import JointPlan, Stream, Tokens
from hostbot.model.rope import grid_rope, line_rope
from hostbot.model.shared import SharedPlan, WatchPlan, any_layer
from hostbot.model.stem import Stem
from hostbot.model.tokens import GridConfig, grid_positions, keep_views, patchify, unpatchify
from hostbot.types import BadInput

UNLOCALISED = -1.0
"""The clean localisation where there is no demonstration to be localised in."""


@dataclass(frozen=True, kw_only=True)
class FlowConfig:
    """Schedules, loss weights and the noise on clean tokens."""

    shift_p: float = 3.0
    shift_o: float = 5.0
    shift_a: float = 5.0
    lambda_p: float = 1.0
    lambda_o: float = 1.0
    lambda_a: float = 10.0
    ncp_probability: float = 0.5
    """How often a sample's clean tokens are noised (noisy clean progress)."""
    ncp_std_p: float = 0.5
    ncp_std_o: float = 0.1
    """The paper says "small-magnitude" and gives no number for observations."""
    unseen_future: float = 0.0
    """How often actions are trained without the future; above 0 the visual stage may be skipped in use."""


@dataclass(frozen=True, kw_only=True)
class HostConfig:
    """Everything that decides the model's shapes and its objective."""

    video: ExpertConfig
    action: ExpertConfig
    grid: GridConfig
    action_dim: int
    state_dim: int
    horizon: int
    """Actions a chunk."""
    text_length: int
    """Text tokens, zero-padded: as Wan was trained, padding is attended to."""
    action_head_norm: bool = False
    """Norm before the action head; off in FastWAM and in the paper."""
    flow: FlowConfig = dataclasses.field(default_factory=FlowConfig)
    stem: int = 0
    """Channels of the convolutions over what is given to see, before it is cut into tokens; 0: none, as in Wan."""

    def __post_init__(self) -> None:
        if self.stem < 0:
            raise BadInput(f"a stem has so many channels, or 0 where there is none; got {self.stem}")
        for name in ("num_layers", "num_heads", "head_dim", "text_dim"):
            video, action = getattr(self.video, name), getattr(self.action, name)
            if video != action:
                raise BadInput(f"the experts must share {name}, got {video} and {action}")


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the robot is given: a demonstration window or none, what it sees, feels and is told."""

    observation: Float[Tensor, "B C 1 H W"]
    proprio: Float[Tensor, "B s"]
    text: Float[Tensor, "B L t"]
    demo: Float[Tensor, "B/G C F H W"] | None = None
    shared: int = 1
    """Samples G that share each demonstration, one after the other (training only)."""
    views: tuple[int, ...] | None = None
    """Views the demonstrations of the whole batch have; the others' tokens are skipped. ``None``: all."""
    present: Bool[Tensor, "B V"] | None = None
    """Views each sample's demonstration has (one at least), where they differ; the others are masked out."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What is to be predicted, clean or noised alike."""

    p: Float32[Tensor, " B"]
    o: Float32[Tensor, "B C F H W"]
    a: Float32[Tensor, "B A a"]


@dataclass(frozen=True, kw_only=True)
class Noised:
    """A training input: targets at their levels, and the clean tokens that condition what follows."""

    noisy: Targets
    sigma_p: Float32[Tensor, " B"]
    sigma_o: Float32[Tensor, " B"]
    sigma_a: Float32[Tensor, " B"]
    clean_p: Float32[Tensor, " B"]
    clean_o: Float32[Tensor, "B C F H W"]
    future_seen: Bool[Tensor, " B"] | None = None


@dataclass(frozen=True, kw_only=True)
class Velocity(Targets):
    """Predicted velocities, and the observation's last tokens for whoever trains a head on them."""

    observation: Float32[Tensor, "B S w"]


@dataclass(frozen=True, kw_only=True)
class Losses:
    """eq:flow_matching for each target and eq:total_loss."""

    total: Float32[Tensor, ""]
    loc: Float32[Tensor, ""]
    obs: Float32[Tensor, ""]
    act: Float32[Tensor, ""]


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Tokens of what a robot sees with a demonstration, and both after half of the layers."""

    observation: Float32[Tensor, "B S w"]
    halfway: Float32[Tensor, "B S w"]
    demo_halfway: Float32[Tensor, "W S2 w"] | None


class HostModel(nn.Module):
    """Both experts, the localisation codec and M_s; ``forward`` is the training pass."""

    def __init__(self, config: HostConfig) -> None:
        super().__init__()
        self.config = config
        self.video = VideoExpert(config.video, config.grid.patch_dim)
        self.action = ActionExpert(config.action, config.action_dim, config.action_head_norm)
        self.localisation = LocalisationCodec(config.video.dim)
        self.proprio = Linear(config.state_dim, config.video.text_dim)
        self.stem = Stem(config.grid, config.stem, config.video.dim) if config.stem else None
        self.checkpointing = False
        self.joint_layer: Callable[..., Any] = any_layer
        self._ropes: dict[tuple[object, ...], Float32[Tensor, "S d/2 2"]] = {}

    def compile_layers(self) -> None:
        """Compile the training layer once; all layers share the result.

        Without mix-order reductions: in torch 2.11 on an H200 they gave modulations gradients out of memory that was
        never written (pytorch#190796 tells of the same in 2.10). Without cuDNN's attention, in this whole process.
        """
        from torch._inductor import config as inductor

        if hasattr(inductor.triton, "mix_order_reduction"):
            inductor.triton.mix_order_reduction = False
        torch.backends.cuda.enable_cudnn_sdp(False)
        self.joint_layer = torch.compile(any_layer, dynamic=False)

    def give_stem(self, width: int) -> None:
        """Convolutions that change nothing yet, for a model that had none."""
        if self.stem is not None:
            raise BadInput(f"the model has a stem of {self.config.stem} channels already")
        self.config = dataclasses.replace(self.config, stem=width)
        weight = self.proprio.weight
        self.stem = Stem(self.config.grid, width, self.config.video.dim).to(weight.device, weight.dtype)

    # Tokens -------------------------------------------------------------------------------------------

    def demo_tokens(
        self, demo: Float[Tensor, "B C F H W"], views: Sequence[int] | None
    ) -> Float32[Tensor, "B S w"]:
        """z^d, less the views that are not there."""
        grid = self.config.grid
        grid.check(demo, grid.demo_latents, "demonstration")
        tokens = self.video.embed(keep_views(patchify(demo, grid.patch), views, grid))
        return tokens if self.stem is None else tokens + self.stem(demo, views)

    def observation_tokens(self, latents: Float[Tensor, "B C 1 H W"]) -> Float32[Tensor, "B S w"]:
        """z^o."""
        tokens = self.frame_tokens(latents, 1, "observation")
        return tokens if self.stem is None else tokens + self.stem(latents)

    def frame_tokens(
        self, latents: Float[Tensor, "B C F H W"], num_frames: int, what: str
    ) -> Float32[Tensor, "B S w"]:
        """y^o, or what of z^o is Wan's."""
        self.config.grid.check(latents, num_frames, what)
        return self.video.embed(patchify(latents, self.config.grid.patch))

    def context_tokens(
        self, text: Float[Tensor, "B L t"], proprio: Float[Tensor, "B s"]
    ) -> Float[Tensor, "B L+1 t"]:
        """c = [text | M_s s], eq:context; the state stands last, so that a demo row can leave it out."""
        if text.shape[1] != self.config.text_length or proprio.shape[1] != self.config.state_dim:
            raise BadInput(
                f"context is {text.shape[1]} text tokens and {proprio.shape[1]} state numbers but this model "
                f"takes {self.config.text_length} and {self.config.state_dim}"
            )
        state = self.proprio.in_float32(proprio)[:, None]
        return torch.cat([text.to(self.video.dtype), state.to(self.video.dtype)], dim=1)

    def demo_rope(self, views: Sequence[int] | None) -> Float32[Tensor, "S d/2 2"]:
        """Positions of the demo tokens that are there."""
        grid = self.config.grid
        positions = keep_views(grid_positions(range(grid.demo_latents), grid)[None], views, grid)[0]
        return grid_rope(positions, self.config.video.head_dim)

    def observation_rope(self, views: Sequence[int] | None = None) -> Float32[Tensor, "S d/2 2"]:
        """Positions of the current observation, or of some of its views."""
        grid = self.config.grid
        positions = grid_positions([grid_tokens.observation_frame(grid)], grid)
        return grid_rope(keep_views(positions[None], views, grid)[0], self.config.video.head_dim)

    def future_rope(self) -> Float32[Tensor, "S d/2 2"]:
        """Positions of the predicted latents."""
        grid = self.config.grid
        return grid_rope(grid_positions(grid_tokens.future_frames(grid), grid), self.config.video.head_dim)

    def localisation_rope(self) -> Float32[Tensor, "1 d/2 2"]:
        """Position of the localisation token."""
        return grid_rope(grid_tokens.localisation_position(self.config.grid), self.config.video.head_dim)

    def action_rope(self) -> Float32[Tensor, "A d/2 2"]:
        """Positions of the action tokens."""
        return line_rope(torch.arange(self.config.horizon), self.config.action.head_dim)

    def _rope(
        self, device: torch.device, *parts: str, views: Sequence[int] | None = None
    ) -> Float32[Tensor, "S d/2 2"]:
        """Positions of segments one after the other, where they are needed: no step waits for their way there."""
        key = (device, parts, None if views is None else tuple(views))
        if key not in self._ropes:
            make: dict[str, Callable[[], Tensor]] = {
                "demo": lambda: self.demo_rope(views),
                "observation": self.observation_rope,
                "watched": lambda: self.observation_rope(views),
                "localisation": self.localisation_rope,
                "future": self.future_rope,
                "action": self.action_rope,
            }
            self._ropes[key] = torch.cat([make[part]() for part in parts]).to(device)
        return self._ropes[key]

    # Training -----------------------------------------------------------------------------------------

    def forward(self, context: Context, noised: Noised) -> Velocity:
        """Velocities of all three targets in one pass; a context without a demo has no demo tokens at all."""
        grid = self.config.grid
        apart = context.shared > 1 and context.demo is not None
        alone = dataclasses.replace(context, demo=None) if apart else context
        tokens = self._embed(alone, noised)
        plan, embedding = self._plan(alone, noised, tokens[0].shape[1], tokens[0].device)
        rows, _, acts = self._share(context, tokens, plan) if apart else self._layers(tokens, plan)
        end = plan.num_demo + plan.num_observation
        future = self.video.velocity(rows[:, end + 1 :], embedding[:, 2:])
        return Velocity(
            p=self.localisation.decode(rows[:, end : end + 1])[:, 0],
            o=unpatchify(future, grid),
            a=self.action.velocity(acts),
            observation=rows[:, plan.num_demo : end],
        )

    def watch(self, context: Context, sight: Sequence[int] | None = None) -> Watched:
        """The observation's tokens, as ``forward`` gives them: nothing that is predicted can change them.

        With ``sight`` only some of the robot's views are looked at, as if there were no others.
        """
        tokens = keep_views(self.observation_tokens(context.observation), sight, self.config.grid)
        device = tokens.device
        _, mod = self.video.time(torch.zeros(1, 1, device=device))
        demo, stream = None, None
        if context.demo is not None:
            self._check_shares(context, len(tokens))
            demo = self.demo_tokens(context.demo, context.views)
            rope = self._rope(device, "demo", views=context.views)
            stream = Stream(mod=mod, widths=(demo.shape[1],), rope=rope)
        plan = WatchPlan(
            observation=Stream(
                mod=mod, widths=(tokens.shape[1],), rope=self._rope(device, "watched", views=sight)
            ),
            context=self.video.text(self.context_tokens(context.text, context.proprio)),
            demo=stream,
            shared=context.shared,
        )
        half = self.config.video.num_layers // 2
        halfway = self._layers((demo, tokens), plan, slice(half))
        last = self._layers(halfway, plan, slice(half, None))
        return Watched(observation=last[1], halfway=halfway[1], demo_halfway=halfway[0])

    def _check_shares(self, context: Context, batch: int) -> None:
        assert context.demo is not None
        if context.present is not None or len(context.demo) * context.shared != batch:
            raise BadInput(
                f"{len(context.demo)} demonstrations cannot be shared by {batch} samples, "
                f"{context.shared} each with the same views"
            )

    def _layers(
        self, tokens: Any, plan: JointPlan | SharedPlan | WatchPlan, which: slice = slice(None)
    ) -> Any:
        """All layers or some, recomputed in the backward pass where memory is to be spared."""
        for index in range(self.config.video.num_layers)[which]:
            layer = (self.video.layer(index), self.action.layer(index))
            last = index == self.config.video.num_layers - 1
            if self.checkpointing and torch.is_grad_enabled():
                tokens = checkpoint(self.joint_layer, *layer, tokens, plan, last, use_reentrant=False)
            else:
                tokens = self.joint_layer(*layer, tokens, plan, last)
        return tokens

    def _share(self, context: Context, tokens: Tokens, plan: JointPlan) -> Tokens:
        """All layers, each demonstration computed once for the samples that share it."""
        assert context.demo is not None
        self._check_shares(context, len(tokens[0]))
        demo = self.demo_tokens(context.demo, context.views)
        rope = self._rope(demo.device, "demo", views=context.views)
        # Demo tokens are at level 0 in every sample.
        stream = Stream(mod=plan.rows.mod[:1, :1], widths=(demo.shape[1],), rope=rope)
        shared = SharedPlan(joint=plan, demo=stream, shared=context.shared)
        _, rows, clean, acts = self._layers((demo, *tokens), shared)
        return rows, clean, acts

    def _embed(self, context: Context, noised: Noised) -> Tokens:
        grid = self.config.grid
        parts = [] if context.demo is None else [self.demo_tokens(context.demo, context.views)]
        parts.append(self.observation_tokens(context.observation))
        parts.append(self.localisation.encode(noised.noisy.p[:, None]))
        parts.append(self.frame_tokens(noised.noisy.o, grid.future_latents, "future"))
        with torch.no_grad():
            clean = [
                self.localisation.encode(noised.clean_p[:, None]),
                self.frame_tokens(noised.clean_o, grid.future_latents, "clean future"),
            ]
        return torch.cat(parts, dim=1), torch.cat(clean, dim=1), self.action.embed(noised.noisy.a)

    def _plan(
        self, context: Context, noised: Noised, num_rows: int, device: torch.device
    ) -> tuple[JointPlan, Float32[Tensor, "B 3 w"]]:
        grid = self.config.grid
        num_future = grid.future_latents * grid.frame_tokens
        num_demo = num_rows - grid.frame_tokens - 1 - num_future
        zero = torch.zeros_like(noised.sigma_p)
        embedding, mod = self.video.time(torch.stack([zero, noised.sigma_p, noised.sigma_o], dim=1))
        _, mod_action = self.action.time(noised.sigma_a[:, None])
        before = ("observation",) if context.demo is None else ("demo", "observation")
        predicted = ("localisation", "future")
        rows = Stream(
            mod=mod,
            widths=(num_demo + grid.frame_tokens, 1, num_future),
            rope=self._rope(device, *before, *predicted, views=context.views),
            num_blind=num_demo,
        )
        clean = Stream(mod=mod[:, :1].detach(), widths=(1 + num_future,), rope=self._rope(device, *predicted))
        action = Stream(mod=mod_action, widths=(self.config.horizon,), rope=self._rope(device, "action"))
        present = None
        if context.present is not None and context.demo is not None:
            present = grid_tokens.view_mask(context.present, grid.demo_latents, grid)
        tokens = self.context_tokens(context.text, context.proprio)
        plan = JointPlan(
            num_demo=num_demo,
            num_observation=grid.frame_tokens,
            rows=rows,
            clean=clean,
            action=action,
            video_context=self.video.text(tokens),
            action_context=self.action.text(tokens),
            demo_present=present,
            future_seen=noised.future_seen,
        )
        return plan, embedding

    def noise(self, targets: Targets, generator: torch.Generator) -> tuple[Noised, Targets]:
        """Draw levels, noise and NCP noise for a batch, eq:noise; the second result is the noise itself."""
        config, device, batch = self.config.flow, targets.p.device, len(targets.p)

        def normal(like: Float32[Tensor, "*D"]) -> Float32[Tensor, "*D"]:
            return torch.randn(like.shape, generator=generator, device=device, dtype=torch.float32)

        def coin(probability: float) -> Bool[Tensor, " B"]:
            return torch.rand(batch, generator=generator, device=device) < probability

        eps = Targets(p=normal(targets.p), o=normal(targets.o), a=normal(targets.a))
        sigma_p, sigma_o, sigma_a = (
            flow.draw_sigma(batch, shift, generator, device)
            for shift in (config.shift_p, config.shift_o, config.shift_a)
        )
        noisy = Targets(
            p=flow.add_noise(targets.p, eps.p, sigma_p),
            o=flow.add_noise(targets.o, eps.o, sigma_o),
            a=flow.add_noise(targets.a, eps.a, sigma_a),
        )
        on_p, on_o = coin(config.ncp_probability), coin(config.ncp_probability)
        clean_p = (targets.p + on_p * config.ncp_std_p * normal(targets.p)).clamp(-1, 1)
        clean_o = targets.o + on_o[:, None, None, None, None] * config.ncp_std_o * normal(targets.o)
        seen = None if config.unseen_future == 0 else ~coin(config.unseen_future)
        noised = Noised(
            noisy=noisy,
            sigma_p=sigma_p,
            sigma_o=sigma_o,
            sigma_a=sigma_a,
            clean_p=clean_p,
            clean_o=clean_o,
            future_seen=seen,
        )
        return noised, eps

    def loss(self, context: Context, targets: Targets, generator: torch.Generator) -> Losses:
        """eq:total_loss on one batch; without a demonstration there is nothing to localise in: no L_loc."""
        return self.learn(context, targets, generator)[0]

    def learn(
        self, context: Context, targets: Targets, generator: torch.Generator
    ) -> tuple[Losses, Velocity, Noised]:
        """The losses with what they were made from, for whoever adds a loss or measures errors."""
        noised, eps = self.disturb(context, targets, generator)
        losses, velocity = self.learn_from(context, targets, noised, eps)
        return losses, velocity, noised

    def disturb(
        self, context: Context, targets: Targets, generator: torch.Generator
    ) -> tuple[Noised, Targets]:
        """Everything random of a training pass, and the noise itself."""
        noised, eps = self.noise(targets, generator)
        if context.demo is None:
            noised = dataclasses.replace(noised, clean_p=torch.full_like(targets.p, UNLOCALISED))
        return noised, eps

    def learn_from(
        self, context: Context, targets: Targets, noised: Noised, eps: Targets
    ) -> tuple[Losses, Velocity]:
        """The pass itself: the same numbers for the same inputs, no decision taken on the CPU."""
        velocity = self(context, noised)
        return self._losses(velocity, targets, noised, eps, context.demo is not None), velocity

    def _losses(
        self, velocity: Velocity, targets: Targets, noised: Noised, eps: Targets, has_demo: bool
    ) -> Losses:
        config = self.config.flow
        loc, obs, act = (
            flow.velocity_loss(v, clean, noise, flow.sigma_weight(sigma))
            for v, clean, noise, sigma in (
                (velocity.p, targets.p, eps.p, noised.sigma_p),
                (velocity.o, targets.o, eps.o, noised.sigma_o),
                (velocity.a, targets.a, eps.a, noised.sigma_a),
            )
        )
        if not has_demo:
            # A product, not a constant: every rank's graph then has the same parameters, whatever its coin said.
            loc = 0 * loc
        total = config.lambda_p * loc + config.lambda_o * obs + config.lambda_a * act
        return Losses(total=total, loc=loc, obs=obs, act=act)

"""What is learned from a batch: eq:total_loss, and where the robot's own view will be touched next.

The second is not in the paper. A small model trained from nothing on eq:total_loss alone learns to localise and to
invert dynamics, but not which object of its own scene the demonstrated one is. Pointing at the place of the next
contact teaches that, from the robot's trajectory and its cameras' calibration alone. ``hostbot train match`` learns it
first; afterwards it stays as an auxiliary loss. It has no part in what the model computes in use.

Legend: B samples, G samples a window, W = B / G windows, V views, S tokens of a frame, S2 of a window, w width,
h means a demonstration is summed up by, d their width, k cells along a token's side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor, nn

from hostbot.data.batches import Batch, DrawConfig, Mixture, generator_for
from hostbot.data.growing import Growing
from hostbot.model.host import Context, HostModel, Noised, Targets, Velocity, Watched
from hostbot.model.layers import Linear, layer_norm
from hostbot.model.tokens import GridConfig
from hostbot.types import BadInput

_DRILLS = 1 << 20
"""Apart from all other seeds, so that which steps are drills does not depend on what is drawn in them."""
_NEAR = 1.5 / 16
"""How far off a hit may be, across and down, as a share of the view."""


@dataclass(frozen=True, kw_only=True)
class LossWeights:
    """What counts: the paper's total, and pointing."""

    flow: float = 1.0
    point: float = 0.0
    pair: float = 0.0
    """Of finding the place by comparing tokens halfway through, beside pointing at it in the end."""
    sight: tuple[int, ...] | None = None
    """The robot's views that are looked at where pointing alone counts; ``None``: all."""

    def __post_init__(self) -> None:
        for name in ("flow", "point", "pair"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise BadInput(f"a loss counts 0 or more, got {value:g} for {name}")
        if self.sight is not None and self.flow:
            raise BadInput("only matching can look at some of the robot's views: the rest needs all of them")
        if self.pair and self.flow:
            raise BadInput("tokens are compared where pointing alone counts, in matching and drills")


class PairHead(nn.Module):
    """Which of the robot's tokens is most like what the demonstration is about.

    A demonstration is summed up by a few weighted means of its tokens and compared with each of the robot's: two steps,
    what is meant and where it is, that a network otherwise has to find at once before either is of any use.
    """

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.look, self.wanted, self.own = Linear(width, heads), Linear(width, width), Linear(width, width)

    def forward(
        self, demo: Float32[Tensor, "W S2 w"], tokens: Float32[Tensor, "B S w"]
    ) -> Float32[Tensor, "B S"]:
        """How alike each token is, as logits."""
        demo, tokens = layer_norm(demo, 1e-6), layer_norm(tokens, 1e-6)
        weight = self.look.in_float32(demo).softmax(dim=1)
        wanted = torch.einsum("wsh,wshd->whd", weight, self._split(self.wanted.in_float32(demo)))
        wanted = wanted.repeat_interleave(len(tokens) // len(demo), dim=0)
        own = self._split(self.own.in_float32(tokens))
        return torch.einsum("bshd,bhd->bs", own, wanted) / own.shape[-1] ** 0.5

    def _split(self, x: Float32[Tensor, "B S w"]) -> Float32[Tensor, "B S h d"]:
        return x.unflatten(-1, (self.heads, -1))


class PointHead(nn.Module):
    """Where in each of the robot's views the next contact will be: a distribution over a fine grid of cells."""

    def __init__(self, grid: GridConfig, width: int, cells: int = 4, pair: bool = False) -> None:
        super().__init__()
        self.grid, self.cells = grid, cells
        self.out = Linear(width, cells**2)
        self.pair = PairHead(width) if pair else None

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of cells in a view."""
        grid = self.grid
        return (grid.view_height // grid.patch * self.cells, grid.view_width // grid.patch * self.cells)

    def forward(self, tokens: Float32[Tensor, "B S w"]) -> Float32[Tensor, "B V c"]:
        """Logits of a view's cells, row by row, for the views whose tokens are there."""
        rows, columns = (length // self.cells for length in self.size)
        x = self.out.in_float32(layer_norm(tokens, 1e-6))
        x = x.reshape(len(x), -1, rows, columns, self.cells, self.cells)
        return x.permute(0, 1, 2, 4, 3, 5).flatten(2)

    def cell_of(self, point: Float32[Tensor, "B V 2"]) -> Int64[Tensor, "B V"]:
        """The cell a point (across, down) lies in."""
        return _place(point, *self.size)

    def token_of(self, point: Float32[Tensor, "B V 2"]) -> Int64[Tensor, "B V"]:
        """The token of a view that a point lies in."""
        rows, columns = self.size
        return _place(point, rows // self.cells, columns // self.cells)

    def centre_of(self, cell: Int64[Tensor, "*B"]) -> Float32[Tensor, "*B 2"]:
        """The middle of a cell."""
        rows, columns = self.size
        return torch.stack([(cell % columns + 0.5) / columns, (cell // columns + 0.5) / rows], dim=-1)


def _place(point: Float32[Tensor, "B V 2"], rows: int, columns: int) -> Int64[Tensor, "B V"]:
    across, down = (point[..., 0] * columns).long(), (point[..., 1] * rows).long()
    return down.clamp(0, rows - 1) * columns + across.clamp(0, columns - 1)


def point_loss(
    head: PointHead,
    tokens: Float32[Tensor, "B S w"],
    point: Float32[Tensor, "B V 2"],
    seen: Bool[Tensor, "B V"],
) -> dict[str, Float32[Tensor, ""]]:
    """Cross-entropy in the views where the point is seen, its distance to the likeliest cell, hits close by."""
    logits = head(tokens)
    losses = F.cross_entropy(logits.flatten(0, 1), head.cell_of(point).flatten(), reduction="none")
    share = seen.flatten().float() / seen.sum().clamp(min=1)
    with torch.no_grad():
        centre = head.centre_of(logits.argmax(-1))
        apart = (centre - point).abs()
        error = ((apart.norm(dim=-1)).flatten() * share).sum()
        near = (apart <= _NEAR).all(-1)
        hit = (near.float().flatten() * share).sum()
    return {"point": (losses * share).sum(), "point_error": error, "point_hit": hit}


def pair_loss(
    head: PointHead, watched: Watched, point: Float32[Tensor, "B V 2"], seen: Bool[Tensor, "B V"]
) -> dict[str, Float32[Tensor, ""]]:
    """Cross-entropy of the token the point lies in, and how often that is the most alike."""
    assert head.pair is not None
    assert watched.demo_halfway is not None
    logits = head.pair(watched.demo_halfway, watched.halfway).unflatten(1, (seen.shape[1], -1))
    token = head.token_of(point)
    losses = F.cross_entropy(logits.flatten(0, 1), token.flatten(), reduction="none")
    share = seen.flatten().float() / seen.sum().clamp(min=1)
    hit = ((logits.argmax(-1) == token).float().flatten() * share).sum()
    return {"pair": (losses * share).sum(), "pair_hit": hit.detach()}


def context_of(batch: Batch, shared: int) -> Context:
    """A batch as the model is given it."""
    return Context(
        observation=batch.observation.float(),
        proprio=batch.proprio,
        text=batch.text,
        demo=None if batch.demo is None else batch.demo.float(),
        shared=shared,
        views=batch.views,
    )


def targets_of(batch: Batch) -> Targets:
    """What is to be predicted."""
    return Targets(p=batch.p, o=batch.future.float(), a=batch.action)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A micro-batch with everything random drawn; without targets only pointing is learned."""

    context: Context
    point: Float32[Tensor, "B V 2"]
    seen: Bool[Tensor, "B V"]
    targets: Targets | None = None
    noised: Noised | None = None
    eps: Targets | None = None
    drill: bool = False


class Policy(nn.Module):
    """The model with its auxiliary head, as a module whose call is a training loss.

    Batches of drills, if there are any among the others, have weights of their own.
    """

    def __init__(
        self,
        model: HostModel,
        weights: LossWeights,
        shared: int = 1,
        cells: int = 4,
        drills: LossWeights | None = None,
    ) -> None:
        super().__init__()
        if drills is not None and drills.flow:
            raise BadInput("from drills only pointing is learned")
        self.model, self.weights, self.drills, self.shared = model, weights, drills, shared
        pair = weights.pair > 0 or (drills is not None and drills.pair > 0)
        self.point = PointHead(model.config.grid, model.config.video.dim, cells, pair=pair)

    def forward(self, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """Losses and errors of a micro-batch; where pointing alone counts, nothing else is computed."""
        return self.figures(self.prepare(batch, generator))

    def prepare(self, batch: Batch, generator: torch.Generator) -> Prepared:
        """A batch with all its noise."""
        context, targets = context_of(batch, self.shared), targets_of(batch)
        if self.weights.flow == 0 or batch.drill:
            return Prepared(context=context, point=batch.point, seen=batch.seen, drill=batch.drill)
        noised, eps = self.model.disturb(context, targets, generator)
        return Prepared(
            context=context, point=batch.point, seen=batch.seen, targets=targets, noised=noised, eps=eps
        )

    def pointing(
        self,
        context: Context,
        point: Float32[Tensor, "B V 2"],
        seen: Bool[Tensor, "B V"],
        drill: bool = False,
    ) -> dict[str, Float32[Tensor, ""]]:
        """How well the next contact is pointed at, without anything else being computed."""
        weights = self.drills if drill and self.drills is not None else self.weights
        sight = weights.sight
        if (
            sight is not None
        ):  # one by one: a list of numbers would be copied to the device, which no graph can hold
            point, seen = (torch.stack([x[:, view] for view in sight], dim=1) for x in (point, seen))
        watched = self.model.watch(context, sight)
        figures = point_loss(self.point, watched.observation, point, seen)
        figures["loss"] = weights.point * figures["point"]
        if weights.pair and context.demo is not None:
            figures |= pair_loss(self.point, watched, point, seen)
            figures["loss"] = figures["loss"] + weights.pair * figures["pair"]
        return figures

    def figures(self, given: Prepared) -> dict[str, Tensor]:
        """What is learned and told of a batch, as one run of kernels: nothing here waits for the device."""
        context, targets, noised = given.context, given.targets, given.noised
        with_demo = torch.full((), float(context.demo is not None), device=given.point.device)
        if targets is None or noised is None or given.eps is None:
            figures = self.pointing(context, given.point, given.seen, given.drill)
            total = figures.pop("loss")
            found = {n: v.detach() for n, v in figures.items()}
            if given.drill:  # told apart from what the rest points at
                return {"total": total} | {f"drill_{name}": value for name, value in found.items()}
            return {"total": total, "with_demo": with_demo} | found
        losses, velocity = self.model.learn_from(context, targets, noised, given.eps)
        figures = point_loss(self.point, velocity.observation, given.point, given.seen)
        total = self.weights.flow * losses.total + self.weights.point * figures["point"]
        figures = {"loc": losses.loc, "obs": losses.obs, "act": losses.act, **figures}
        figures |= errors(velocity, noised, targets)
        figures["with_demo"] = with_demo
        figures["p_error"] = figures["p_error"] * with_demo
        return {"total": total, **{name: value.detach() for name, value in figures.items()}}


@torch.no_grad()
def errors(velocity: Velocity, noised: Noised, targets: Targets) -> dict[str, Float[Tensor, ""]]:
    """How far the clean targets that one step would give are off: p as a share of the window, actions normalised."""
    p = noised.noisy.p - noised.sigma_p * velocity.p
    a = noised.noisy.a - noised.sigma_a[:, None, None] * velocity.a
    return {"p_error": (p - targets.p).abs().mean() / 2, "a_error": (a - targets.a).abs().mean()}


@dataclass(frozen=True, kw_only=True)
class Drills:
    """Samples from which only pointing is learned, in some of the steps."""

    samples: Mixture
    draw: DrawConfig
    share: float

    def has(self, seed: int, step: int) -> bool:
        """Whether a step is a drill; all of its micro-batches are."""
        return float(torch.rand(1, generator=generator_for(seed + _DRILLS, step, 0))) < self.share


@dataclass(frozen=True, kw_only=True)
class PolicyStage:
    """Stage 1, stage 2 and matching alike: a policy, its samples, and how they are drawn."""

    module: Policy
    samples: Mixture | Growing
    draw: DrawConfig
    seed: int
    check: Callable[[int], Mapping[str, float]] = lambda step: {}
    drills: Drills | None = None

    def batch(self, step: int, micro: int) -> Batch:
        """The micro-batch of this number."""
        if self.drills is not None and self.drills.has(self.seed, step):
            return replace(self.drills.samples.draw(self.drills.draw, self.seed, step, micro), drill=True)
        return self.samples.draw(self.draw, self.seed, step, micro)

    def summary(self, means: dict[str, float]) -> dict[str, float]:
        """Localisation is told of the batches that have a demonstration."""
        share = means.get("with_demo", 0.0)
        found = {name: means[name] / share for name in ("loc", "p_error") if share > 0 and name in means}
        return {name: value for name, value in means.items() if name not in ("loc", "p_error")} | found

    def validate(self, step: int) -> Mapping[str, float]:
        """Figures on held-out samples."""
        return self.check(step)
